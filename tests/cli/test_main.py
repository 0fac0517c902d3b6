import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diptych import __version__
from diptych.cli.main import COMMANDS, run
from diptych.search.index import Index
from diptych.search.stores.store import Layout


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


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_h_is_help_everywhere(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "-h"]) == 0
    assert f"diptych {name}" in capsys.readouterr().out


def test_searching_comes_before_research(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-h"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f" {name} ") for name in ("index", "search", "serve", "data", "train", "evaluate")]
    assert places == sorted(places)
    assert shown.index("Your pictures") < shown.index("Research")


@pytest.fixture
def completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """What bash is offered at the end of a line, in a folder with an index and a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Index.create("photos.db", None, layout=Layout(2)) as index:
        index.add_vectors(["a"], np.eye(2)[:1], metadata={"a": {"album": "snow"}})
    (tmp_path / "notes.db").write_text("no index")
    (tmp_path / "runs" / "mine" / "best").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "best" / "config.json").write_text("{}")

    def offered(line: str) -> list[str]:
        monkeypatch.setenv("_DIPTYCH_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        assert run([]) == 0
        told = capsys.readouterr()
        assert told.err == ""
        return told.out.split()

    return offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("diptych evaluate-", ["evaluate-reranked", "evaluate-cost", "evaluate-near-misses", "evaluate-index"]),
        ("diptych search --group", ["--group-duplicates"]),
        ("diptych search --fusion r", ["replace", "rrf"]),
        ("diptych search --index ", ["photos.db", "runs/"]),
        ("diptych search --index ./ph", ["./photos.db"]),
        ("diptych search --device c", ["cpu", "cuda"]),
        ("diptych index --model r", ["runs/mine"]),
        ("diptych search --index photos.db --filter a", ["album="]),
        ("diptych list --index photos.db --columns ", ["album", "date", "kind", "path"]),
        ("diptych list --index none.db --filter d", ["date="]),
    ],
)
def test_shells_can_complete(line: str, offered: list[str], completed: Callable[[str], list[str]]) -> None:
    assert completed(line) == offered


def test_completion_knows_the_settings(
    completed: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text('[common]\nindex = "photos.db"\n')
    monkeypatch.setenv("DIPTYCH_CONFIG", "config.toml")
    assert completed("diptych list --filter al") == ["album="]
    (tmp_path / "config.toml").write_text("[wrong]\n")
    assert completed("diptych list --filter al") == []


def test_completion_is_installed(tmp_path: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "diptych", "--install-completion", "bash"]
    done = subprocess.run(command, env=home, capture_output=True, text=True, check=True)
    assert "completion installed" in done.stdout
    script = next(tmp_path.rglob("diptych.sh")).read_text()
    assert "_DIPTYCH_COMPLETE=complete_bash" in script
