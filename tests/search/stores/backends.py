"""The stores that the common tests run on: one file, and real Milvus and Qdrant servers where they can run."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from diptych.search.stores.address import open_store
from diptych.search.stores.milvus_connection import parse_address
from diptych.search.stores.qdrant_connection import QdrantConnection
from diptych.search.stores.qdrant_notes import make_notes
from diptych.search.stores.store import Layout
from tests.search.stores import milvus_server, qdrant_server

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")


class Backend:
    """Makes and opens stores of one kind, `sqlite`, `milvus` or `qdrant`, and closes them all at the end of a test."""

    def __init__(self, kind: str, folder: Path, port: int | None = None) -> None:
        self.kind, self.folder, self.port = kind, folder, port
        self.opened: list[Any] = []

    def address(self, layout: Layout) -> str:
        name = f"{layout.dim}_{layout.set_size}"
        if self.port is None:
            return str(self.folder / f"{name}.diptych")
        return f"{self.kind}://127.0.0.1:{self.port}/test_{WORKER}_{name}"

    def open(self, address: str, layout: Layout | None = None) -> Any:
        store = open_store(address, layout)
        self.opened.append(store)
        return store

    def fresh(self, layout: Layout) -> Any:
        """An empty store; on a server one that was there before is emptied, since making one takes seconds."""
        address = self.address(layout)
        if self.port is not None:
            EMPTY[self.kind](address)
        else:
            for file in self.folder.glob(f"{Path(address).name}*"):
                file.unlink()
        return self.open(address, layout)

    def close(self) -> None:
        for store in self.opened:
            store.close()
        self.opened.clear()


def empty_milvus(address: str) -> None:
    """Remove everything from the store at an address, where there is one."""
    from pymilvus import MilvusClient

    uri, name = parse_address(address)
    client = MilvusClient(uri, timeout=60)
    try:
        for collection in client.list_collections():
            if collection == name or collection.startswith(f"{name}_"):
                fields = client.describe_collection(collection)["fields"]
                key = next(field["name"] for field in fields if field.get("is_primary"))
                client.load_collection(collection)
                client.delete(collection, filter=f'{key} >= ""')
    finally:
        client.close()


def empty_qdrant(address: str) -> None:
    """Remove everything from the store at an address, where there is one."""
    from qdrant_client import models

    server = QdrantConnection(address, 60)
    try:
        for collection in (server.name, f"{server.name}_side"):
            if server.info(collection) is not None:
                server.admin("delete", collection, points_selector=models.Filter(), wait=True)
                if collection != server.name:
                    make_notes(server, collection)
    finally:
        server.close()


EMPTY: dict[str, Callable[[str], None]] = {"milvus": empty_milvus, "qdrant": empty_qdrant}


@pytest.fixture(scope="session")
def milvus_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real server on 127.0.0.1; the tests that need it are skipped, with the reason, where it cannot run."""
    pytest.importorskip("pymilvus")
    try:
        process, port = milvus_server.start(tmp_path_factory.mktemp("milvus") / "data")
    except RuntimeError as error:
        pytest.skip(str(error))
    yield port
    milvus_server.stop(process)


@pytest.fixture(scope="session")
def qdrant_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real server on 127.0.0.1; the tests that need it are skipped, with the reason, where it cannot run."""
    pytest.importorskip("qdrant_client")
    try:
        process, port = qdrant_server.start(tmp_path_factory.mktemp("qdrant"))
    except RuntimeError as error:
        pytest.skip(str(error))
    yield port
    qdrant_server.stop(process)


@pytest.fixture(params=["sqlite", "milvus", "qdrant"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    port = request.getfixturevalue(f"{request.param}_port") if request.param != "sqlite" else None
    made = Backend(request.param, tmp_path, port)
    yield made
    made.close()
