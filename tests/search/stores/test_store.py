"""What every store does, the same for one file and for a server."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.asking.query import Operator
from diptych.search.stores.conditions import fits as entry_fits
from diptych.search.stores.store import Condition, Description, Entry, Layout, Record, Stamp, Value
from tests.search.stores.backends import Backend
from tests.search.stores.store_cases import (
    DAY,
    assert_same_entry,
    entries,
    entry,
    keys_of,
    random_vectors,
    slow_search,
    unit,
)

ONE, FOUR = Layout(12), Layout(8, set_size=4)
BOTH = pytest.mark.parametrize("layout", [ONE, FOUR], ids=["K=1", "K=4"])


def queries_for(layout: Layout, count: int = 3) -> np.ndarray:
    return random_vectors(np.random.default_rng(9), count, layout.set_size, layout.dim)


@BOTH
def test_add_get_delete_and_update(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(20, layout)
    rng = np.random.default_rng(1)
    made[3] = entry("big", made[3].vectors, locals=rng.standard_normal((49, 700)).astype(np.float16))
    made[4] = entry("no cells", made[4].vectors, locals=np.zeros((0, 7), np.float16))
    store.add(made)
    assert store.count() == 20
    found = store.get([made[5].key, "nowhere", made[3].key, made[4].key, made[5].key])
    assert found[1] is None
    for there, wanted in zip([found[0], *found[2:]], [made[5], made[3], made[4], made[5]], strict=True):
        assert_same_entry(there, wanted)
    light = store.get(["big"], locals=False)[0]
    assert light is not None
    assert light.locals is None

    new = entry("big", random_vectors(rng, layout.set_size, layout.dim), kind="sentence", text="ein Hund", size=7)
    smaller = entry("no cells", new.vectors, locals=rng.standard_normal((2, 3)).astype(np.float16))
    store.add([new, smaller])
    assert store.count() == 20
    assert_same_entry(store.get(["big"])[0], new)
    assert_same_entry(store.get(["no cells"])[0], smaller)
    assert store.search(new.vectors[None], 1).hits[0][0].key in ("big", "no cells")

    assert store.delete(["big", "nowhere", made[0].key]) == 2
    assert store.delete(["big"]) == 0
    assert store.get(["big", made[0].key]) == [None, None]
    assert store.count() == 18
    assert "big" not in {h.key for h in store.search(new.vectors[None], 50).hits[0]}


@BOTH
def test_search_is_the_slow_loop(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(150, layout)
    store.add(made[:100])
    store.add(made[100:])
    queries = queries_for(layout, 5)
    result = store.search(queries, 7)
    assert result.exact
    assert result.recall is None
    assert store.recall is None
    for query, hits in zip(queries, result.hits, strict=True):
        wanted = slow_search(made, query, 7, layout, lambda e: True)
        assert [h.key for h in hits] == [key for key, _ in wanted]
        assert [h.score for h in hits] == pytest.approx([s for _, s in wanted], abs=2e-6)


LOCAL_DAY = datetime.fromtimestamp(1_600_000_000 + 40 * 86_400).strftime("%Y-%m-%d")
START = round(datetime.strptime(LOCAL_DAY, "%Y-%m-%d").timestamp()) * 1_000_000_000
FILTERS: list[tuple[list[Condition], Callable[[Entry], bool]]] = [
    ([Condition("path", "matches", "album 1/*")], lambda e: e.key.startswith("album 1/")),
    ([Condition("path", "matches", "*[13]?.jpg")], lambda e: fnmatchcase(e.key, "*[13]?.jpg")),
    ([Condition("path", "matches", "album ?/s[!a-d]t/*7.jpg")], lambda e: e.key[-5:] == "7.jpg"),
    ([Condition("path", "matches", "*.JPG")], lambda e: False),
    ([Condition("path", "=", "album 1/set/0001.jpg")], lambda e: e.key == "album 1/set/0001.jpg"),
    ([Condition("path", "!=", "album 1/set/0001.jpg")], lambda e: e.key != "album 1/set/0001.jpg"),
    ([Condition("path", "<", "album 2")], lambda e: e.key < "album 2"),
    ([Condition("kind", "=", "sentence")], lambda e: e.kind == "sentence"),
    ([Condition("kind", "!=", "sentence")], lambda e: e.kind == "picture"),
    ([Condition("year", "=", 2003)], lambda e: e.metadata["year"] == 2003),
    ([Condition("year", "!=", 2003.0)], lambda e: e.metadata["year"] != 2003),
    ([Condition("year", "<", 2002)], lambda e: e.metadata["year"] < 2002),  # type: ignore[operator]
    ([Condition("year", ">=", 2001.5)], lambda e: e.metadata["year"] > 2001),  # type: ignore[operator]
    ([Condition("year", "<", "2002")], lambda e: False),
    ([Condition("weight", "<=", 3.25)], lambda e: e.metadata.get("weight", 99) <= 3.25),  # type: ignore[operator]
    ([Condition("weight", ">", 3.25)], lambda e: e.metadata.get("weight", 0) > 3.25),  # type: ignore[operator]
    ([Condition("weight", "!=", 0.25)], lambda e: e.metadata.get("weight") != 0.25),
    ([Condition("camera", "=", "Leica M")], lambda e: e.metadata["camera"] == "Leica M"),
    ([Condition("camera", ">", "D")], lambda e: e.metadata["camera"] != "Canon"),
    ([Condition("camera", "matches", "*n")], lambda e: str(e.metadata["camera"]).endswith("n")),
    ([Condition("camera", ">", 3)], lambda e: False),
    ([Condition("nothing", "=", "x")], lambda e: False),
    ([Condition("nothing", "!=", "x")], lambda e: True),
    ([Condition("date", "=", LOCAL_DAY)], lambda e: START <= e.stamp.changed < START + DAY),
    ([Condition("date", "!=", LOCAL_DAY)], lambda e: not START <= e.stamp.changed < START + DAY),
    ([Condition("date", "<", LOCAL_DAY)], lambda e: e.stamp.changed < START),
    ([Condition("date", "<=", LOCAL_DAY)], lambda e: e.stamp.changed < START + DAY),
    ([Condition("date", ">", LOCAL_DAY)], lambda e: e.stamp.changed >= START + DAY),
    ([Condition("date", ">=", 1_600_000_000 + 30 * 86_400)], lambda e: e.stamp.size >= 130),
    (
        [Condition("kind", "=", "picture"), Condition("year", ">", 2001), Condition("path", "matches", "*2/*")],
        lambda e: e.kind == "picture" and e.metadata["year"] > 2001 and "2/" in e.key,  # type: ignore[operator]
    ),
]


@BOTH
def test_filters(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(90, layout)
    store.add(made)
    query = queries_for(layout, 1)
    for where, fits in FILTERS:
        wanted = slow_search(made, query[0], 8, layout, fits)
        found = store.search(query, 8, where)
        assert found.exact, where
        assert [h.key for h in found.hits[0]] == [key for key, _ in wanted], where
        assert store.count(where) == sum(map(fits, made)), where


def test_a_filter_that_means_nothing(backend: Backend) -> None:
    store = backend.fresh(ONE)
    query = queries_for(ONE, 1)
    for condition in (
        Condition("kind", "<", "picture"),
        Condition("kind", "=", "film"),
        Condition("date", "matches", "2024*"),
        Condition("date", "<", "yesterday"),
        Condition("path", "=", 3),
        Condition("year", "matches", 3),
        Condition("year", "like", "x"),  # type: ignore[arg-type]
    ):
        with pytest.raises(DiptychError, match=condition.field):
            store.search(query, 1, [condition])
        with pytest.raises(DiptychError):
            store.count([condition])


@BOTH
def test_an_empty_store(backend: Backend, layout: Layout) -> None:
    store = backend.fresh(layout)
    assert store.count() == 0
    assert store.get(["a"]) == [None]
    assert store.get([]) == []
    assert list(store.stamps()) == []
    assert store.delete(["a"]) == 0
    assert store.background(5).shape == (0, layout.set_size, layout.dim)
    result = store.search(queries_for(layout, 2), 5)
    assert result.hits == [[], []]
    assert result.exact
    assert store.search(queries_for(layout, 0), 5).hits == []
    assert store.search(queries_for(layout, 1), 5, [Condition("path", "matches", "*a*")]).hits == [[]]
    store.prepare()
    store.add([])
    assert (store.dim, store.set_size, store.layout) == (layout.dim, layout.set_size, layout)


@BOTH
def test_more_asked_for_than_there_is(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(6, layout)
    store.add(made)
    hits = store.search(queries_for(layout, 1), 1000).hits[0]
    assert sorted(h.key for h in hits) == sorted(e.key for e in made)
    assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)


@BOTH
def test_duplicates_are_all_found(backend: Backend, layout: Layout) -> None:
    store = backend.fresh(layout)
    same = random_vectors(np.random.default_rng(3), layout.set_size, layout.dim)
    store.add([entry(f"{i}", same) for i in range(9)] + entries(20, layout))
    hits = store.search(same[None], 9).hits[0]
    assert sorted(h.key for h in hits) == [f"{i}" for i in range(9)]


def test_stamps_are_in_key_order(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.fresh(ONE)
    monkeypatch.setattr(f"diptych.search.stores.{backend.kind}_store.ROWS_AT_ONCE", 7)
    keys = [
        f"{a}/{b}{c}"
        for a in ("a", "a b", "b%", "b_", "ä", "z\U0001f415")
        for b in ("", "B", "\t", "\uffff")
        for c in "12"
    ]
    shuffled = [keys[i] for i in np.random.default_rng(0).permutation(len(keys))]
    vector = random_vectors(np.random.default_rng(0), 1, 12)
    for i in range(0, len(shuffled), 9):
        store.add([entry(k, vector, size=len(k), changed=5, digest=k) for k in shuffled[i : i + 9]])
    store.delete(keys[::5])
    left = sorted(k for i, k in enumerate(keys) if i % 5)
    assert list(store.stamps()) == [Stamp(k, len(k), 5, k) for k in left]
    for prefix in ("a", "a/", "b%", "ä/B", "z\U0001f415", "nothing", "a/\uffff"):
        assert [s.key for s in store.stamps(prefix)] == [k for k in left if k.startswith(prefix)], prefix


@BOTH
def test_rename(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(5, layout)
    cells = np.ones((3, 2), np.float16)
    made[1] = entry(made[1].key, made[1].vectors, metadata={"year": 1999}, locals=cells)
    store.add(made)
    store.rename(made[1].key, Stamp("über/new.jpg", 5, 6, "seven"))
    assert store.get([made[1].key]) == [None]
    moved = Entry(
        "über/new.jpg", "picture", made[1].vectors, Stamp("über/new.jpg", 5, 6, "seven"), "", {"year": 1999}, cells
    )
    assert_same_entry(store.get(["über/new.jpg"])[0], moved)
    assert store.search(made[1].vectors[None], 1).hits[0][0].key == "über/new.jpg"
    # Onto a name that is taken: the other entry is gone. Onto itself: only the stamp changes.
    store.rename("über/new.jpg", Stamp(made[2].key, 1, 2, "three"))
    store.rename(made[2].key, Stamp(made[2].key, 8, 9, "ten"))
    assert store.count() == 4
    last = Entry(made[2].key, "picture", made[1].vectors, Stamp(made[2].key, 8, 9, "ten"), "", {"year": 1999}, cells)
    assert_same_entry(store.get([made[2].key])[0], last)
    with pytest.raises(DiptychError, match="no 'nowhere'"):
        store.rename("nowhere", Stamp("x", 1, 1, ""))


def test_properties(backend: Backend) -> None:
    store = backend.fresh(ONE)
    assert store.properties == {}
    store.set_properties({"model": "default", "made": "2024"})
    store.set_properties({"model": "modèle \U0001f415", "empty": ""})
    assert store.properties == {"model": "modèle \U0001f415", "made": "2024", "empty": ""}


def test_unusual_keys_and_values(backend: Backend) -> None:
    store = backend.fresh(ONE)
    rng = np.random.default_rng(5)
    names = [
        'a"b',
        "a'b",
        "a\\b",
        "ü/日本 \U0001f415.jpg",
        "tab\there\nthere",
        "100%_[x]*?",
        "{curly}",
        "-- drop",
        "x" * 900,
    ]
    made = [entry(n, random_vectors(rng, 1, 12), text=n, digest=n, metadata={n[:50]: n, "n": 2**53 + 1}) for n in names]
    store.add(made)
    for wanted in made:
        assert_same_entry(store.get([wanted.key])[0], wanted)
        assert store.search(wanted.vectors[None], 1).hits[0][0].key == wanted.key
        only = store.search(wanted.vectors[None], 9, [Condition(wanted.key[:50], "=", wanted.key)])
        assert [h.key for h in only.hits[0]] == [wanted.key]
        assert store.count([Condition("path", "=", wanted.key)]) == 1
    assert keys_of(store) == sorted(names)
    assert store.delete(names[:4]) == 4
    assert keys_of(store) == sorted(names[4:])


def test_entries_that_cannot_be_kept(backend: Backend) -> None:
    store = backend.fresh(ONE)
    good = random_vectors(np.random.default_rng(0), 1, 12)
    wrong = [
        (entry("", good), "cannot be a key"),
        (entry("a\x00b", good), "cannot be a key"),
        (entry("a\udcff", good), "cannot be a key"),
        (entry("a", good[:, :5]), "shape"),
        (entry("a", np.concatenate([good, good])), "shape"),
        (entry("a", 3 * good), "unit"),
        (entry("a", 0 * good), "unit"),
        (entry("a", good * np.nan), "unit"),
        (entry("a", good, metadata={"date": 3}), "'date'"),
        (entry("a", good, metadata={"x": float("nan")}), "finite"),
        (entry("a", good, metadata={"x": True}), "finite"),
        (entry("a", good, metadata={"x": None}), "finite"),  # type: ignore[dict-item]
        (entry("a", good, locals=np.zeros(3, np.float16)), "locals"),
        (entry("a", good, kind="film"), "kind"),  # type: ignore[arg-type]
        (Entry("a", "picture", good, Stamp("b", 1, 1, "")), "stamp"),
    ]
    for bad, words in wrong:
        with pytest.raises(DiptychError, match=words):
            store.add([entry("fine", good), bad])
    with pytest.raises(DiptychError, match="twice"):
        store.add([entry("a", good), entry("a", good)])
    assert store.count() == 0
    for shape in ((1, 12), (2, 2, 12), (2, 1, 11)):
        with pytest.raises(DiptychError, match="queries of shape"):
            store.search(np.ones(shape, np.float32), 3)
    with pytest.raises(DiptychError, match="top"):
        store.search(queries_for(ONE), 0)
    with pytest.raises(DiptychError, match="finite"):
        store.search(queries_for(ONE) * np.inf, 1)


@BOTH
def test_background(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(60, layout)
    store.add(made)
    first = store.background(10)
    assert first.shape == (10, layout.set_size, layout.dim)
    assert np.array_equal(first, store.background(10))
    assert np.array_equal(first[:4], store.background(4))
    places = [next(i for i, e in enumerate(made) if np.array_equal(e.vectors, v)) for v in first]
    assert len(set(places)) == 10
    assert max(places) - min(places) > 25
    assert store.background(100).shape[0] == 60
    sentences = store.background(100, [Condition("kind", "=", "sentence")])
    assert len(sentences) == sum(e.kind == "sentence" for e in made)
    matching = store.background(3, [Condition("path", "matches", "*3.jpg")])
    assert all(any(np.array_equal(e.vectors, v) and e.key.endswith("3.jpg") for e in made) for v in matching)
    # The same contents in another order of adding give the same.
    store.delete([e.key for e in made[:30]])
    store.add(made[:30][::-1])
    assert np.array_equal(first, store.background(10))


@BOTH
def test_reopen(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(30, layout)
    store.add(made)
    store.set_properties({"model": "default"})
    store.close()
    store.close()
    with pytest.raises(DiptychError, match="closed"):
        store.count()
    again = backend.open(store.address)
    assert again.layout == layout
    assert again.properties == {"model": "default"}
    assert_same_entry(again.get([made[7].key])[0], made[7])
    assert again.search(made[7].vectors[None], 1).hits[0][0].key == made[7].key
    with pytest.raises(DiptychError, match="another store"):
        backend.open(store.address, Layout(layout.dim + 1, layout.set_size))


def test_readers_beside_a_writer(backend: Backend) -> None:
    """Entries come in pairs with one vector; a reader never sees half of an add."""
    store = backend.fresh(ONE)
    reader = backend.open(store.address)
    rng = np.random.default_rng(2)
    vectors = [random_vectors(rng, 1, 12) for _ in range(12)]
    errors: list[BaseException] = []
    done = threading.Event()

    def read(own: int) -> None:
        try:
            seen = 0
            while not done.is_set():
                count = reader.count()
                assert count % 2 == 0
                assert count >= seen
                seen = count
                hits = reader.search(vectors[own][None], 2).hits[0]
                assert all(h.key.split("/")[0] in {str(i) for i in range(12)} for h in hits)
                assert len(hits) % 2 == 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for i, vector in enumerate(vectors):
        store.add([entry(f"{i}/a", vector), entry(f"{i}/b", vector)])
        assert {h.key for h in store.search(vector[None], 2).hits[0]} == {f"{i}/a", f"{i}/b"}
        assert {h.key for h in reader.search(vector[None], 2).hits[0]} == {f"{i}/a", f"{i}/b"}
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []


OTHER_PROCESS = """
import sys, numpy as np
from diptych.search.stores.address import open_store
from tests.search.stores.store_cases import entries
from diptych.search.stores.store import Layout
store = open_store(sys.argv[1])
print(store.count(), flush=True)
sys.stdin.readline()
store.add(entries(40, Layout(12), seed=1)[20:])
query = entries(40, Layout(12), seed=1)[3].vectors[None]
print(store.count(), store.search(query, 1).hits[0][0].key, flush=True)
sys.stdin.readline()
"""


def test_two_processes(backend: Backend) -> None:
    store, made = backend.fresh(ONE), entries(40, ONE, seed=1)
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, store.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline().split() == ["0"]
    store.add(made[:20])
    other.stdin.write("\n")
    other.stdin.flush()
    assert other.stdout.readline().strip() == f"40 {made[3].key}"
    # The other process is still there; its entries are seen here.
    assert store.search(made[33].vectors[None], 1).hits[0][0].key == made[33].key
    assert keys_of(store) == sorted(e.key for e in made)
    other.communicate("\n", timeout=60)
    assert other.returncode == 0


def test_an_address_that_is_none(backend: Backend) -> None:
    for address in ("http://127.0.0.1/x", "milvus://", "milvus://127.0.0.1:99999999/x", "milvus://127.0.0.1/a b"):
        with pytest.raises(DiptychError, match="milvus://"):
            backend.open(address)
    missing = backend.address(Layout(3))
    with pytest.raises(DiptychError, match="no such index"):
        backend.open(missing + "_not_there")


def test_unit_vectors_in_half_precision_are_taken(backend: Backend) -> None:
    store = backend.fresh(ONE)
    half = unit(np.random.default_rng(0).standard_normal((1, 12))).astype(np.float16)
    store.add([entry("half", half)])
    found = store.get(["half"])[0]
    assert found is not None
    assert np.array_equal(found.vectors, half.astype(np.float32))


def test_a_store_that_nobody_closed_is_no_obstacle(backend: Backend) -> None:
    store = backend.fresh(ONE)
    store.add(entries(3, ONE))
    backend.open(store.address).add(entries(3, ONE, seed=4))
    assert backend.open(store.address).count() == 3


@BOTH
def test_records_are_entries_without_vectors(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(40, layout)
    store.add(made)
    wanted = {e.key: Record(e.key, e.kind, e.stamp, e.text, e.metadata) for e in made}
    assert list(store.records()) == [wanted[key] for key in sorted(wanted)]
    where = [Condition("kind", "=", "picture"), Condition("path", "matches", "*2/*"), Condition("year", "<", 2003)]
    fitting = [r for r in map(wanted.get, sorted(wanted)) if r and r.kind == "picture" and "2/" in r.key]
    assert list(store.records(where)) == [r for r in fitting if float(r.metadata["year"]) < 2003]
    assert list(store.records([Condition("camera", "=", "Sony")])) == []


def test_records_of_more_than_one_page(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sqlite_records", "milvus_store", "qdrant_store"):
        monkeypatch.setattr(f"diptych.search.stores.{module}.ROWS_AT_ONCE", 7)
    store, made = backend.fresh(ONE), entries(21, ONE)
    store.add(made)
    assert [r.key for r in store.records()] == sorted(e.key for e in made)


def test_columns(backend: Backend) -> None:
    store, made = backend.fresh(ONE), entries(10, ONE)
    assert store.columns() == []
    store.add([*made, entry("odd", made[0].vectors, metadata={'a "b"': 1.0, "Zoo": "x"})])
    assert store.columns() == ["Zoo", 'a "b"', "camera", "weight", "year"]
    assert [store.has_column(name) for name in ("year", 'a "b"', "yea", "path")] == [True, True, False, False]


def test_properties_can_be_removed(backend: Backend) -> None:
    store = backend.fresh(ONE)
    store.set_properties({"root:/a": "1", "root:/b": "2", "other": "3"})
    store.delete_properties(["root:/a", "root:/none"])
    assert store.properties == {"root:/b": "2", "other": "3"}
    store.delete_properties([])


TAKEN = ["2018-12-31T23:59:59", "2019-01-01T00:00:00", "2019-07-04T12:30:00", "2020-01-01T00:00:00"]


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("value", ["2019", "2019-07", "2019-07-04T12:30"])
def test_the_day_a_picture_was_taken_goes_before_its_files(backend: Backend, operator: Operator, value: str) -> None:
    layout = Layout(4)
    store = backend.fresh(layout)
    vectors = random_vectors(np.random.default_rng(0), len(TAKEN) + 2, 1, 4)
    # All files were changed in 2023, save the last one's.
    changed = [round(datetime(2023, 5, 1).timestamp()) * 10**9] * (len(TAKEN) + 1)
    changed.append(round(datetime(2019, 7, 4, 12, 30).timestamp()) * 10**9)
    columns: list[dict[str, Value]] = [*({"taken": text} for text in TAKEN), {}, {}]
    made = [
        entry(str(i), vectors[i], changed=changed[i], metadata={"n": i, **column}) for i, column in enumerate(columns)
    ]
    store.add(made)
    first, after = {
        "2019": ("2019-01-01T00:00:00", "2020-01-01T00:00:00"),
        "2019-07": ("2019-07-01T00:00:00", "2019-08-01T00:00:00"),
        "2019-07-04T12:30": ("2019-07-04T12:30:00", "2019-07-04T12:31:00"),
    }[value]
    moments = [*TAKEN, "2023-05-01T00:00:00", "2019-07-04T12:30:00"]
    slow = {
        "=": [first <= m < after for m in moments],
        "!=": [not first <= m < after for m in moments],
        "<": [m < first for m in moments],
        "<=": [m < after for m in moments],
        ">": [m >= after for m in moments],
        ">=": [m >= first for m in moments],
    }[operator]
    where = [Condition("date", operator, value)]
    wanted = {str(i) for i, fits_too in enumerate(slow) if fits_too}
    assert {hit.key for hit in store.search(vectors[:1], 9, where).hits[0]} == wanted
    assert store.count(where) == len(wanted)
    assert {e.key for e in made if entry_fits(where, e.key, e.kind, e.stamp.changed, e.metadata)} == wanted


@BOTH
def test_entries_are_described_anew_and_keep_their_vectors(backend: Backend, layout: Layout) -> None:
    store, made = backend.fresh(layout), entries(5, layout)
    store.add(made)
    new = replace(made[1], stamp=Stamp(made[1].key, 7, 8, "other"), metadata={"camera": "Pinhole", "iso": 100})
    store.describe([Description(new.stamp, new.metadata), Description(Stamp("not there", 0, 0, ""), {"a": 1})])
    for wanted in (made[0], new, *made[2:]):
        assert_same_entry(store.get([wanted.key])[0], wanted)
    assert store.count() == 5
    assert store.count([Condition("camera", "=", "Pinhole")]) == 1
    assert store.search(new.vectors[None], 1).hits[0][0].key == new.key
    with pytest.raises(DiptychError, match="'date'"):
        store.describe([Description(new.stamp, {"date": 3})])
    assert_same_entry(store.get([new.key])[0], new)


def test_what_is_written_is_found_by_its_words(backend: Backend) -> None:
    store = backend.fresh(Layout(4))
    vectors = random_vectors(np.random.default_rng(0), 4, 1, 4)
    assert store.written(["ticket"], 9) == []
    texts = ["Parking TICKET", 'a ticket "quoted" over a long line of other words', "tickets", None]
    made = [
        entry(str(i), vectors[i], metadata={"n": i} | ({} if text is None else {"written": text}))
        for i, text in enumerate(texts)
    ]
    store.add(made)
    assert store.written(["ticket"], 9) == ["0", "1"]
    assert store.written(["ticket"], 1) == ["0"]
    assert store.written(["parking", "ticket"], 9) == ["0"]
    assert store.written(["ticket"], 9, [Condition("n", ">", 0)]) == ["1"]
    assert store.written([], 9) == store.written(["nothing"], 9) == store.written(['"'], 9) == []
    store.describe([Description(made[0].stamp, {}), Description(made[3].stamp, {"written": "the last ticket"})])
    assert sorted(store.written(["ticket"], 9)) == ["1", "3"]
    store.add([replace(made[1], metadata={})])
    assert store.written(["ticket"], 9) == ["3"]
    store.delete(["3"])
    assert store.written(["ticket"], 9) == []
