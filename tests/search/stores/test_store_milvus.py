"""What is particular to a store on a Milvus server: its limits, and which index it uses."""

import os

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.stores.milvus_connection import parse_address
from diptych.search.stores.milvus_store import MilvusStore
from diptych.search.stores.store import Layout
from tests.search.stores.backends import empty_milvus
from tests.search.stores.store_cases import assert_same_entry, entries, entry, keys_of, random_vectors

LAYOUT = Layout(12)


@pytest.fixture
def address(milvus_port: int) -> str:
    return emptied(milvus_port, "12_1")


def emptied(port: int, name: str) -> str:
    """The address of an empty store; those of the other tests are used again, since making one takes seconds."""
    place = f"milvus://127.0.0.1:{port}/test_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{name}"
    empty_milvus(place)
    return place


def test_locals_of_any_size(address: str) -> None:
    store = MilvusStore(address, LAYOUT)
    rng = np.random.default_rng(0)
    made = [
        entry(str(f), random_vectors(rng, 1, 12), locals=rng.standard_normal((49, f)).astype(np.float16))
        for f in (1, 500, 501, 502, 1280)
    ]
    store.add(made)
    for found, wanted in zip(store.get([e.key for e in made]), made, strict=True):
        assert_same_entry(found, wanted)
    rows = store._server.query(store._side, 'id >= ""', ["count(*)"])[0]["count(*)"]
    store.add([entry("1280", made[0].vectors)])
    store.delete(["500", "501"])
    left = store._server.query(store._side, 'id >= ""', ["count(*)"])[0]["count(*)"]
    assert (rows, left) == (1 + 1 + 1 + 2 + 3, 1 + 2)
    store.close()


def test_texts_that_are_too_long(address: str) -> None:
    store = MilvusStore(address, LAYOUT)
    vector = random_vectors(np.random.default_rng(0), 1, 12)
    for bad in (entry("a", vector, text="x" * 70_000), entry("a", vector, metadata={"m": "x" * 70_000})):
        with pytest.raises(DiptychError, match="too long for Milvus"):
            store.add([entry("fine", vector), bad])
    with pytest.raises(DiptychError, match="16,384"):
        store.search(vector[None], 20_000)
    assert store.count() == 0
    store.close()


def test_a_large_add_goes_in_several_requests(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.search.stores.milvus_store.REQUEST_BYTES", 2000)
    store, made = MilvusStore(address, LAYOUT), entries(50, LAYOUT)
    store.add(made)
    assert keys_of(store) == sorted(e.key for e in made)
    store.close()


def test_sets_are_proven_exact_or_said_not_to_be(milvus_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few results a request the search goes deeper until it is proven; with too few it says so."""
    layout = Layout(8, set_size=4)
    store = MilvusStore(emptied(milvus_port, "8_4"), layout)
    made = entries(120, layout)
    store.add(made)
    query = made[5].vectors[None]
    whole = store.search(query, 3)
    assert whole.exact
    monkeypatch.setattr("diptych.search.stores.milvus_search.MOST_RESULTS", 12)
    shallow = store.search(query, 3)
    assert not shallow.exact
    assert shallow.hits[0][0] == whole.hits[0][0]
    store.close()


def test_a_graph_beyond_the_exact_range(milvus_port: int) -> None:
    place, layout = emptied(milvus_port, "graph"), Layout(16)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((30, 16))[rng.integers(0, 30, 3000)] + 0.3 * rng.standard_normal((3000, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)[:, None]
    made = [entry(f"{i:04d}", v) for i, v in enumerate(vectors)]
    # A floor that cannot be reached: searches stay exact, and it is not tried again at once.
    store = MilvusStore(place, layout, exact_up_to=1500, recall_floor=1.01)
    store.add(made[:2000])
    assert store.search(vectors[:1], 5).exact
    store.prepare()
    store.prepare()
    assert store.recall is None
    assert store.search(vectors[:1], 5).exact
    store.close()
    store = MilvusStore(place, exact_up_to=1500)
    store.add(made[2000:])
    store.prepare()
    assert store.recall is not None
    assert store.recall >= 0.95
    result = store.search(vectors[:20], 5)
    assert not result.exact
    assert result.recall == store.recall
    assert [hits[0].key for hits in result.hits] == [e.key for e in made[:20]]
    reader = MilvusStore(place)
    assert reader.recall == store.recall
    reader.close()
    store.delete([e.key for e in made[1500:]])
    store.prepare()
    assert store.recall is None
    assert store.search(vectors[:1], 5).exact
    store.close()


def test_addresses() -> None:
    assert parse_address("milvus://db.example/pictures") == ("http://db.example:19530", "pictures")
    assert parse_address("milvus://[::1]:7/p_1") == ("http://[::1]:7", "p_1")
    for bad in ("milvus:///x", "milvus://h/x?y=1", "milvus://h/1x", "milvus://h:0x/x", "milvus://h/x/y"):
        with pytest.raises(DiptychError, match="milvus"):
            parse_address(bad)
    with pytest.raises(DiptychError, match="user and a password cannot be given") as told:
        parse_address("milvus://me:secret@h/x")
    assert "secret" not in str(told.value)
