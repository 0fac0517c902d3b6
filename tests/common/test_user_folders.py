import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from diptych.common.user_folders import cache_folder, data_folder


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms have other folders")
@pytest.mark.parametrize(
    ("folder", "variable", "usual"),
    [(data_folder, "XDG_DATA_HOME", ".local/share/diptych"), (cache_folder, "XDG_CACHE_HOME", ".cache/diptych")],
)
def test_folders_are_where_the_platform_has_them(
    folder: Callable[[], Path], variable: str, usual: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv(variable, str(tmp_path))
    assert folder() == tmp_path / "diptych"
    for value in ("", None):
        monkeypatch.delenv(variable) if value is None else monkeypatch.setenv(variable, value)
        assert folder() == Path("/home/someone") / usual
    assert not (tmp_path / "diptych").exists()


def test_training_needs_no_platformdirs() -> None:
    code = (
        "import sys; sys.modules['platformdirs'] = None\n"
        "import diptych.cli.train, diptych.training.loop, diptych.evaluation.evaluate, diptych.training.ablation"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
