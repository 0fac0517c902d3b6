"""What is particular to a store on a server: a lost connection, a restart, a kill, and a collection made again."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from diptych.common.errors import DiptychError
from diptych.search.stores.address import open_store
from diptych.search.stores.milvus_connection import parse_address
from diptych.search.stores.qdrant_connection import QdrantConnection
from diptych.search.stores.store import Entry, Layout, Store, StoreReplaced
from tests.search.stores import milvus_server, qdrant_server
from tests.search.stores.backends import EMPTY, WORKER
from tests.search.stores.store_cases import assert_same_entry, entries, entry, keys_of

LAYOUT = Layout(12)


@dataclass(frozen=True)
class Server:
    """A server that runs for all tests, and how to start more."""

    kind: str
    port: int
    module: ModuleType

    def address(self, name: str, port: int | None = None) -> str:
        return f"{self.kind}://127.0.0.1:{port or self.port}/{name}"

    def emptied(self, name: str) -> str:
        """The address of an empty store; those of the other tests are used again, since making one takes seconds."""
        place = self.address(f"test_{WORKER}_{name}")
        EMPTY[self.kind](place)
        return place


@pytest.fixture(params=["milvus", "qdrant"])
def server(request: pytest.FixtureRequest) -> Server:
    module = {"milvus": milvus_server, "qdrant": qdrant_server}[request.param]
    return Server(request.param, request.getfixturevalue(f"{request.param}_port"), module)


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
def wire(server: Server) -> Iterator[Wire]:
    made = Wire(server.port)
    yield made
    made.cut()


def answers_again(store: Store, seconds: float = 60) -> int:
    """The count, once the server is found again: on a busy machine one call's own patience may be too short."""
    end = time.monotonic() + seconds
    while True:
        try:
            return store.count()
        except DiptychError:
            if time.monotonic() > end:
                raise


def through(wire: Wire, address: str, patience: float) -> Store:
    """The store at an address, at the other end of a wire."""
    open_store(address, LAYOUT).close()
    return open_store(address.replace(address.split(":")[2].split("/")[0], str(wire.port)), patience=patience)


def test_a_lost_connection(server: Server, wire: Wire) -> None:
    far = through(wire, server.emptied("12_1"), patience=4)
    made = entries(9, LAYOUT)
    far.add(made[:6])
    wire.cut()
    for action in (lambda: far.add(made), far.count, lambda: far.search(made[0].vectors[None], 2)):
        with pytest.raises(DiptychError, match="cannot be reached"):
            action()
    with pytest.raises(DiptychError, match="cannot be reached"):
        open_store(far.address, patience=1)
    wire.mend()
    assert answers_again(far) == 6
    far.add(made)
    assert keys_of(far) == sorted(e.key for e in made)
    far.close()


def test_a_server_that_does_not_answer(server: Server, wire: Wire) -> None:
    far = through(wire, server.emptied("12_1"), patience=1.5)
    wire.carries = False
    with pytest.raises(DiptychError, match="cannot be reached"):
        far.count()
    wire.carries = True
    wire.cut()
    wire.mend()
    assert answers_again(far) == 0
    far.close()


def test_a_server_that_is_stopped_and_started_again(server: Server, tmp_path: Path) -> None:
    start, stop = server.module.start, server.module.stop
    process, port = start(tmp_path / "server")
    try:
        store = open_store(server.address("restarted", port), LAYOUT, patience=60)
        made = entries(30, LAYOUT)
        store.add(made)
        store.set_properties({"model": "default"})
        stop(process)
        with pytest.raises(DiptychError, match="cannot be reached"):
            store.add(entries(3, LAYOUT, seed=2))
        process, _ = start(tmp_path / "server", port)
        assert store.count() == 30
        assert store.properties == {"model": "default"}
        assert store.search(made[4].vectors[None], 1).hits[0][0].key == made[4].key
        store.add(entries(3, LAYOUT, seed=2))
        store.close()
    finally:
        stop(process)


def test_a_server_killed_in_the_middle_of_an_import_loses_nothing_that_it_took(server: Server, tmp_path: Path) -> None:
    """Entries are added a few at a time until the server is gone; all whose `add` returned are there afterwards."""
    layout = Layout(8, set_size=4)
    process, port = server.module.start(tmp_path / "server")
    made = [
        entry(f"{i:05d}", e.vectors, changed=i, metadata={"n": i}, text=f"sentence {i}")
        for i, e in enumerate(entries(5000, layout))
    ]
    kept, enough = 0, threading.Event()

    def kill() -> None:
        enough.wait()
        server.module.kill(process)

    killer = threading.Thread(target=kill)
    try:
        store = open_store(server.address("killed", port), layout, patience=60)
        killer.start()
        with contextlib.suppress(DiptychError):
            for i in range(0, len(made), 5):
                store.add(made[i : i + 5])
                kept = i + 5
                if kept == 100:
                    enough.set()
        killer.join()
        assert kept >= 100
        assert kept < len(made)
        process, _ = server.module.start(tmp_path / "server", port)
        answers_again(store)
        for found, wanted in zip(store.get([e.key for e in made[:kept]]), made, strict=False):
            assert_same_entry(found, wanted)
        # What was under way may be there too, and nothing else is.
        assert keys_of(store)[:kept] == [e.key for e in made[:kept]]
        assert store.count() in range(kept, kept + 6)
        assert list(store.damaged()) == []
        store.add(made[kept : kept + 5])
        assert store.count() == kept + 5
        assert store.search(made[kept].vectors[None], 1).hits[0][0].key == made[kept].key
        store.close()
    finally:
        server.module.stop(process)


def test_a_collection_that_is_not_ours(server: Server) -> None:
    FOREIGN[server.kind](server.address("foreign"))
    with pytest.raises(DiptychError, match="not an index"):
        open_store(server.address("foreign"), LAYOUT)


def foreign_milvus(address: str) -> None:
    with milvus(address) as client:
        if not client.has_collection("foreign"):
            client.create_collection("foreign", dimension=12)


def foreign_qdrant(address: str) -> None:
    with qdrant(address) as client:
        if not client.collection_exists("foreign"):
            client.create_collection("foreign", vectors_config={})


@contextlib.contextmanager
def milvus(address: str) -> Iterator[Any]:
    from pymilvus import MilvusClient

    client = MilvusClient(parse_address(address)[0], timeout=60)
    yield client
    client.close()


@contextlib.contextmanager
def qdrant(address: str) -> Iterator[Any]:
    server = QdrantConnection(address, 60)
    yield server.client
    server.close()


FOREIGN: dict[str, Callable[[str], None]] = {"milvus": foreign_milvus, "qdrant": foreign_qdrant}


def drop(server: Server, address: str) -> None:
    """Both collections of a store, as someone who makes it anew would."""
    name = address.rpartition("/")[2]
    with (milvus if server.kind == "milvus" else qdrant)(address) as client:
        for collection in (name, f"{name}_side"):
            (client.drop_collection if server.kind == "milvus" else client.delete_collection)(collection)


def remade(server: Server, address: str, contents: list[Entry], model: str | None = "a") -> None:
    drop(server, address)
    store = open_store(address, LAYOUT)
    if model is not None:
        store.set_properties({"model": model, "locals": ""})
    store.add(contents)
    store.close()


def test_a_collection_made_again_under_an_open_store(server: Server) -> None:
    """Names, vectors and counts are those of the new one at the next look; one of another kind, or none, is told."""
    place, old, new = server.emptied("again"), entries(9, LAYOUT), entries(5, LAYOUT, seed=1)
    opened = open_store(place, LAYOUT)
    opened.set_properties({"model": "a", "locals": ""})
    opened.add(old)
    reader = open_store(place)
    before = reader.identity
    query = new[0].vectors[None]
    assert reader.search(query, 3).hits[0]
    assert reader.identity == before

    remade(server, place, new)
    assert [hit.key for hit in reader.search(query, 1).hits[0]] == [new[0].key]
    assert reader.identity != before
    assert reader.count() == 5
    assert keys_of(reader) == sorted(e.key for e in new)
    opened.add([entry("mine", old[0].vectors)])  # of the same kind: a writer goes on in it
    assert reader.count() == 6

    remade(server, place, new, model="b")
    for ask in (reader.count, lambda: reader.search(query, 3), lambda: opened.add(old), lambda: list(reader.stamps())):
        with pytest.raises(StoreReplaced, match="replaced while it was open by an index made with 'b', not 'a'"):
            ask()
    other = open_store(place)
    assert other.count() == 5  # nothing of another model was written into it
    other.close()

    drop(server, place)
    for ask in (reader.count, lambda: reader.search(query, 3), lambda: opened.delete([new[0].key])):
        with pytest.raises(StoreReplaced, match="no such index any more"):
            ask()
    reader.close()
    opened.close()
