import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.data.pictures import PictureBytes, PictureFile, PicturePart
from diptych.data.read import read_collection
from diptych.search.filling.walk import (
    Choice,
    FoundFile,
    content_digest,
    file_kind,
    roots_of,
    walk,
)
from diptych.search.stores.address import open_store
from diptych.search.stores.store import Layout


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def names(root: Path, choice: Choice | None = None) -> list[str]:
    return [f.path[len(str(root)) + 1 :] for f in walk(str(root), choice or Choice(), [], [])]


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    (tmp_path / "b.png").symlink_to("/dev/zero")
    for name in ("a.jpg", "b.png"):
        with pytest.raises(DiptychError, match=rf"{name}: neither a plain file nor a folder"):
            list(walk(str(tmp_path / name), Choice(), [], []))
        with pytest.raises(DiptychError, match=rf"{name}: not a plain file"):
            PictureFile(tmp_path / name)()
        with pytest.raises(DiptychError, match=rf"{name}: not a plain file"):
            open_store(tmp_path / name, Layout(4))
        with pytest.raises(DiptychError, match=rf"{name}: neither a plain file nor a folder"):
            read_collection(tmp_path / name)
        assert not (tmp_path / name).is_file()
    assert list(walk(str(tmp_path), Choice(), [], [])) == []


def test_hidden_excluded_and_other_files_are_left_out(tmp_path: Path) -> None:
    for name in (
        "b.jpg", "a.PNG", "notes.txt", "sub/c.webp", "sub/d.doc", ".hidden/e.jpg", ".f.jpg", "@eaDir/g.jpg",
        "node_modules/h.png", "skip/i.jpg", "sub/skip.jpg", "x.tar",
    ):  # fmt: skip
        touch(tmp_path / name)
    assert names(tmp_path) == ["a.PNG", "b.jpg", "skip/i.jpg", "sub/c.webp", "sub/skip.jpg"]
    assert names(tmp_path, Choice(exclude=("skip", "sub/s*"))) == ["a.PNG", "b.jpg", "sub/c.webp"]
    assert names(tmp_path, Choice("sentences")) == ["notes.txt"]
    assert ".f.jpg" in names(tmp_path, Choice(hidden=True))
    assert "x.tar" in names(tmp_path, Choice("both", archives=True))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.sampled_from("a-./ #!0Z"), min_size=1, max_size=6), max_size=12, unique=True))
def test_files_come_in_the_order_of_their_keys(tmp_path_factory: pytest.TempPathFactory, paths: list[str]) -> None:
    root = tmp_path_factory.mktemp("walk")
    for i, path in enumerate(paths):
        parts = [p for p in path.split("/") if p.strip(". ")]
        if parts:
            try:
                touch(root.joinpath(*parts).with_name(parts[-1] + (".jpg" if i % 2 else ".txt")))
            except OSError:
                continue  # a file is where the folder should be
    found = list(walk(str(root), Choice("both", hidden=True), [], []))
    assert [f.order for f in found] == sorted(f.order for f in found)
    assert len({f.path for f in found}) == len(found)


def test_links_to_files_are_followed_and_links_to_folders_are_not(tmp_path: Path) -> None:
    touch(tmp_path / "real" / "a.jpg")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "file.jpg").symlink_to(tmp_path / "real" / "a.jpg")
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "nothing")
    assert names(tmp_path) == ["file.jpg", "real/a.jpg"]


def test_names_that_cannot_be_keys_are_told(tmp_path: Path) -> None:
    touch(tmp_path / "list.txt#1" / "a.jpg")
    with open(os.fsencode(tmp_path) + b"/\xff.jpg", "wb"):
        pass
    problems: list[DataProblem] = []
    assert list(walk(str(tmp_path), Choice(), problems, [])) == []
    assert sorted(p.what.split(";")[0] for p in problems) == [
        "the name is not valid Unicode",
        "the path looks like a part of another file",
    ]
    assert all(str(p).isprintable() for p in problems)


def close(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let one folder be unreadable, to root too."""
    scandir = os.scandir

    def denied(path: str) -> object:
        if path == str(folder):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr("diptych.search.filling.walk.os.scandir", denied)


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "closed" / "a.jpg")
    touch(tmp_path / "open" / "a.jpg")
    close(monkeypatch, tmp_path / "closed")
    problems: list[DataProblem] = []
    unreadable: list[str] = []
    assert [f.path for f in walk(str(tmp_path), Choice(), problems, unreadable)] == [str(tmp_path / "open/a.jpg")]
    assert unreadable == [f"{tmp_path}/closed/"]
    assert str(problems[0]) == f"{tmp_path}/closed: the folder cannot be read: Permission denied"


def test_a_file_by_itself(tmp_path: Path) -> None:
    path = touch(tmp_path / "x.tar")
    assert [f.kind for f in walk(str(path), Choice(), [], [])] == ["archive"]
    with pytest.raises(DiptychError, match="neither a picture"):
        list(walk(str(touch(tmp_path / "x.doc")), Choice(), [], []))


def test_roots_inside_others_count_once(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "b" / "c.jpg")
    touch(tmp_path / "ab" / "c.jpg")
    roots = roots_of([tmp_path / "a" / "b", tmp_path / "ab", tmp_path / "a", tmp_path / "a"])
    assert roots == [str(tmp_path / "a"), str(tmp_path / "ab")]
    with pytest.raises(DiptychError, match="no such file or folder"):
        roots_of([tmp_path / "none"])


def test_the_same_bytes_have_the_same_digest_wherever_they_are(tmp_path: Path) -> None:
    data = os.urandom(3000)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(b"12345" + data + b"6")
    digests = {
        content_digest(PictureFile(tmp_path / "a")),
        content_digest(PicturePart(tmp_path / "b", "m", 5, 3000)),
        content_digest(PictureBytes(data, "memory")),
    }
    assert len(digests) == 1
    assert content_digest("two dogs") != content_digest("two dog")


def test_files_are_told_apart_by_their_names() -> None:
    assert [file_kind(n) for n in ("A.JPG", "a.heic", "a.Jsonl", "a.tgz", "a.parquet", "a.py")] == [
        "picture", "heic", "sentences", "archive", "archive", None,
    ]  # fmt: skip
    assert FoundFile("/a.txt", "sentences", 1, 1).order == "/a.txt#"
