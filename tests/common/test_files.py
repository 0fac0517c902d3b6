from pathlib import Path

import pytest

from diptych.common.files import write_json, write_text, written_aside


def test_a_file_that_fails_midway_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    write_text(path, "old")

    def fail() -> None:
        with written_aside(path) as aside:
            aside.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_json_keeps_letters(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"model": "VSE∞"})
    assert "VSE∞" in (tmp_path / "a.json").read_text(encoding="utf-8")
