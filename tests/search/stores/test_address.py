from pathlib import Path

import pytest

from diptych.common.errors import DiptychError
from diptych.search.stores.address import default_index, open_store


def test_each_user_has_an_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_index() == tmp_path / "diptych" / "index.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_index() == Path("/home/someone/.local/share/diptych/index.db")


@pytest.mark.parametrize(
    "address", ["qdrant://[::1/x", "milvus://[zz]:1/x", "qdrant://host:1/a b", "milvus://host:x/a"]
)
def test_an_address_that_is_none_is_told_in_a_sentence(address: str) -> None:
    with pytest.raises(DiptychError, match="expected"):
        open_store(address)
