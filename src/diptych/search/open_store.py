"""One way to open any store: by its address."""

from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.search.store import EXACT_UP_TO, RECALL_FLOOR, Layout, Store


def open_store(
    address: str | Path,
    layout: Layout | None = None,
    *,
    exact_up_to: int = EXACT_UP_TO,
    recall_floor: float = RECALL_FLOOR,
    patience: float = 30.0,
) -> Store:
    """Open the store at a file's path or at milvus://host:port/name; with `layout` make it where there is none.

    patience: seconds to wait for another writer, or for the server
    """
    text = str(address)
    if isinstance(address, str) and text.startswith("milvus:"):
        from diptych.search.milvus_store import MilvusStore

        return MilvusStore(text, layout, exact_up_to=exact_up_to, recall_floor=recall_floor, patience=patience)
    if isinstance(address, str) and "://" in text:
        raise DiptychError(f"{text}: expected a file's path or milvus://host:port/name")
    from diptych.search.sqlite_store import SqliteStore

    return SqliteStore(address, layout, exact_up_to=exact_up_to, recall_floor=recall_floor, patience=patience)
