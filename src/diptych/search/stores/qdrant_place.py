"""A name on a Qdrant server, as a watch sees it."""

from diptych.search.stores.qdrant_connection import QdrantConnection
from diptych.search.stores.qdrant_notes import QdrantNotes
from diptych.search.stores.qdrant_rows import read_about
from diptych.search.stores.store import Layout, StoreReplaced


class QdrantPlace:
    """The collection of a store by its name; a number that no other ever has was written into it when it was made."""

    def __init__(self, server: QdrantConnection, properties: QdrantNotes) -> None:
        self._server, self._properties = server, properties

    @property
    def address(self) -> str:
        """qdrant://host:port/name."""
        return self._server.address

    def number(self) -> str | None:
        """That of the collection; None where there is none."""
        about = read_about(self._server)
        return None if about is None else about[0]

    def layout(self) -> Layout:
        """What the collection was made for."""
        about = read_about(self._server)
        if about is None:
            raise StoreReplaced(f"{self.address}: no such index any more: it was deleted while it was open")
        return about[1]

    def properties(self) -> dict[str, str]:
        """The small strings that are kept beside the entries."""
        return self._properties.read()
