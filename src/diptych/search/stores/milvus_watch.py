"""Which collection of a Milvus server is behind a name: seen at every look, since another may take its place."""

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import prefix_range
from diptych.search.stores.milvus_connection import MilvusConnection
from diptych.search.stores.milvus_rows import collection_number, read_layout
from diptych.search.stores.replaced import check_replaced, made_with
from diptych.search.stores.store import StoreReplaced

# How often a look is begun again; a store that is made anew more often meanwhile is an error.
TIMES = 3
PROPERTY = "p\x01"
T = TypeVar("T")


class MilvusWatch:
    """The collection that a store has open, and what it was made for.

    The server gives every collection a number that no other ever has. A look whose collection has the same number
    afterwards saw nothing but that collection, however many requests it took; any other look is begun again.
    """

    def __init__(self, server: MilvusConnection, name: str, side: str, changed: Callable[[], None]) -> None:
        """changed: told when another collection has taken the place of the one before."""
        self._server, self._name, self._side, self._changed = server, name, side, changed
        self._lock = threading.Lock()
        self._number = self._there()
        self.layout = read_layout(server, name)
        self._made_with = made_with(self.properties())

    @property
    def number(self) -> int:
        """That of the collection which is there now."""
        self.settle()
        return self._number

    def properties(self) -> dict[str, str]:
        """The small strings that are kept beside the entries."""
        pages = self._server.pages(self._side, prefix_range("id", PROPERTY), ["data"], 4096)
        return {row["id"].removeprefix(PROPERTY): row["data"] for page in pages for row in page}

    def noted(self, properties: Mapping[str, str]) -> None:
        """Properties were written; those that a collection made again must share are kept in mind."""
        self._made_with = {**self._made_with, **made_with(properties)}

    def settle(self) -> None:
        """Go on with the collection that is there now, where it is of the same kind; else it is an error."""
        there = self._there()
        with self._lock:
            if there == self._number:
                return
            layout = read_layout(self._server, self._name)
            check_replaced(self._server.address, self.layout, layout, self._made_with, made_with(self.properties()))
            self._number = there
        self._changed()

    def look(self, action: Callable[[], T]) -> T:
        """What a look at the collection gives, all of it of one and the same."""
        for _ in range(TIMES):
            begun = self._number
            try:
                found = action()
            except DiptychError:
                if self._same(begun):
                    raise
            else:
                if self._same(begun):
                    return found
            self.settle()
        raise StoreReplaced(f"{self._server.address}: made again and again while it was read")

    def write(self, action: Callable[[], T]) -> T:
        """What a change gives, that is made in a collection of the kind that was opened."""
        self.settle()
        return self.look(action)

    def _same(self, begun: int) -> bool:
        return self._there() == begun

    def _there(self) -> int:
        """The number of the collection that the name has now."""
        number = collection_number(self._server, self._name)
        if number is None:
            raise StoreReplaced(f"{self._server.address}: no such index any more: it was deleted while it was open")
        return number
