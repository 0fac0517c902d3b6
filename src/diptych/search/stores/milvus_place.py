"""A name on a Milvus server, as a watch sees it."""

from diptych.search.stores.conditions import prefix_range
from diptych.search.stores.milvus_connection import MilvusConnection
from diptych.search.stores.milvus_rows import collection_number, read_layout
from diptych.search.stores.store import Layout

PROPERTY = "p\x01"


class MilvusPlace:
    """The two collections of a store by their names; the server gives each a number that no other ever has."""

    def __init__(self, server: MilvusConnection, name: str, side: str) -> None:
        self._server, self._name, self._side = server, name, side

    @property
    def address(self) -> str:
        """milvus://host:port/name."""
        return self._server.address

    def number(self) -> str | None:
        """The server's number of the collection; None where there is none."""
        number = collection_number(self._server, self._name)
        return None if number is None else str(number)

    def layout(self) -> Layout:
        """What the collection was made for."""
        return read_layout(self._server, self._name)

    def properties(self) -> dict[str, str]:
        """The small strings that are kept beside the entries."""
        pages = self._server.pages(self._side, prefix_range("id", PROPERTY), ["data"], 4096)
        return {row["id"].removeprefix(PROPERTY): row["data"] for page in pages for row in page}
