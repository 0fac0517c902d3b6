import os
from pathlib import Path

import pytest

from diptych.search.index import Index
from diptych.search.stores.store import Layout
from diptych.web.errors import NotFound
from diptych.web.service.folders import Folders, indexed_folders
from tests.encoders.pictures import picture


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """photos/a.png, photos/deep/b.png, photos-private/c.png and secret.png."""
    for name in ("photos/a.png", "photos/deep/b.png", "photos-private/c.png", "secret.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        picture().save(tmp_path / name)
    return tmp_path


def test_files_inside_are_found(place: Path) -> None:
    folders = Folders([str(place / "photos")])
    assert folders.resolve(str(place / "photos/deep/b.png")) == str(place / "photos/deep/b.png")
    assert folders.may_show(str(place / "photos/a.png"))


@pytest.mark.parametrize(
    "key",
    [
        "secret.png",
        "photos/../secret.png",
        "photos/deep/../../secret.png",
        "photos-private/c.png",
        "photos",
        "photos/none.png",
        "photos/a.png\x00.jpg",
    ],
)
def test_nothing_else_is(place: Path, key: str) -> None:
    with pytest.raises(NotFound):
        Folders([str(place / "photos")]).resolve(f"{place}/{key}")


@pytest.mark.parametrize("key", ["", "a.png", "../secret.png", "file:///etc/passwd", "~/a.png"])
def test_keys_that_are_no_paths_are_not_looked_for(place: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.chdir(place / "photos")
    with pytest.raises(NotFound):
        Folders([str(place / "photos")]).resolve(key)


def test_links_out_of_the_folder_are_refused(place: Path) -> None:
    folders = Folders([str(place / "photos")])
    (place / "photos/out.png").symlink_to(place / "secret.png")
    (place / "photos/folder").symlink_to(place / "photos-private")
    (place / "photos/in.png").symlink_to(place / "photos/a.png")
    for name in ("out.png", "folder/c.png"):
        with pytest.raises(NotFound):
            folders.resolve(str(place / "photos" / name))
    assert folders.resolve(str(place / "photos/in.png")) == str(place / "photos/a.png")


def test_a_folder_that_is_a_link_itself_was_meant(place: Path) -> None:
    (place / "link").symlink_to(place / "photos")
    folders = Folders([str(place / "link")])
    assert folders.resolve(str(place / "link/a.png")) == str(place / "photos/a.png")


def test_a_single_file_is_no_folder(place: Path) -> None:
    folders = Folders([str(place / "secret.png")])
    assert folders.resolve(str(place / "secret.png")) == str(place / "secret.png")
    with pytest.raises(NotFound):
        folders.resolve(str(place / "photos/a.png"))


def test_parts_of_archives_stand_for_their_file(place: Path) -> None:
    (place / "photos/x.tar").write_bytes(b"")
    (place / "out.tar").write_bytes(b"")
    folders = Folders([str(place / "photos")])
    assert folders.resolve(f"{place}/photos/x.tar#../../secret.png") == str(place / "photos/x.tar")
    with pytest.raises(NotFound):
        folders.resolve(f"{place}/out.tar#photos/a.png")


def test_paths_are_shown_from_the_folder(place: Path) -> None:
    folders = Folders([str(place / "photos"), str(place / "secret.png")])
    shown = {
        f"{place}/photos/deep/b.png": "deep/b.png",
        f"{place}/photos/x.tar#deep/b.png": "x.tar#deep/b.png",
        f"{place}/secret.png": "secret.png",
        f"{place}/photos-private/c.png": "c.png",
        "added/name": "added/name",
    }
    assert {key: folders.shown(key) for key in shown} == shown


def test_an_index_that_does_not_remember_has_its_entries_folders(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i.db", None, layout=Layout(2)) as index:
        index.add_vectors(["/a/b/1.png", "/a/c/d/2.png", "relative.png"], [[1, 0], [0, 1], [1, 1]])  # type: ignore[arg-type]
        assert indexed_folders(index).roots == ["/a/b", "/a/c/d"]
        assert indexed_folders(index, ["/more"]).roots == ["/a/b", "/a/c/d", "/more"]
        assert not os.path.exists("/a/b")
