"""A store's file that is made again, put back, overwritten or deleted while others have it open."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.stores import sqlite_vectors
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.search.stores.store import Entry, Layout
from tests.search.stores.store_cases import entries, random_vectors, slow_search

LAYOUT = Layout(12)
QUERY = random_vectors(np.random.default_rng(8), 1, 1, 12)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """An open store of 40 entries that was searched already."""
    made_at(path, entries(40, LAYOUT), model="a").close()
    opened = SqliteStore(path)
    assert_finds(opened, entries(40, LAYOUT))
    yield opened
    opened.close()


def made_at(path: Path, contents: list[Entry], layout: Layout = LAYOUT, model: str | None = None) -> SqliteStore:
    store = SqliteStore(path, layout)
    if model is not None:
        store.set_properties({"model": model, "locals": ""})
    store.add(contents)
    return store


def remove(path: Path, beside: bool = True) -> None:
    path.unlink()
    if beside:
        for suffix in ("-wal", "-shm", ".vectors", ".approximate"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def assert_finds(store: SqliteStore, contents: list[Entry]) -> None:
    """Names and scores are of one and the same file."""
    hits = store.search(QUERY, len(contents) + 5).hits[0]
    wanted = slow_search(contents, QUERY[0], len(contents), LAYOUT, lambda e: True)
    assert [hit.key for hit in hits] == [key for key, _ in wanted]
    assert [hit.score for hit in hits] == pytest.approx([score for _, score in wanted], abs=1e-5)
    assert store.count() == len(contents)


@pytest.mark.parametrize("count", [40, 10, 90])
@pytest.mark.parametrize("beside", [True, False], ids=["with what lies beside", "alone"])
def test_a_file_made_again_is_opened_again(store: SqliteStore, path: Path, count: int, beside: bool) -> None:
    remove(path, beside)
    new = entries(count, LAYOUT, seed=1)
    made_at(path, new, model="a").close()
    assert_finds(store, new)
    found = store.get([new[0].key])[0]
    assert found is not None
    assert np.array_equal(found.vectors, new[0].vectors)


def test_every_thread_sees_the_new_file(store: SqliteStore, path: Path) -> None:
    """Also a thread whose connection is older than the change."""
    go, seen = threading.Event(), list[int]()

    def look() -> None:
        seen.append(store.count())
        go.wait()
        seen.append(store.count())

    thread = threading.Thread(target=look)
    thread.start()
    while not seen:
        pass
    remove(path)
    made_at(path, entries(7, LAYOUT, seed=1), model="a").close()
    assert store.count() == 7
    go.set()
    thread.join()
    assert seen == [40, 7]


def test_a_look_that_has_begun_ends_with_the_file_it_began_with(store: SqliteStore, path: Path) -> None:
    with store._live.looking() as (db, vectors):
        remove(path)
        made_at(path, entries(7, LAYOUT, seed=1), model="a").close()
        assert db.execute("SELECT count(*) FROM entries").fetchone()[0] == len(vectors) == 40
    assert store.count() == 7


def test_a_deleted_file_is_an_error_and_stays_deleted(store: SqliteStore, path: Path) -> None:
    remove(path)
    errors: list[str] = []

    def ask() -> None:
        try:
            store.search(QUERY, 3)
        except DiptychError as error:
            errors.append(str(error))

    ask()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    with pytest.raises(DiptychError, match="no such index"):
        store.add(entries(3, LAYOUT, seed=2))
    assert len(errors) == 2
    assert all("index.db: no such index any more" in error for error in errors)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("layout", "model", "said"),
    [(Layout(8), "a", "made for"), (LAYOUT, "b", "made with 'b'"), (LAYOUT, None, "never filled")],
)
def test_a_file_made_again_for_something_else_is_an_error(
    store: SqliteStore, path: Path, layout: Layout, model: str | None, said: str
) -> None:
    remove(path)
    made_at(path, entries(5, layout, seed=1), layout, model).close()
    for _ in range(2):
        with pytest.raises(DiptychError, match=rf"index\.db: .*replaced.*{said}"):
            store.search(QUERY, 3)
    remove(path)
    made_at(path, entries(5, LAYOUT, seed=1), model="a").close()
    assert_finds(store, entries(5, LAYOUT, seed=1))


def test_an_older_state_put_back(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    made_at(tmp_path / "x", []).close()
    shutil.copy(path, backup)
    store.add(entries(80, LAYOUT)[40:])
    assert_finds(store, entries(80, LAYOUT))
    remove(path)
    shutil.copy(backup, path)
    assert_finds(store, entries(40, LAYOUT))


def test_a_file_written_over_in_place(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    new = entries(25, LAYOUT, seed=1)
    made_at(tmp_path / "new", new, model="a").close()
    before = os.stat(path).st_ino
    path.write_bytes((tmp_path / "new").read_bytes())
    assert os.stat(path).st_ino == before
    assert_finds(store, new)


def test_the_caches_beside_are_those_of_the_new_file(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_vectors, "CACHE_FROM", 1)
    store.prepare()
    assert path.with_name("index.db.vectors").exists()
    remove(path, beside=False)
    made_at(path, entries(40, LAYOUT, seed=1), model="a").close()
    assert_finds(store, entries(40, LAYOUT, seed=1))
    store.prepare()
    assert_finds(store, entries(40, LAYOUT, seed=1))


def test_what_a_new_file_holds_is_not_mixed_with_an_old_log(path: Path) -> None:
    """A write-ahead log that a deleted file left behind is not taken for the new file's."""
    store = made_at(path, entries(40, LAYOUT))
    log = path.with_name("index.db-wal")
    left = log.read_bytes()
    assert left
    store.close()
    remove(path)
    log.write_bytes(left)
    new = made_at(path, [])
    assert new.count() == 0
    new.add(entries(3, LAYOUT, seed=1))
    assert_finds(new, entries(3, LAYOUT, seed=1))
    new.close()
