import os
import subprocess
import sys
from pathlib import Path

import pytest

from diptych.common.files import remove_left_over, reserve, write_json, write_text, written_aside


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


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    own, other = tmp_path / f".a[1].db.{os.getpid()}.part", tmp_path / f".b.db.{gone.pid}.part"
    left = tmp_path / f".a[1].db.{gone.pid}.part"
    for file in (own, other, left, tmp_path / ".a[1].db.text.part"):
        file.touch()
    remove_left_over(tmp_path / "a[1].db")
    assert not left.exists()
    assert own.exists()  # somebody is still writing it
    assert other.exists()
    assert len(list(tmp_path.iterdir())) == 3


def test_room_is_there_before_it_is_needed(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        reserve(file.fileno(), 5000)
        assert os.fstat(file.fileno()).st_size == 5000
