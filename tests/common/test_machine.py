import errno
import fractions
import os
import pickle
from pathlib import Path

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.common.machine import machine_error, torch_reason, writing


def test_what_the_machine_refuses_is_one_sentence_and_a_bug_is_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory") as refused:
        (tmp_path / "gone" / "x").write_text("x")
    assert machine_error(refused.value) == f"{tmp_path / 'gone' / 'x'}: No such file or directory"
    assert machine_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == "No space left on device"
    assert machine_error(OSError("first\nsecond")) == "first"
    assert machine_error(DiptychError("wrong", where="here")) == "here: wrong"
    with pytest.raises(RuntimeError) as large:
        torch.empty(10**15)
    for error in (large.value, MemoryError()):
        assert "not enough memory" in str(machine_error(error))
    for bug in (RuntimeError("shapes do not fit"), KeyError("x"), ValueError("not enough memory of it")):
        assert machine_error(bug) is None


def test_what_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"a\.txt: cannot be written: Is a directory"), writing(Path("a.txt")):
        tmp_path.write_text("x")
    with pytest.raises(DiptychError, match=r"a\.txt: cannot be written: .*os error"), writing(Path("a.txt")):
        raise RuntimeError("serializing: No space left on device (os error 28)\nmore")
    with pytest.raises(KeyError), writing(Path("a.txt")):
        raise KeyError("a bug")


@pytest.mark.parametrize("data", [b"garbage", b"", b"\x80\x04\x95", pickle.dumps(fractions.Fraction(1, 2), 2)])
def test_nobody_is_told_to_unpickle(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(Exception) as refused:  # noqa: PT011 (torch raises all kinds)
        torch.load(tmp_path / "x.pt", weights_only=True)
    reason = torch_reason(refused.value)
    assert reason
    assert "\n" not in reason
    for advice in ("weights_only", "Re-running", "trust", "allowlist", "add_safe_globals", "file an issue"):
        assert advice not in reason
