"""What is particular to a store in one file: errors, a full disk, kills, and the caches beside it."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.stores import sqlite_making, sqlite_vectors
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.search.stores.store import Condition, Layout
from tests.search.stores.store_cases import assert_same_entry, entries, entry, keys_of, random_vectors, slow_search

LAYOUT = Layout(12)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.diptych"


def test_a_file_that_is_not_ours(path: Path) -> None:
    path.write_bytes(b"GIF89a" + b"\0" * 5000)
    with pytest.raises(DiptychError, match="not an SQLite file"):
        SqliteStore(path, LAYOUT)
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE other (x)")
    db.close()
    with pytest.raises(DiptychError, match="but not an index"):
        SqliteStore(path, LAYOUT)
    path.unlink()
    path.mkdir()
    with pytest.raises(DiptychError, match="a folder"):
        SqliteStore(path, LAYOUT)


def test_an_empty_file_is_made_into_a_store(path: Path) -> None:
    path.touch()
    with pytest.raises(DiptychError, match="not an SQLite file"):
        SqliteStore(path)
    with SqliteStoreClosing(path, LAYOUT) as store:
        assert store.count() == 0
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_from_the_future(path: Path) -> None:
    SqliteStore(path, LAYOUT).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(DiptychError, match="newer Diptych"):
        SqliteStore(path)


def test_a_damaged_file(path: Path) -> None:
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(entries(400, LAYOUT))
    data = bytearray(path.read_bytes())
    middle = slice(2 * sqlite_making.PAGE_SIZE, len(data))
    data[middle] = b"\xaa" * len(data[middle])
    path.write_bytes(data)
    with pytest.raises(DiptychError, match=r"index\.diptych.*damaged"), SqliteStoreClosing(path) as store:
        store.search(random_vectors(np.random.default_rng(0), 1, 1, 12), 5)


def test_a_vector_of_the_wrong_length(path: Path) -> None:
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(entries(4, LAYOUT))
        db = sqlite3.connect(path)
        db.execute("UPDATE vectors SET data = x'0011' WHERE entry = 2")
        db.commit()
        db.close()
        with pytest.raises(DiptychError, match="damaged"):
            store.search(random_vectors(np.random.default_rng(0), 1, 1, 12), 5)


def test_a_locked_file(path: Path) -> None:
    with SqliteStoreClosing(path, LAYOUT, patience=0.05) as store:
        store.add(entries(5, LAYOUT))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DiptychError, match="another process has been writing"):
            store.add(entries(3, LAYOUT, seed=1))
        assert store.count() == 5  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        store.add(entries(6, LAYOUT, seed=1))
        assert store.count() == 6


def test_the_tables_can_be_read_with_any_tool(path: Path) -> None:
    made = entries(3, LAYOUT)
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(made)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA application_id").fetchone()[0] == int.from_bytes(b"DIPT")
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    rows = db.execute("SELECT key, data FROM entries JOIN vectors ON entry = id ORDER BY id").fetchall()
    assert [(k, np.frombuffer(d, "<f4").tolist()) for k, d in rows] == [(e.key, e.vectors[0].tolist()) for e in made]
    # An entry deleted by hand is gone from searches too.
    with SqliteStoreClosing(path) as store:
        store.search(made[0].vectors[None], 1)
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("DELETE FROM entries WHERE key = ?", (made[0].key,))
        db.commit()
        assert {h.key for h in store.search(made[0].vectors[None], 3).hits[0]} == {made[1].key, made[2].key}
    assert db.execute("SELECT count(*) FROM vectors").fetchone()[0] == 2
    db.close()


def test_a_full_database(path: Path) -> None:
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(entries(50, LAYOUT))
        db = store._file.connection()
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 2}")
        many = [entry(f"new/{i}", e.vectors) for i, e in enumerate(entries(3000, LAYOUT, seed=1))]
        with pytest.raises(DiptychError, match="disk is full; nothing"):
            store.add(many)
        assert store.count() == 50
        db.execute("PRAGMA max_page_count = 1000000")
        store.add(many)
        assert store.count() == 3050


FULL_DISK = """
import resource, sys, numpy as np
from diptych.common.errors import DiptychError
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.search.stores.store import Layout
from tests.search.stores.store_cases import entries, entry
layout = Layout(12)
store = SqliteStore(sys.argv[1], layout)
store.add(entries(50, layout))
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
many = [entry(f"new/{i}", e.vectors) for i, e in enumerate(entries(6000, layout, seed=1))]
try:
    store.add(many)
    print("no error")
except DiptychError as error:
    print(str(error).split(": ", 1)[1], "|", store.count(), len(store.search(many[0].vectors[None], 60).hits[0]))
"""


def test_a_full_disk(path: Path) -> None:
    """A file that cannot grow: the change is not kept, the store can be read, and later it can be written again."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    result = run(FULL_DISK, str(path))
    said, counts = result.split("|")
    assert "nothing of this change was kept" in said
    assert counts.split() == ["50", "50"]
    with SqliteStoreClosing(path) as store:
        assert keys_of(store) == sorted(e.key for e in entries(50, LAYOUT))
        store.add(entries(60, LAYOUT))
        assert store.count() == 60


KILLED = """
import sys
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.search.stores.store import Layout
from tests.search.stores.store_cases import entries, entry
layout = Layout(12)
store = SqliteStore(sys.argv[1], layout)
vectors = [e.vectors for e in entries(40, layout)]
print("go", flush=True)
for i in range(100000):
    store.add([entry(f"{i}/{j}", vectors[j]) for j in range(40)])
    store.delete([f"{i - 5}/{j}" for j in range(40)])
    if i == 20:
        print("well on", flush=True)
"""


def test_kill_at_any_moment(path: Path) -> None:
    """Of each add all or nothing is there, and the next process goes on."""
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, env=with_path())
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with SqliteStoreClosing(path) as store:
            counts: dict[str, int] = {}
            for key in keys_of(store):
                counts[key.split("/")[0]] = counts.get(key.split("/")[0], 0) + 1
            assert set(counts.values()) == {40}
            assert store.count() == len(store.search(random_vectors(np.random.default_rng(0), 1, 1, 12), 9999).hits[0])


CREATORS = """
import sys
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.search.stores.store import Layout
from tests.search.stores.store_cases import entries, entry
layout, number = Layout(12), sys.argv[2]
sys.stdin.readline()
store = SqliteStore(sys.argv[1], layout)
for i, e in enumerate(entries(30, layout, seed=int(number))):
    store.add([entry(f"{number}/{i}", e.vectors)])
"""


def test_several_writers_take_turns_from_the_first_moment(path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", CREATORS, str(path), str(i)], stdin=subprocess.PIPE, env=with_path())
        for i in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [(p.communicate(timeout=120), p.returncode)[1] for p in processes] == [0, 0, 0]
    with SqliteStoreClosing(path) as store:
        assert store.count() == 90


def test_every_thread_has_its_connection_and_leaves_none(path: Path) -> None:
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(entries(10, LAYOUT))
        for _ in range(20):
            thread = threading.Thread(target=store.count)
            thread.start()
            thread.join()
        assert len(store._file._handles) <= 2


def test_a_child_process_does_not_use_its_parents_connection(path: Path) -> None:
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(entries(10, LAYOUT))
        own = store._file.connection()
        child = os.fork()
        if child == 0:
            try:
                other = store._file.connection()
                os._exit(0 if other is not own and store.count() == 10 else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.count() == 10


def test_a_folder_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(entries(10, LAYOUT))
    monkeypatch.setattr("os.access", lambda *_: False)
    with SqliteStoreClosing(path) as store:
        assert store.count() == 10
        assert not path.with_name(path.name + "-shm").exists()
        with pytest.raises(DiptychError, match="cannot be written"):
            store.delete(["x"])


# The caches beside the file.


@pytest.fixture
def always_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_vectors, "CACHE_FROM", 1)


def assert_finds_everything(store: SqliteStore, made: list) -> None:
    query = random_vectors(np.random.default_rng(8), 1, 1, 12)
    wanted = slow_search(made, query[0], len(made), LAYOUT, lambda e: True)
    assert [h.key for h in store.search(query, len(made) + 5).hits[0]] == [key for key, _ in wanted]


@pytest.mark.usefixtures("always_cached")
def test_the_vectors_are_mapped_and_what_is_new_is_read(path: Path) -> None:
    made = entries(200, LAYOUT)
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(made[:190])
        store.prepare()
        store.add(made[190:])
        store.delete([made[0].key, made[195].key])
        store.add([entry(made[1].key, made[2].vectors)])
    left = [entry(made[1].key, made[2].vectors), *made[2:195], *made[196:]]
    with SqliteStoreClosing(path) as store:
        assert_finds_everything(store, left)
        moment = store._live._moment
        assert moment is not None
        assert [(isinstance(p, np.memmap), len(p)) for p in moment.vectors.parts] == [(True, 190), (False, 10)]
        assert (
            store.search(made[100].vectors[None], 1, [Condition("path", "=", made[100].key)]).hits[0][0].score > 0.999
        )


DAMAGES: list[Callable[[Path], object]] = [
    lambda p: p.unlink(),
    lambda p: p.write_bytes(b""),
    lambda p: p.write_bytes(b"\0" * 9000),
    lambda p: p.write_bytes(p.read_bytes()[:-1]),
    lambda p: p.write_bytes(p.read_bytes()[:4096] + b"\0" * (len(p.read_bytes()) - 4096)),
    lambda p: p.write_bytes(p.read_bytes().replace(b'"count": 100', b'"count": 101')),
    lambda p: p.write_bytes(b"[]" + p.read_bytes()[2:]),
]


@pytest.mark.usefixtures("always_cached")
@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_a_cache_that_is_missing_or_damaged_is_done_without(path: Path, damage: Callable[[Path], object]) -> None:
    made = entries(100, LAYOUT)
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(made)
        store.prepare()
    cache = path.with_name(path.name + ".vectors")
    damage(cache)
    with SqliteStoreClosing(path) as store:
        assert_finds_everything(store, made)
        store.prepare()
        assert cache.exists()
    with SqliteStoreClosing(path) as store:
        assert_finds_everything(store, made)


@pytest.mark.usefixtures("always_cached")
def test_the_cache_of_another_store_is_not_used(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for place, seed in ((path, 0), (other, 1)):
        with SqliteStoreClosing(place, LAYOUT) as store:
            store.add(entries(100, LAYOUT, seed))
            store.prepare()
    os.replace(tmp_path / "other.vectors", path.with_name(path.name + ".vectors"))
    with SqliteStoreClosing(path) as store:
        assert_finds_everything(store, entries(100, LAYOUT))


@pytest.mark.usefixtures("always_cached")
def test_the_cache_of_a_later_state_is_not_used(path: Path) -> None:
    made = entries(100, LAYOUT)
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(made[:50])
    backup = path.read_bytes()
    with SqliteStoreClosing(path) as store:
        store.add(made[50:])
        store.prepare()
    path.write_bytes(backup)
    with SqliteStoreClosing(path) as store:
        assert_finds_everything(store, made[:50])
        # New entries take the numbers that were given out before the file was put back.
        store.add([entry(f"{e.key} again", e.vectors) for e in entries(50, LAYOUT, seed=3)])
    with SqliteStoreClosing(path) as store:
        assert store.search(made[99].vectors[None], 200).hits[0][-1].key != made[99].key
        assert len(store.search(made[99].vectors[None], 200).hits[0]) == 100
        assert made[99].key not in {h.key for h in store.search(made[99].vectors[None], 200).hits[0]}


@pytest.mark.usefixtures("always_cached")
def test_a_reader_goes_on_when_the_list_of_deletions_was_cut(path: Path) -> None:
    made = entries(100, LAYOUT)
    with SqliteStoreClosing(path, LAYOUT) as writer, SqliteStoreClosing(path) as reader:
        writer.add(made)
        assert_finds_everything(reader, made)
        writer.delete([e.key for e in made[:60]])
        writer.prepare()
        assert writer._file.connection().execute("SELECT count(*) FROM deletions").fetchone()[0] == 0
        assert_finds_everything(reader, made[60:])
        assert_finds_everything(writer, made[60:])


@pytest.mark.usefixtures("always_cached")
def test_a_reader_lets_go_of_memory_when_a_new_cache_holds_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_vectors, "MOST_IN_MEMORY", 20)
    made = entries(100, LAYOUT)
    with SqliteStoreClosing(path, LAYOUT) as writer, SqliteStoreClosing(path) as reader:
        writer.add(made[:90])
        assert_finds_everything(reader, made[:90])
        writer.prepare()
        writer.add(made[90:])
        assert_finds_everything(reader, made)
        moment = reader._live._moment
        assert moment is not None
        assert [isinstance(p, np.memmap) for p in moment.vectors.parts] == [True, False]


def test_preparing_writes_only_what_has_drifted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_vectors, "CACHE_FROM", 50)
    cache = path.with_name(path.name + ".vectors")
    made = entries(100, LAYOUT)
    with SqliteStoreClosing(path, LAYOUT) as store:
        store.add(made[:40])
        store.prepare()
        assert not cache.exists()
        store.add(made[40:90])
        store.prepare()
        first = cache.stat().st_ino, cache.stat().st_mtime_ns
        store.add(made[90:95])
        store.prepare()
        assert (cache.stat().st_ino, cache.stat().st_mtime_ns) == first
        store.add(made[95:])
        store.delete([e.key for e in made[:10]])
        store.prepare()
        assert (cache.stat().st_ino, cache.stat().st_mtime_ns) != first
        assert_finds_everything(store, made[10:])


# Beyond the exact range.


def clustered(count: int, dim: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((40, dim))
    vectors = centres[rng.integers(0, 40, count)] + 0.3 * rng.standard_normal((count, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("set_size", [1, 2])
def test_an_approximate_index_beyond_the_exact_range(path: Path, set_size: int) -> None:
    layout = Layout(16, set_size)
    vectors = clustered(3000 * set_size, 16).reshape(3000, set_size, 16)
    made = [entry(f"{i % 7}/{i}", v, metadata={"n": i}) for i, v in enumerate(vectors)]
    with SqliteStoreClosing(path, layout, exact_up_to=2000) as store:
        store.add(made[:2800])
        assert store.search(vectors[:2], 5).exact  # until it is prepared
        store.prepare()
        assert store.recall is not None
        assert store.recall >= 0.95
        store.add(made[2800:])
        store.delete([made[7].key])
        result = store.search(vectors[[5, 2900, 7]], 10)
        assert not result.exact
        assert result.recall == store.recall
        assert [hits[0].key for hits in result.hits[:2]] == [made[5].key, made[2900].key]
        assert made[7].key not in {h.key for h in result.hits[2]}
        # Scores are exact ones.
        for query, hits in zip(vectors[[5, 2900, 7]], result.hits, strict=True):
            by_key = {h.key: h.score for h in hits}
            slow = slow_search([e for e in made if e.key in by_key], query, 10, layout, lambda e: True)
            assert [by_key[k] for k, _ in slow] == pytest.approx([s for _, s in slow], abs=2e-6)
        # Filters are always exact.
        where = [Condition("path", "matches", "3/*"), Condition("n", ">", 100)]
        filtered = store.search(vectors[5][None], 10, where)
        assert filtered.exact
        slow = slow_search(
            made,
            vectors[5],
            10,
            layout,
            lambda e: e.key.startswith("3/") and e.metadata["n"] > 100,  # type: ignore[operator]
        )
        assert [h.key for h in filtered.hits[0]] == [k for k, _ in slow]
        found = store.search(vectors[:60], 10)
    with SqliteStoreClosing(path, exact_up_to=2000) as store:
        assert store.search(vectors[:60], 10) == found
    with SqliteStoreClosing(path) as store:
        exact = store.search(vectors[:60], 10)
        assert exact.exact
    pairs = zip(exact.hits, found.hits, strict=True)
    share = np.mean([len({h.key for h in a} & {h.key for h in b}) / 10 for a, b in pairs])
    assert share > 0.9


def test_a_recall_below_the_floor_keeps_searches_exact(path: Path) -> None:
    vectors = random_vectors(np.random.default_rng(0), 3000, 1, 64)  # no structure at all
    with SqliteStoreClosing(path, Layout(64), exact_up_to=2000, recall_floor=0.999) as store:
        store.add([entry(str(i), v) for i, v in enumerate(vectors)])
        store.prepare()
        written = path.with_name(path.name + ".approximate").stat().st_mtime_ns
        assert store.recall is None
        assert store.search(vectors[:1], 5).exact
        store.prepare()  # is not tried again until much has changed
        assert path.with_name(path.name + ".approximate").stat().st_mtime_ns == written


def test_an_approximate_index_that_is_damaged_or_not_needed(path: Path) -> None:
    vectors = clustered(1500, 16)[:, None]
    approximate = path.with_name(path.name + ".approximate")
    with SqliteStoreClosing(path, Layout(16), exact_up_to=1000) as store:
        store.add([entry(str(i), v) for i, v in enumerate(vectors)])
        store.prepare()
        assert not store.search(vectors[:1], 3).exact
    data = approximate.read_bytes()
    for bad in (b"", data[: len(data) // 2], data[:900] + b"\xff" + data[901:], data[:-3] + b"xyz"):
        approximate.write_bytes(bad)
        with SqliteStoreClosing(path, exact_up_to=1000) as store:
            assert store.search(vectors, 3).exact  # damage is seen by those who look where it is
    with SqliteStoreClosing(path, exact_up_to=1000) as store:
        store.prepare()
        assert not store.search(vectors[:1], 3).exact
        store.delete([str(i) for i in range(800)])
        assert store.search(vectors[900:901], 3).exact
        store.prepare()
        assert not approximate.exists()


def test_without_faiss_searches_stay_exact(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = clustered(300, 16)[:, None]
    with SqliteStoreClosing(path, Layout(16), exact_up_to=200) as store:
        store.add([entry(str(i), v) for i, v in enumerate(vectors)])
        monkeypatch.setitem(sys.modules, "faiss", None)
        with pytest.raises(DiptychError, match=r"diptych\[search\]"):
            store.prepare()
        assert store.search(vectors[:1], 3).exact
        assert_same_entry(store.get(["3"])[0], entry("3", vectors[3]))


class SqliteStoreClosing(SqliteStore):
    """A store that a with statement closes."""

    def __enter__(self) -> "SqliteStoreClosing":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def with_path() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def run(code: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=with_path(), check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
