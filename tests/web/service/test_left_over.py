"""Uploads without an entry: put aside where it is certain that they are nobody else's, and nothing else touched."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from diptych.search.index import Index
from diptych.search.stores.store import Layout
from diptych.web.service.left_over import ASIDE, GRACE, KEPT, OWNERS, UploadsFolder

NAMES = [f"{digit * 32}.jpg" for digit in "abc"]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "i.db", None, layout=Layout(4), device="cpu") as made:
        yield made


@pytest.fixture
def uploads(index: Index, tmp_path: Path) -> UploadsFolder:
    """Three files that were added an age ago; the first has an entry."""
    folder = UploadsFolder(tmp_path / "i.uploads", index)
    folder.claim()
    for name in NAMES:
        written(folder.folder / name)
    enter(index, folder.folder / NAMES[0])
    return folder


def written(path: Path, age: float = 2 * GRACE) -> None:
    path.write_bytes(path.name.encode())
    os.utime(path, (time.time() - age,) * 2)


def enter(index: Index, *paths: Path) -> None:
    index.add_vectors([str(path) for path in paths], np.ones((len(paths), 4), np.float32))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != OWNERS)


def test_files_without_an_entry_are_put_aside_and_removed_after_a_month(uploads: UploadsFolder) -> None:
    assert uploads.tidy() == 2
    aside = uploads.folder / ASIDE
    assert names(uploads.folder) == NAMES[:1]
    assert names(aside) == NAMES[1:]
    assert (aside / NAMES[1]).read_bytes() == NAMES[1].encode()
    assert uploads.tidy(time.time() + KEPT - 60) == 0
    assert names(aside) == NAMES[1:]
    assert uploads.tidy(time.time() + KEPT + 60) == 0
    assert names(aside) == []
    assert names(uploads.folder) == NAMES[:1]


def test_what_has_an_entry_again_comes_back(uploads: UploadsFolder, index: Index) -> None:
    """As where an older state of the index was put back by mistake, and then the newer one."""
    uploads.tidy()
    enter(index, uploads.folder / NAMES[2])
    uploads.tidy(time.time() + KEPT + 60)
    assert names(uploads.folder) == [NAMES[0], NAMES[2]]
    assert (uploads.folder / NAMES[2]).read_bytes() == NAMES[2].encode()


def test_young_files_and_those_of_others_stay(uploads: UploadsFolder, tmp_path: Path) -> None:
    young = f"{'d' * 32}.png"
    written(uploads.folder / young, age=GRACE / 2)
    written(uploads.folder / "holiday.jpg")
    written(tmp_path / "elsewhere.jpg")
    link = uploads.folder / f"{'e' * 32}.jpg"
    link.symlink_to(tmp_path / "elsewhere.jpg")
    assert uploads.tidy() == 2
    assert names(uploads.folder) == sorted([NAMES[0], young, link.name, "holiday.jpg"])


def test_the_folder_of_another_index_is_not_touched(uploads: UploadsFolder, tmp_path: Path) -> None:
    """Another index may have entries of these files: one that was made again, or that shares the folder."""
    with Index.create(tmp_path / "other.db", None, layout=Layout(4), device="cpu") as other:
        theirs = UploadsFolder(uploads.folder, other)
        assert theirs.tidy() == 0
        theirs.claim()
        assert theirs.tidy() == 0
    assert uploads.tidy() == 0
    assert names(uploads.folder) == NAMES


@pytest.mark.parametrize("left", [None, "[", '"x"'])
def test_where_nobody_knows_whose_it_is_nothing_is_touched(uploads: UploadsFolder, left: str | None) -> None:
    (uploads.folder / OWNERS).unlink()
    if left is not None:
        (uploads.folder / OWNERS).write_text(left)
    assert uploads.tidy() == 0
    uploads.claim()
    assert uploads.tidy() == 0
    assert names(uploads.folder) == NAMES


def test_no_folder_is_made_by_looking(index: Index, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "i.uploads", ignore_errors=True)
    assert UploadsFolder(tmp_path / "i.uploads", index).tidy() == 0
    assert not (tmp_path / "i.uploads").exists()
