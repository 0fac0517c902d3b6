"""Which collection of a server is behind a name: seen at every look, since another may take its place."""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from diptych.common.errors import DiptychError
from diptych.search.stores.replaced import check_replaced, made_with
from diptych.search.stores.store import Layout, StoreReplaced

# How often a look is begun again; a store that is made anew more often meanwhile is an error.
TIMES = 3
T = TypeVar("T")


class StorePlace(Protocol):
    """A name on a server, and what is told of the collection that it has now."""

    @property
    def address(self) -> str:
        """What errors name."""

    def number(self) -> str | None:
        """What no other collection ever has; None where there is no collection."""

    def layout(self) -> Layout:
        """What the collection was made for."""

    def properties(self) -> dict[str, str]:
        """The small strings that are kept beside the entries."""


class Watch:
    """The collection that a store has open, and what it was made for.

    Every collection has a number that no other ever has. A look whose collection has the same number afterwards saw
    nothing but that collection, however many requests it took; any other look is begun again.
    """

    def __init__(self, place: StorePlace, changed: Callable[[], None]) -> None:
        """changed: told when another collection has taken the place of the one before."""
        self._place, self._changed = place, changed
        self._lock = threading.Lock()
        self._number = self._there()
        self.layout = place.layout()
        self._made_with = made_with(place.properties())

    @property
    def number(self) -> str:
        """That of the collection which is there now."""
        self.settle()
        return self._number

    def noted(self, properties: Mapping[str, str]) -> None:
        """Properties were written; those that a collection made again must share are kept in mind."""
        self._made_with = {**self._made_with, **made_with(properties)}

    def settle(self) -> None:
        """Go on with the collection that is there now, where it is of the same kind; else it is an error."""
        there = self._there()
        with self._lock:
            if there == self._number:
                return
            made_now = made_with(self._place.properties())
            check_replaced(self._place.address, self.layout, self._place.layout(), self._made_with, made_now)
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
        raise StoreReplaced(f"{self._place.address}: made again and again while it was read")

    def write(self, action: Callable[[], T]) -> T:
        """What a change gives, that is made in a collection of the kind that was opened."""
        self.settle()
        return self.look(action)

    def _same(self, begun: str) -> bool:
        return self._there() == begun

    def _there(self) -> str:
        """The number of the collection that the name has now."""
        number = self._place.number()
        if number is None:
            raise StoreReplaced(f"{self._place.address}: no such index any more: it was deleted while it was open")
        return number
