"""The addresses of stores, and one way to open any of them."""

from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.common.user_folders import data_folder
from diptych.search.stores.store import EXACT_UP_TO, RECALL_FLOOR, Layout, Store

# What the addresses of servers begin with.
SERVERS = ("milvus:", "qdrant:", "qdrants:")


def open_store(
    address: str | Path,
    layout: Layout | None = None,
    *,
    exact_up_to: int = EXACT_UP_TO,
    recall_floor: float = RECALL_FLOOR,
    patience: float = 30.0,
) -> Store:
    """Open the store at a file's path or a server's address; with `layout` make it where there is none.

    patience: seconds to wait for another writer, or for the server
    """
    text = str(address)
    if isinstance(address, str) and text.startswith("milvus:"):
        from diptych.search.stores.milvus_store import MilvusStore

        return MilvusStore(text, layout, exact_up_to=exact_up_to, recall_floor=recall_floor, patience=patience)
    if isinstance(address, str) and text.startswith(("qdrant:", "qdrants:")):
        from diptych.search.stores.qdrant_store import QdrantStore

        return QdrantStore(text, layout, exact_up_to=exact_up_to, recall_floor=recall_floor, patience=patience)
    if isinstance(address, str) and "://" in text:
        raise DiptychError(f"{text}: expected a file's path, milvus://host:port/name or qdrant://host:port/name")
    from diptych.search.stores.sqlite_store import SqliteStore

    return SqliteStore(address, layout, exact_up_to=exact_up_to, recall_floor=recall_floor, patience=patience)


def default_index() -> Path:
    """The index that is used where none is named: one for each user."""
    return data_folder() / "index.db"
