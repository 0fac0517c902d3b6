"""Each kind of approximate index: beside exact search, damaged, left by a kill, and within its memory."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.stores import sqlite_vectors
from diptych.search.stores.approximate import Approximate
from diptych.search.stores.faiss_library import DamagedApproximate
from diptych.search.stores.settings import APPROXIMATE, LEAST_MEMORY, MEMORY, Approximation, VectorSettings
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.search.stores.store import Layout
from diptych.search.stores.vectors import Vectors
from tests.search.stores.store_cases import entry, random_vectors

KINDS: tuple[Approximation, ...] = ("ivf", "hnsw", "pq")
QUERIES = random_vectors(np.random.default_rng(1), 50, 1, 20)


def clustered(count: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((30, *shape))
    vectors = centres[rng.integers(0, 30, count)] + 0.5 * rng.standard_normal((count, *shape))
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def held(count: int, size: int, dim: int) -> Vectors:
    """In two parts, with numbers that have gaps, and some gone."""
    vectors, ids = clustered(count, size, dim), np.arange(count) * 3 + 7
    made = Vectors.empty(Layout(dim, size)).append(ids[: count - 10], vectors[: count - 10])
    return made.append(ids[count - 10 :], vectors[count - 10 :]).without(ids[5:200:7])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db.approximate"


@pytest.fixture(scope="module")
def ready() -> Vectors:
    return held(1500, 1, 20)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, ready: Vectors) -> dict[Approximation, bytes]:
    """A file of each kind."""
    made: dict[Approximation, bytes] = {}
    for kind in KINDS:
        path = tmp_path_factory.mktemp("written") / kind
        Approximate.build(path, ready, "store", VectorSettings(kind), QUERIES, floor=0.5)
        made[kind] = path.read_bytes()
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "dim"), [(1, 20), (2, 13)])
def test_every_kind_finds_what_an_exact_search_finds(path: Path, kind: Approximation, size: int, dim: int) -> None:
    vectors = held(1500, size, dim)
    queries = clustered(60, size, dim)
    built = Approximate.build(path, vectors, "store", VectorSettings(kind), queries, floor=0.9)
    assert built.header.usable
    exact, found = vectors.search(queries, 10), built.search(vectors, queries, 10)
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact.rows.tolist(), found.rows.tolist(), strict=True)])
    assert share == pytest.approx(built.header.recall, abs=0.01)  # what was measured is so
    assert not vectors.gone[found.rows.numpy()].any()
    scores = dict(zip(exact.rows[0].tolist(), exact.scores[0].tolist(), strict=True))
    for row, score in zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True):
        assert score == pytest.approx(scores.get(row, score), abs=2e-6)
    loaded = Approximate.load(path, "store")
    assert loaded is not None
    assert loaded.header == built.header
    assert loaded.search(vectors, queries, 10).rows.tolist() == found.rows.tolist()
    assert Approximate.load(path, "another store") is None


@pytest.mark.parametrize("kind", KINDS)
def test_later_entries_are_found_and_gone_ones_are_not(path: Path, kind: Approximation, ready: Vectors) -> None:
    built = Approximate.build(path, ready, "store", VectorSettings(kind), floor=0.5)
    later = random_vectors(np.random.default_rng(5), 3, 1, 20)
    now = ready.append(np.array([90_000, 90_001, 90_002]), later).without(ready.ids[300:301])
    found = built.search(now, np.concatenate([later, ready.take(np.array([300]))]), 1)
    assert now.ids[found.rows[:3, 0]].tolist() == [90_000, 90_001, 90_002]
    assert found.rows[3, 0] != 300


def test_a_recall_that_cannot_be_reached_is_not_used(path: Path, ready: Vectors) -> None:
    built = Approximate.build(path, ready, "store", VectorSettings("pq"), QUERIES, floor=1.1)
    assert not built.header.usable
    loaded = Approximate.load(path, "store")
    assert loaded is not None
    assert not loaded.header.usable
    assert path.stat().st_size < 2000  # only that it was tried


def test_the_measured_recall_is_the_real_one(path: Path) -> None:
    """On structureless data an inverted file finds little unless it looks into many lists."""
    vectors = Vectors.empty(Layout(48)).append(np.arange(4000), random_vectors(np.random.default_rng(0), 4000, 1, 48))
    queries = random_vectors(np.random.default_rng(1), 100, 1, 48)
    built = Approximate.build(path, vectors, "store", VectorSettings(), queries, floor=0.6)
    assert built.header.usable
    assert built.header.effort > 8
    exact, found = vectors.search(queries, 10), built.search(vectors, queries, 10)
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact.rows.tolist(), found.rows.tolist(), strict=True)])
    assert built.header.recall == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_goes_unseen(path: Path, kind: Approximation, ready: Vectors) -> None:
    """Wherever it is: when the file is opened, when a list is first looked into, or by a check of everything."""
    Approximate.build(path, ready, "store", VectorSettings(kind), floor=0.5)
    data = path.read_bytes()
    for place in np.linspace(0, len(data) - 1, 60).astype(int).tolist():
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        loaded = Approximate.load(path, "store")
        if loaded is not None:
            with pytest.raises(DamagedApproximate):
                loaded.check()
    path.write_bytes(data)
    whole = Approximate.load(path, "store")
    assert whole is not None
    whole.check()


@pytest.mark.parametrize("kind", ["ivf", "pq"])
def test_a_damaged_list_is_seen_by_whoever_looks_into_it(path: Path, kind: Approximation, ready: Vectors) -> None:
    Approximate.build(path, ready, "store", VectorSettings(kind), floor=0.5)
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    loaded = Approximate.load(path, "store")
    assert loaded is not None
    with pytest.raises(DamagedApproximate):
        loaded.search(ready, ready.take(np.arange(200, 1400)), 3)


# In a store.


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "index.db", Layout(20), exact_up_to=1000)) as made:
        made.add([entry(str(i), v) for i, v in enumerate(clustered(1500, 1, 20))])
        yield made


def test_a_store_takes_the_kind_that_it_remembers(store: SqliteStore, path: Path) -> None:
    wanted = store.search(QUERIES, 5).hits
    for kind in KINDS:
        store.set_properties({APPROXIMATE: kind})
        store.prepare(QUERIES)
        loaded = Approximate.load(path, store.identity.split()[0])
        assert loaded is not None
        assert loaded.header.kind == kind
        found = store.search(QUERIES, 5)
        assert not found.exact
        same = [len({h.key for h in a} & {h.key for h in b}) for a, b in zip(found.hits, wanted, strict=True)]
        assert sum(same) > 0.9 * 5 * len(QUERIES)
        before = path.stat().st_mtime_ns
        store.prepare()
        assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [(APPROXIMATE, "lsh", "expected ivf, hnsw or pq"), (MEMORY, "much", "number of bytes"), (MEMORY, "9", "at least")],
)
def test_settings_that_make_no_sense(store: SqliteStore, name: str, value: str, said: str) -> None:
    store.set_properties({name: value})
    with pytest.raises(DiptychError, match=rf"index\.db: {name}: .*{said}"):
        store.prepare()


def test_a_graph_that_does_not_fit_is_refused_and_searches_stay_exact(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diptych.search.stores.graph.BYTES_BESIDE", 1 << 20)
    store.set_properties(VectorSettings("hnsw").properties())
    with pytest.raises(DiptychError, match=r"a graph over 1,500 vectors of 20 takes 1\.6 GB .* --memory"):
        store.prepare()
    assert not path.exists()
    assert store.search(QUERIES, 5).exact


def test_damage_found_while_searching_gives_the_exact_answer(store: SqliteStore, path: Path) -> None:
    wanted = store.search(QUERIES, 5).hits
    store.prepare()
    data = bytearray(path.read_bytes())
    data[: 1500 * 20] = bytes(1500 * 20)
    path.write_bytes(data)
    found = store.search(QUERIES, 5)
    assert found.exact
    assert found.hits == wanted
    assert not path.exists()
    store.prepare()
    assert not store.search(QUERIES, 5).exact


def test_a_check_sees_a_damaged_graph(store: SqliteStore, path: Path) -> None:
    store.set_properties({APPROXIMATE: "hnsw"})
    store.prepare()
    assert list(store.damaged()) == []
    data = bytearray(path.read_bytes())
    data[len(data) - 20_000] ^= 1  # among the codes
    path.write_bytes(data)
    assert list(store.damaged()) == []
    assert not path.exists()  # it is made again
    assert store.search(QUERIES, 5).exact


def test_one_of_an_earlier_state_or_another_dimension_is_not_used(store: SqliteStore, path: Path) -> None:
    store.prepare()
    kept = path.read_bytes()
    other = store.path.with_name("other.db")
    with closing(SqliteStore(other, Layout(8), exact_up_to=1000)) as second:
        second.add([entry(str(i), v) for i, v in enumerate(clustered(1500, 1, 8))])
        other.with_name("other.db.approximate").write_bytes(kept)
        assert second.search(random_vectors(np.random.default_rng(1), 1, 1, 8), 3).exact
    # An earlier state: what came later is compared beside it, what went is left out.
    store.add([entry("later", QUERIES[0])])
    store.delete(["7"])
    found = store.search(np.stack([QUERIES[0], clustered(1500, 1, 20)[7]]), 3)
    assert not found.exact
    assert found.hits[0][0].key == "later"
    assert "7" not in {hit.key for hit in found.hits[1]}


PREPARING = """
import sys
from diptych.search.stores import approximate
from diptych.search.stores.sqlite_store import SqliteStore
store = SqliteStore(sys.argv[1], exact_up_to=1000)
measure = approximate.Approximate._tune
def tuned(*arguments):
    print("written", flush=True)
    sys.stdin.read()
approximate.Approximate._tune = tuned
store.prepare()
"""


def test_a_kill_while_preparing_leaves_nothing_wrong(store: SqliteStore, path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PREPARING, str(store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stdin.close()
    left = [p.name for p in path.parent.glob(".*.part")]
    assert left == [f".{path.name}.{process.pid}.part"]
    assert store.search(QUERIES, 5).exact
    store.prepare()
    assert not store.search(QUERIES, 5).exact
    assert not list(path.parent.glob(".*.part"))


def test_readers_see_every_change_while_a_writer_prepares(store: SqliteStore) -> None:
    with closing(SqliteStore(store.path, exact_up_to=1000)) as reader:
        for turn, kind in enumerate((*KINDS, "ivf")):
            store.set_properties({APPROXIMATE: kind})
            new = random_vectors(np.random.default_rng(turn + 10), 1, 20)
            store.add([entry(f"new {turn}", new)])
            assert reader.search(new[None], 1).hits[0][0].key == f"new {turn}"
            store.prepare()
            assert reader.search(new[None], 1).hits[0][0].key == f"new {turn}"
            assert reader.search(new[None], 1).exact is False
            store.delete([f"new {turn}"])
            assert reader.search(new[None], 1).hits[0][0].key != f"new {turn}"


READING = """
import sys
import numpy as np
from diptych.search.stores import sqlite_vectors, vectors
from diptych.search.stores.sqlite_store import SqliteStore
import faiss
def read():
    return int(dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())["rchar"])
query = np.eye(1, 512, dtype=np.float32)[None]
before = read()
store = SqliteStore(sys.argv[1], exact_up_to=1000)
answer = store.search(query, 1)
print(read() - before, answer.exact, store.count())
"""


def subprocess_says(code: str, *arguments: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not say what was read")
@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_opening_and_asking_reads_no_vectors(tmp_path: Path, kind: Approximation) -> None:
    """Of 12 MB of vectors, what is read is 64 of them, pages of SQLite, the entries' numbers, centres and the graph."""
    count, place = 6000, tmp_path / "index.db"
    with closing(SqliteStore(place, Layout(512), exact_up_to=1000)) as store:
        store.add([entry(str(i), v) for i, v in enumerate(clustered(count, 1, 512))])
        store.set_properties({APPROXIMATE: kind})
        store.prepare()
    read, exact, counted = subprocess_says(READING, str(place))
    assert (exact, counted) == ("False", str(count))
    assert int(read) < 6_000_000


PREPARED = """
import sys, threading, time
import numpy as np
from diptych.search.stores import sqlite_vectors
from diptych.search.stores.sqlite_store import SqliteStore
import faiss
def own():
    return int(dict(line.split(":") for line in open("/proc/self/status"))["RssAnon"].split()[0]) * 1024
most, done = own(), threading.Event()
def look():
    global most
    while not done.wait(0.01):
        most = max(most, own())
queries = np.eye(20, 1024, dtype=np.float32)[:, None]
store = SqliteStore(sys.argv[1], exact_up_to=1000, recall_floor=0.0)
before = own()
thread = threading.Thread(target=look)
thread.start()
if sys.argv[2] == "prepare":
    store.prepare(queries)
store.search(queries, 10)
done.set()
thread.join()
print(most - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say what memory is whose")
def test_preparing_and_searching_keep_to_the_memory(tmp_path: Path) -> None:
    """A hundred and sixty megabytes of vectors, with 64 allowed; SQLite takes 32 for itself, and the libraries some."""
    place, allowed, own = tmp_path / "index.db", LEAST_MEMORY, 64 << 20
    rng = np.random.default_rng(0)
    with closing(SqliteStore(place, Layout(1024))) as store:
        for start in range(0, 40_000, 4000):
            vectors = rng.standard_normal((4000, 1, 1024), dtype=np.float32)
            vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
            store.add([entry(str(start + i), v) for i, v in enumerate(vectors)])
        store.set_properties({MEMORY: str(allowed)})
    for what in ("search", "prepare", "search"):  # first without anything beside the file
        assert int(subprocess_says(PREPARED, str(place), what)[0]) < allowed + own, what


def test_what_is_more_than_memory_is_for_lies_in_a_file(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read at once or little by little, and it is searched as before; the file goes with the store."""
    wanted = [store.search(QUERIES, 5).hits]
    store.add([entry("late", QUERIES[3])])
    store.delete(["4", "5"])
    wanted.append(store.search(QUERIES, 5).hits)
    monkeypatch.setattr(sqlite_vectors, "PARTS_READ", 0)
    with closing(SqliteStore(store.path)) as other:
        assert other.search(QUERIES, 5).hits == wanted[1]
        other.delete(["late"])
        other.add([entry(key, clustered(1500, 1, 20)[int(key)]) for key in ("4", "5")])
        assert other.search(QUERIES, 5).hits == wanted[0]
        moment = other._live._moment
        assert moment is not None
        assert [isinstance(part, np.memmap) for part in moment.vectors.parts] == [True, True]
    assert {p.name for p in store.path.parent.iterdir()} <= {"index.db", "index.db-wal", "index.db-shm"}


@pytest.mark.parametrize("kind", KINDS)
def test_little_memory_changes_no_answer(path: Path, kind: Approximation, ready: Vectors) -> None:
    generous = Approximate.build(path, ready, "store", VectorSettings(kind), QUERIES, floor=0.5)
    wanted = generous.search(ready, QUERIES, 10)
    frugal = replace(ready, work=1000)
    assert generous.search(frugal, QUERIES, 10).rows.tolist() == wanted.rows.tolist()
    small = Approximate.build(path, frugal, "store", VectorSettings(kind, LEAST_MEMORY), QUERIES, floor=0.5)
    assert small.header.recall == pytest.approx(generous.header.recall, abs=0.05)


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: data[:-1],
    lambda data: data[100:],
    lambda data: data[: len(data) // 2],
    lambda data: data.replace(b"approximate 2", b"approximate 1"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_a_file_that_is_not_whole_is_not_opened(
    path: Path, kind: Approximation, damage: Callable[[bytes], bytes], written: dict[Approximation, bytes]
) -> None:
    path.write_bytes(damage(written[kind]))
    assert Approximate.load(path, "store") is None
