"""What is particular to a store on a Qdrant server: its filters, its graph, its checksums and its keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.matchers.layout import SetSimilarity
from diptych.search.stores.dates import taken_span
from diptych.search.stores.qdrant_connection import QdrantConnection
from diptych.search.stores.qdrant_filters import taken_number
from diptych.search.stores.qdrant_ids import point_id
from diptych.search.stores.qdrant_index import recall_of_hits
from diptych.search.stores.qdrant_rows import dense_of
from diptych.search.stores.qdrant_store import QdrantStore
from diptych.search.stores.server import parse_server
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.search.stores.store import Condition, Hit, Layout, Value
from tests.search.stores import qdrant_server
from tests.search.stores.backends import WORKER, empty_qdrant
from tests.search.stores.store_cases import entries, entry, keys_of, random_vectors, slow_search, unit

ONE, FOUR = Layout(12), Layout(8, set_size=4)


def emptied(port: int, name: str) -> str:
    place = f"qdrant://127.0.0.1:{port}/test_{WORKER}_{name}"
    empty_qdrant(place)
    return place


@pytest.fixture
def store(qdrant_port: int) -> Iterator[QdrantStore]:
    opened = QdrantStore(emptied(qdrant_port, "12_1"), ONE)
    yield opened
    opened.close()


def test_addresses() -> None:
    schemes = ("qdrant", "qdrants")
    assert parse_server("qdrant://db.example/pictures", schemes, 6334) == ("db.example", 6334, "pictures")
    assert parse_server("qdrants://[::1]:7/p_1", schemes, 6334) == ("[::1]", 7, "p_1")
    for bad in ("qdrant:///x", "qdrant://h/x?y=1", "qdrant://h/1x", "qdrant://h:0x/x", "qdrant://h/x/y", "qdrant:x"):
        with pytest.raises(DiptychError, match="qdrant"):
            QdrantConnection(bad, 1)
    with pytest.raises(DiptychError, match="user and a password cannot be given") as told:
        QdrantConnection("qdrant://me:secret@h/x", 1)
    assert "secret" not in str(told.value)


def test_the_port_for_http_is_told(tmp_path: Path, qdrant_port: int) -> None:
    """`qdrant_port` is not used, but says that servers run here."""
    http = qdrant_server.free_port()
    process, _ = qdrant_server.start(tmp_path, service={"http_port": http})
    try:
        with pytest.raises(DiptychError, match="expected the one for gRPC"):
            QdrantStore(f"qdrant://127.0.0.1:{http}/x", ONE)
    finally:
        qdrant_server.stop(process)


def test_a_server_with_a_key(tmp_path: Path, qdrant_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    process, port = qdrant_server.start(tmp_path, service={"api_key": "a-secret-key"})
    address = f"qdrant://127.0.0.1:{port}/keyed"
    try:
        for wrong in ("", "another-key"):
            monkeypatch.setenv("DIPTYCH_QDRANT_API_KEY", wrong)
            with pytest.raises(DiptychError, match="DIPTYCH_QDRANT_API_KEY") as told:
                QdrantStore(address, ONE)
            assert "another-key" not in str(told.value)
        monkeypatch.setenv("DIPTYCH_QDRANT_API_KEY", "a-secret-key")
        store = QdrantStore(address, ONE)
        store.add(entries(3, ONE))
        assert store.count() == 3
        store.close()
    finally:
        qdrant_server.stop(process)


@pytest.mark.parametrize("similarity", ["smooth-chamfer", "chamfer", "max"])
def test_sets_have_the_scores_that_a_file_gives(qdrant_port: int, tmp_path: Path, similarity: SetSimilarity) -> None:
    layout = Layout(8, 4, similarity=similarity)
    there = QdrantStore(emptied(qdrant_port, similarity.replace("-", "_")), layout)
    here = SqliteStore(tmp_path / "index", layout)
    made = entries(80, layout)
    queries = random_vectors(np.random.default_rng(3), 3, 4, 8)
    for store in (there, here):
        store.add(made)
    for where in ([], [Condition("path", "matches", "*[13].jpg")]):
        found, wanted = there.search(queries, 9, where), here.search(queries, 9, where)
        assert found.exact
        for some, others in zip(found.hits, wanted.hits, strict=True):
            assert [hit.key for hit in some] == [hit.key for hit in others]
            assert [hit.score for hit in some] == pytest.approx([hit.score for hit in others], abs=1e-6)
    there.close()
    here.close()


def test_sets_that_no_list_proves_are_read_through(qdrant_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.search.stores.qdrant_search.LONGEST_LIST", 1)
    monkeypatch.setattr("diptych.search.stores.qdrant_search.ENTRIES_AT_ONCE", 37)
    store = QdrantStore(emptied(qdrant_port, "8_4"), FOUR)
    made = entries(300, FOUR)
    store.add(made)
    queries = random_vectors(np.random.default_rng(3), 6, 4, 8)
    for where in ([], [Condition("kind", "=", "picture")]):
        found = store.search(queries, 2, where)
        assert found.exact
        for query, hits in zip(queries, found.hits, strict=True):
            fitting = [e for e in made if not where or e.kind == "picture"]
            wanted = slow_search(fitting, query, 2, FOUR, lambda e: True)
            assert [hit.key for hit in hits] == [key for key, _ in wanted]
    store.close()


def clustered(count: int, layout: Layout) -> np.ndarray:
    """Sets around thirty centres, whose elements lie near each other: (n, K, d)."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((30, 1, layout.dim))[rng.integers(0, 30, count)]
    own = 0.3 * rng.standard_normal((count, 1, layout.dim))
    return unit(centres + own + 0.2 * rng.standard_normal((count, layout.set_size, layout.dim)))


@pytest.mark.parametrize("layout", [Layout(16), Layout(16, set_size=3)], ids=["K=1", "K=3"])
def test_a_graph_beyond_the_exact_range(qdrant_port: int, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.search.stores.qdrant_index.GRAPH_FROM", 20)
    place = emptied(qdrant_port, f"graph_{layout.set_size}")
    vectors = clustered(2000, layout)
    made = [entry(f"{i:04d}", v, metadata={"n": i}) for i, v in enumerate(vectors)]
    few = 1000 * layout.set_size
    # A floor that cannot be reached: searches stay exact.
    store = QdrantStore(place, layout, exact_up_to=few, recall_floor=1.01)
    store.add(made[:1400])
    store.prepare(vectors[:8])
    assert store.recall is None
    assert store.search(vectors[:1], 5).exact
    assert parameters(store).hnsw_config.m == 0
    assert parameters(store).quantization_config is None
    store.close()
    store = QdrantStore(place, exact_up_to=few)
    exact = store.search(vectors[:8], 5)
    store.add(made[1400:])
    store.prepare(vectors[:8])
    assert store.recall is not None
    assert store.recall >= 0.95
    assert parameters(store).hnsw_config.m == 16
    assert parameters(store).quantization_config.scalar is not None
    info = store._server.info(store._server.name)
    assert info is not None
    assert info.indexed_vectors_count > 0
    if layout.set_size > 1:
        assert info.config.params.vectors["set"].hnsw_config.m == 0
    result = store.search(vectors[:8], 5)
    assert not result.exact
    assert result.recall == store.recall
    assert [hits[0].key for hits in result.hits] == [e.key for e in made[:8]]
    assert [hits[0].score for hits in result.hits] == pytest.approx([h[0].score for h in exact.hits], abs=1e-6)
    # A search with filters looks at all that fit, and later entries are found at once.
    assert store.search(vectors[:1], 5, [Condition("n", "<", 900)]).exact
    store.add([entry("later", unit(-vectors[0]))])
    assert store.search(unit(-vectors[:1]), 1).hits[0][0].key == "later"
    reader = QdrantStore(place)
    assert reader.recall == store.recall
    reader.close()
    store.delete([e.key for e in made[900:]])
    store.prepare()
    assert store.recall is None
    assert store.search(vectors[:1], 5).exact
    store.close()


def parameters(store: QdrantStore) -> Any:
    info = store._server.info(store._server.name)
    assert info is not None
    return info.config.params.vectors["dense"]


def test_the_share_that_was_found() -> None:
    exact = [[Hit("a", 0.9), Hit("b", 0.8)], [Hit("c", 0.7), Hit("d", 0.6)], []]
    found = [[Hit("a", 0.9), Hit("x", 0.5)], [Hit("c", 0.7), Hit("equal", 0.6)], []]
    assert recall_of_hits(found, exact) == 0.75
    assert recall_of_hits(exact, exact) == 1.0
    assert recall_of_hits([[]], [[]]) == 0.0


def test_the_vector_that_stands_for_a_set() -> None:
    vectors = random_vectors(np.random.default_rng(0), 5, 3, 7)
    slow = [unit(sum(one) / 3) for one in vectors]
    assert np.allclose(dense_of(vectors), slow, atol=1e-6)
    assert np.array_equal(dense_of(vectors[:, :1]), vectors[:, 0])
    opposite = np.stack([vectors[0, 0], -vectors[0, 0]])
    assert np.array_equal(dense_of(opposite), vectors[0, 0])


def test_vectors_that_are_not_as_they_were_written(store: QdrantStore) -> None:
    from qdrant_client import models

    made = entries(20, ONE)
    store.add(made)
    assert list(store.damaged()) == []
    changed = models.PointVectors(id=point_id(made[4].key).uuid, vector={"dense": made[5].vectors[0].tolist()})
    store._server.admin("update_vectors", store._server.name, points=[changed])
    assert list(store.damaged()) == [made[4].key]
    for ask in (lambda: store.get([made[4].key]), lambda: store.search(made[5].vectors[None], 3)):
        with pytest.raises(DiptychError, match=f"the vector of '{made[4].key}' is not as it was written"):
            ask()
    assert store.get([made[3].key])[0] is not None
    store.add([made[4]])
    assert list(store.damaged()) == []


def test_locals_that_are_gone(store: QdrantStore) -> None:
    from qdrant_client import models

    cells = np.ones((3, 2), np.float16)
    store.add([entry("a", entries(1, ONE)[0].vectors, locals=cells)])
    assert locals_kept(store) == 1
    store.add([entry("a", entries(1, ONE)[0].vectors, locals=2 * cells)])
    assert locals_kept(store) == 1
    store._server.admin("delete", store._side, points_selector=models.Filter(), wait=True)
    with pytest.raises(DiptychError, match="local features of 'a'"):
        store.get(["a"])
    assert store.get(["a"], locals=False)[0] is not None


def locals_kept(store: QdrantStore) -> int:
    return store._server.count(store._side, None) - 2  # besides its notes


def test_the_state_tells_of_every_change(store: QdrantStore) -> None:
    made = entries(4, ONE)
    seen = [store.state]
    for change in (
        lambda: store.add(made),
        lambda: store.delete([made[0].key]),
        lambda: store.rename(made[1].key, made[0].stamp),
        lambda: store.set_properties({"a": "b"}),
    ):
        change()
        seen.append(store.state)
        assert store.state == seen[-1]
    assert None not in seen[1:]
    assert len(set(seen)) == 5
    with pytest.raises(DiptychError):
        store.rename("nowhere", made[0].stamp)
    assert store.state is None  # a change that was broken off
    store.add(made)
    assert store.state not in [None, *seen]


def test_a_large_add_goes_in_several_requests(store: QdrantStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.search.stores.qdrant_points.REQUEST_BYTES", 2000)
    monkeypatch.setattr("diptych.search.stores.qdrant_points.KEYS_AT_ONCE", 7)
    made = entries(50, ONE)
    store.add(made)
    assert keys_of(store) == sorted(e.key for e in made)
    assert all(found is not None for found in store.get([e.key for e in made]))


def test_columns_that_the_server_indexes_mean_the_same(store: QdrantStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.search.stores.qdrant_store.COLUMNS_INDEXED_FROM", 1)
    values: list[Value] = ["x", "y", 1, 1.5, 2**53, 2**53 + 1, -3, "1"]
    vector = entries(1, ONE)[0].vectors
    store.add([entry(str(i), vector, metadata={"a.b": value}) for i, value in enumerate(values)])
    asked = [Condition("a.b", o, v) for o in ("=", "!=", "<", "<=", ">", ">=") for v in (1, 1.5, 2**53, 2**53 + 1, "x")]
    before = [[r.key for r in store.records([one])] for one in asked]
    store.prepare()
    assert [[r.key for r in store.records([one])] for one in asked] == before
    assert [r.key for r in store.records([Condition("a.b", ">", 2**53)])] == ["5"]
    assert [r.key for r in store.records([Condition("a.b", "=", 2**53)])] == ["4"]


def test_any_text_lies_among_moments_as_its_letters_do() -> None:
    moments = [taken_span(year)[0] for year in ("2018", "2019", "2019-07", "2019-07-04", "2019-07-04T12:30", "2020")]
    texts = [
        "",
        "2019",
        "2019-07-04",
        "2019-07-04T12:30:00Z",
        "2019:07:04",
        "last",
        " ",
        "2019-07-04t",
        "20190704",
        "٣",
    ]
    for text in [*texts, *moments]:
        for moment in moments:
            number, other = taken_number(text), taken_number(moment)
            assert (number < other, number == other) == (text < moment, text == moment), (text, moment)


def test_words_written_in_pictures_are_cut_as_a_file_cuts_them(store: QdrantStore, tmp_path: Path) -> None:
    kept = [store, SqliteStore(tmp_path / "beside.db", store.layout)]
    vectors = entries(1, store.layout)[0].vectors
    for each in kept:
        each.add([entry("menu", vectors, metadata={"written": "CAFÉ foo_bar"})])
        for words in (["cafe"], ["café"], ["foo"], ["bar", "CAFE"]):
            assert each.written(words, 3) == ["menu"]
        assert each.written(["caf"], 3) == []
    kept[1].close()
