"""Bytes that are no longer what was written: seen when they are read, with the entry's name."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.stores import sqlite_vectors
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.search.stores.store import Layout
from tests.search.stores.store_cases import entries, entry, random_vectors

LAYOUT = Layout(12)
QUERY = random_vectors(np.random.default_rng(8), 1, 1, 12)
MADE = entries(40, LAYOUT)
# The first bytes of a version 2 file's tables, which had no checksums.
OLD_TABLES = (
    "ALTER TABLE vectors DROP COLUMN checksum",
    "ALTER TABLE locals DROP COLUMN checksum",
    "PRAGMA user_version = 2",
)


@pytest.fixture(params=["new", "old"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store of forty entries, as it is made now and as it was made before there were checksums."""
    path = tmp_path / "index.db"
    store = SqliteStore(path, LAYOUT)
    store.add(MADE)
    store.close()
    if request.param == "old":
        change(path, *OLD_TABLES)
    return path


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def flip(path: Path, number: int, place: int = 3, table: str = "vectors") -> None:
    """Turn over a bit of an exponent within an entry's numbers."""
    db = sqlite3.connect(path)
    data = bytearray(db.execute(f"SELECT data FROM {table} WHERE entry = ?", (number,)).fetchone()[0])
    data[place] ^= 0x42
    db.execute(f"UPDATE {table} SET data = ? WHERE entry = ?", (bytes(data), number))
    db.commit()
    db.close()


def test_a_vector_with_a_flipped_bit_is_named_and_never_searched(path: Path) -> None:
    flip(path, 5)
    store = SqliteStore(path)
    for ask in (
        lambda: store.search(QUERY, 3),
        lambda: store.get([MADE[4].key]),
        lambda: store.background(40),
    ):
        with pytest.raises(DiptychError, match=r"index\.db: the file is damaged: .*" + MADE[4].key):
            ask()
    assert store.get([MADE[3].key])[0] is not None
    assert list(store.damaged()) == [MADE[4].key]
    store.delete([MADE[4].key])
    assert len(store.search(QUERY, 50).hits[0]) == 39
    assert list(store.damaged()) == []
    store.close()


def test_files_without_checksums_are_still_written(path: Path) -> None:
    store = SqliteStore(path)
    new = random_vectors(np.random.default_rng(1), 1, 12)
    store.add([entry("new", new, locals=np.ones((3, 5), np.float16))])
    found = store.get(["new"])[0]
    assert found is not None
    assert np.array_equal(found.vectors, new)
    assert found.locals is not None
    assert found.locals.shape == (3, 5)
    assert list(store.damaged()) == []
    store.close()


def test_small_changes_are_seen_too(tmp_path: Path) -> None:
    """A checksum sees what a length does not, in vectors and in local features."""
    path = tmp_path / "index.db"
    store = SqliteStore(path, LAYOUT)
    store.add([entry(str(i), MADE[i].vectors, locals=np.ones((3, 5), np.float16)) for i in range(4)])
    flip(path, 1, place=0)
    flip(path, 3, place=0, table="locals")
    assert list(store.damaged()) == ["0", "2"]
    with pytest.raises(DiptychError, match="damaged: the local features of '2'"):
        store.get(["2"])
    assert store.get(["2"], locals=False)[0] is not None
    store.close()


@pytest.mark.parametrize("there", [np.nan, 758.0, np.inf])
def test_a_damaged_cache_is_done_without(path: Path, monkeypatch: pytest.MonkeyPatch, there: float) -> None:
    monkeypatch.setattr(sqlite_vectors, "CACHE_FROM", 1)
    monkeypatch.setattr(sqlite_vectors, "SPOT_CHECKS", 2)
    store = SqliteStore(path)
    wanted = store.search(QUERY, 10).hits
    store.prepare()
    store.close()
    cache = path.with_name("index.db.vectors")
    data = bytearray(cache.read_bytes())
    data[4096 + 20 * 48 : 4096 + 20 * 48 + 4] = np.float32(there * np.sign(QUERY[0, 0, 0])).tobytes()
    cache.write_bytes(data)
    store = SqliteStore(path)
    assert store.search(QUERY, 10).hits == wanted
    assert not cache.exists()
    store.close()


def test_a_check_sees_the_cache_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_vectors, "CACHE_FROM", 1)
    store = SqliteStore(path)
    store.prepare()
    cache = path.with_name("index.db.vectors")
    assert list(store.damaged()) == []
    assert cache.exists()
    data = bytearray(cache.read_bytes())
    data[4096 + 20 * 48] ^= 1
    cache.write_bytes(data)
    assert list(store.damaged()) == []
    assert not cache.exists()  # it is made again
    store.close()


@pytest.mark.parametrize("change", ["dim = x'ff00'", "set_size = -1", "similarity = 'x'", "alpha = 'x'"])
def test_what_a_store_was_made_for_is_told_where_it_is_damaged(tmp_path: Path, change: str) -> None:
    SqliteStore(tmp_path / "i.db", Layout(4)).close()
    with closing(sqlite3.connect(tmp_path / "i.db")) as db:
        db.execute(f"UPDATE store SET {change}")
        db.commit()
    with pytest.raises(DiptychError, match=r"i\.db: damaged: what it was made for cannot be read"):
        SqliteStore(tmp_path / "i.db")
