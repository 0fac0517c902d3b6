import json
from pathlib import Path

import pytest

from diptych.cli.config_file import TABLES, default_file, settings_of
from diptych.cli.main import function_of, run
from diptych.search.index import Index
from tests.search import tiny
from tests.search.conftest import own_folders, vse_folder

__all__ = ["own_folders", "vse_folder"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file, not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    path = tmp_path / "settings" / "diptych" / "config.toml"
    path.parent.mkdir(parents=True)
    assert default_file() == path
    return path


@pytest.fixture
def index(tmp_path: Path, vse_folder: str) -> str:
    folder = tiny.fill(tmp_path / "pictures", 4)
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as made:
        made.sync(folder)
    return str(tmp_path / "i.db")


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> int:
    assert run(["search", "dog", *arguments]) == 0
    return len(capsys.readouterr().out.splitlines())


def test_what_one_always_types(
    own: Path, index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write_text(f'[common]\nindex = "{index}"\ndevice = "cpu"\n[search]\ntop = 2\npaths = true\n')
    assert found(capsys) == 2
    assert found(capsys, "--top", "3") == 3  # the command line goes before it
    assert run(["list", "--json"]) == 0  # [common] is for all
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert run(["remove", "000.png", "--dry-run"]) == 1
    assert run(["remove", "*/000.png", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("/000.png\n")
    other = tmp_path / "other.toml"
    other.write_text("[search]\ntop = 1\n")
    assert found(capsys, "--config", str(other), "--index", index) == 1
    monkeypatch.setenv("DIPTYCH_CONFIG", str(other))
    assert found(capsys, "--index", index) == 1
    assert found(capsys, "--index", index, "--config", "/dev/null") == 4
    assert run(["info", "--index", index, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"] == str(other)


def test_a_commands_own_table_goes_before_the_common_one(
    own: Path, index: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(Path(index).parent))
    own.write_text('[common]\nindex = "none.db"\n[list]\nindex = "~/i.db"\nlimit = 1\n')
    assert run(["list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert run(["info"]) == 1
    assert "none.db" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[serch]\ntop = 1", "config.toml: unknown table 'serch'; did you mean 'search'?"),
        ("top = 1", "config.toml: unknown table 'top'"),
        ("search = 1", "config.toml: search: expected a table, [search], got 1"),
        ("[search]\ntpo = 1", "config.toml: [search]: unknown key 'tpo'; did you mean 'top'?"),
        ("[search]\ngroup-duplicate = true", "did you mean 'group-duplicates'?"),
        ("[search]\ntop = 'many'", "config.toml: [search]: top: expected int, got 'many'"),
        ("[search]\ntop = 0", "config.toml: [search]: top: expected at least 1, got 0"),
        ("[search]\nconfidence = 2.0", "config.toml: [search]: confidence: expected at least 0 and at most 1, got 2.0"),
        ("[search]\nfusion = 'mean'", "config.toml: [search]: fusion: 'mean' is not valid"),
        ("[search]\nfilter = 'a=b'", "config.toml: [search]: filter: expected a list"),
        ("[search]\nimage = ['a.jpg']", "unknown key 'image'"),
        ("[common]\ntop = 1", "config.toml: [common]: unknown key 'top'"),
        ("[common]\nindex = 1", "config.toml: [common]: index: expected str, got 1"),
        ("[search", "config.toml: not valid TOML"),
    ],
)
def test_mistakes_name_the_file_and_the_nearest_key(
    own: Path, index: str, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write_text(text)
    assert run(["search", "dog", "--index", index]) == 1
    assert words in capsys.readouterr().err
    assert run(["config"]) == 1
    assert words in capsys.readouterr().err


def test_a_file_that_is_named_must_be_there(own: Path, index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "dog", "--index", index, "--config", "none.toml"]) == 1
    assert "none.toml: no such file" in capsys.readouterr().err


def test_it_is_shown(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config"]) == 0
    assert f"{own}: not there" in capsys.readouterr().out
    assert run(["config", "--path"]) == 0
    assert capsys.readouterr().out == f"{own}\n"
    own.write_text('[search]\ntop = 20\nfilter = ["a=b"]\n')
    assert run(["config"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(own), "[search] top = 20", '[search] filter = ["a=b"]']
    assert run(["config", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"file": str(own), "there": True, "settings": {"search": {"top": 20, "filter": ["a=b"]}}}


def test_the_example_holds_every_key_and_is_right_when_turned_on(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--example"]) == 0
    example = capsys.readouterr().out
    for name in TABLES:
        for setting in settings_of(function_of(name)):
            assert f"\n# {setting.key} = " in example
    own.write_text(example)
    assert run(["config"]) == 0
    lines = [line[2:] if " = " in line and line.startswith("# ") else line for line in example.splitlines()]
    own.write_text("\n".join(lines))
    assert run(["config"]) == 0
    assert "[search] top = 10" in capsys.readouterr().out


def test_what_is_done_once_or_is_secret_is_no_setting() -> None:
    keys = {setting.key for name in TABLES for setting in settings_of(function_of(name))}
    assert keys & {"import", "export", "delete", "token", "image", "config"} == set()
    assert {"top", "exclude", "port", "group-duplicates"} <= keys
