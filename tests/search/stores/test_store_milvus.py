"""What is particular to a store on a server: a lost connection, a restart, and which index the server uses."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.stores.milvus_connection import parse_address
from diptych.search.stores.milvus_store import MilvusStore
from diptych.search.stores.store import Entry, Layout, StoreReplaced
from tests.search.stores import milvus_server
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


class Wire:
    """A line to the server that can be cut, left dead, and mended."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.open: list[socket.socket] = []
        self.carries = True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                self.open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.carries:
                    target.sendall(data)

    def cut(self) -> None:
        # A plain close would leave the accepting thread waiting, and the port open.
        for each in [self.listener, *self.open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.open.clear()

    def mend(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()


@pytest.fixture
def wire(milvus_port: int) -> Iterator[Wire]:
    made = Wire(milvus_port)
    yield made
    made.cut()


def answers_again(store: MilvusStore, seconds: float = 60) -> int:
    """The count, once the server is found again: on a busy machine one call's own patience may be too short."""
    end = time.monotonic() + seconds
    while True:
        try:
            return store.count()
        except DiptychError:
            if time.monotonic() > end:
                raise


def test_a_lost_connection(address: str, wire: Wire) -> None:
    MilvusStore(address, LAYOUT).close()
    far = MilvusStore(address.replace(address.split(":")[2].split("/")[0], str(wire.port)), patience=4)
    made = entries(9, LAYOUT)
    far.add(made[:6])
    wire.cut()
    for action in (lambda: far.add(made), far.count, lambda: far.search(made[0].vectors[None], 2)):
        with pytest.raises(DiptychError, match="cannot be reached"):
            action()
    with pytest.raises(DiptychError, match="cannot be reached"):
        MilvusStore(far.address, patience=1)
    wire.mend()
    assert answers_again(far) == 6
    far.add(made)
    assert keys_of(far) == sorted(e.key for e in made)
    far.close()


def test_a_server_that_does_not_answer(address: str, wire: Wire) -> None:
    MilvusStore(address, LAYOUT).close()
    far = MilvusStore(address.replace(address.split(":")[2].split("/")[0], str(wire.port)), patience=1.5)
    wire.carries = False
    with pytest.raises(DiptychError, match="cannot be reached"):
        far.count()
    wire.carries = True
    wire.cut()
    wire.mend()
    assert answers_again(far) == 0
    far.close()


def test_a_server_that_is_stopped_and_started_again(tmp_path: Path, milvus_port: int) -> None:
    """`milvus_port` is not used, but says that servers run here."""
    process, port = milvus_server.start(tmp_path / "server")
    try:
        store = MilvusStore(f"milvus://127.0.0.1:{port}/restarted", LAYOUT, patience=60)
        made = entries(30, LAYOUT)
        store.add(made)
        store.set_properties({"model": "default"})
        milvus_server.stop(process)
        with pytest.raises(DiptychError, match="cannot be reached"):
            store.add(entries(3, LAYOUT, seed=2))
        process, _ = milvus_server.start(tmp_path / "server", port)
        assert store.count() == 30
        assert store.properties == {"model": "default"}
        assert store.search(made[4].vectors[None], 1).hits[0][0].key == made[4].key
        store.add(entries(3, LAYOUT, seed=2))
        store.close()
    finally:
        milvus_server.stop(process)


def test_a_collection_that_is_not_ours(milvus_port: int) -> None:
    from pymilvus import MilvusClient

    client = MilvusClient(f"http://127.0.0.1:{milvus_port}", timeout=30)
    if not client.has_collection("foreign"):
        client.create_collection("foreign", dimension=12)
    with pytest.raises(DiptychError, match="not an index"):
        MilvusStore(f"milvus://127.0.0.1:{milvus_port}/foreign", LAYOUT)


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


def drop(address: str) -> None:
    """Both collections of a store, as someone who makes it anew would."""
    from pymilvus import MilvusClient

    uri, name = parse_address(address)
    client = MilvusClient(uri, timeout=60)
    client.drop_collection(name)
    client.drop_collection(f"{name}_side")
    client.close()


def remade(address: str, contents: list[Entry], model: str | None = "a", layout: Layout = LAYOUT) -> None:
    drop(address)
    store = MilvusStore(address, layout)
    if model is not None:
        store.set_properties({"model": model, "locals": ""})
    store.add(contents)
    store.close()


def test_a_collection_made_again_under_an_open_store(milvus_port: int) -> None:
    """Names, vectors and counts are those of the new one at the next look; one of another kind, or none, is told."""
    place, old, new = emptied(milvus_port, "again"), entries(9, LAYOUT), entries(5, LAYOUT, seed=1)
    opened = MilvusStore(place, LAYOUT)
    opened.set_properties({"model": "a", "locals": ""})
    opened.add(old)
    reader = MilvusStore(place)
    before = reader.identity
    query = new[0].vectors[None]
    assert reader.search(query, 3).hits[0]
    assert reader.identity == before

    remade(place, new)
    assert [hit.key for hit in reader.search(query, 1).hits[0]] == [new[0].key]
    assert reader.identity != before
    assert reader.count() == 5
    assert keys_of(reader) == sorted(e.key for e in new)
    opened.add([entry("mine", old[0].vectors)])  # of the same kind: a writer goes on in it
    assert reader.count() == 6

    remade(place, new, model="b")
    for ask in (reader.count, lambda: reader.search(query, 3), lambda: opened.add(old), lambda: list(reader.stamps())):
        with pytest.raises(StoreReplaced, match="replaced while it was open by an index made with 'b', not 'a'"):
            ask()
    other = MilvusStore(place)
    assert other.count() == 5  # nothing of another model was written into it
    other.close()

    drop(place)
    for ask in (reader.count, lambda: reader.search(query, 3), lambda: opened.delete([new[0].key])):
        with pytest.raises(StoreReplaced, match="no such index any more"):
            ask()
    reader.close()
    opened.close()
