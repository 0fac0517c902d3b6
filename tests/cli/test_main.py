import subprocess
import sys
from pathlib import Path

import pytest

from diptych import __version__
from diptych.cli.main import COMMANDS, run


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert run(["--version"]) == 0
    shown = capsys.readouterr().out
    assert f"diptych {__version__}" in shown
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"diptych {name}" in capsys.readouterr().out


def test_an_unknown_command_names_its_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trian"]) == 2
    assert "'train'" in capsys.readouterr().err


def test_bad_input_is_one_sentence_and_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(tmp_path / "gone.toml")]) == 1
    said = capsys.readouterr().err
    assert "gone.toml: no such file" in said
    assert "Traceback" not in said


def test_help_is_quick_to_import() -> None:
    code = "import sys, diptych.cli.main as m; m.run(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
