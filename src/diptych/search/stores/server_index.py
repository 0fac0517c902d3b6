"""Which index a server searches with: all vectors, or beyond the exact range an approximate one, measured."""

import json
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Generic, TypeVar

import numpy as np

# A new index is noticed after so many seconds.
KNOWN_FOR = 5.0
MEASURED_TOP = 10
# Building a graph takes the server a while.
BUILD_PATIENCE = 3600.0
# How many candidates a graph's search keeps: the first that reaches the floor is used.
BREADTHS = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class IndexState:
    """How to search.

    breadth: HNSW's ef, 0 for all vectors
    recall: as it was measured; None where searches are exact
    vectors: how many there were when it was decided
    """

    breadth: int = 0
    recall: float | None = None
    vectors: int = 0


S = TypeVar("S", bound=IndexState)


class ServerIndex(ABC, Generic[S]):
    """The index of a store's collection; how to search is written down on the server, for all who search."""

    def __init__(self, exact: S, set_size: int, exact_up_to: int) -> None:
        """exact: how to search all vectors."""
        self._exact_state = exact
        self._set_size = set_size
        self._exact_up_to = exact_up_to
        self._known: tuple[float, S] | None = None

    def state(self) -> S:
        """How to search now; another process may have changed it."""
        if self._known is None or time.monotonic() - self._known[0] > KNOWN_FOR:
            text = self._read()
            state = replace(self._exact_state, **json.loads(text)) if text else self._exact_state
            self._known = (time.monotonic(), state)
        return self._known[1]

    def forget(self) -> None:
        """The next search asks the server how to search."""
        self._known = None

    def prepare(self, entries: int, queries: np.ndarray) -> None:
        """Build and measure a graph where there are too many vectors to look at; drop it where there are not."""
        vectors, state = entries * self._set_size, self.state()
        if vectors <= self._exact_up_to:
            if state.breadth:
                self._note(self._exact_state)
                self._drop()
            return
        if state.vectors and abs(vectors - state.vectors) <= 0.2 * state.vectors:
            return
        good = self._built(queries)
        self._note(replace(good or self._exact_state, vectors=vectors))
        if good is None:
            self._drop()

    def _note(self, state: S) -> None:
        self._write(json.dumps(asdict(state)))
        self._known = (time.monotonic(), state)

    @abstractmethod
    def _read(self) -> str | None:
        """What was written down of how to search."""

    @abstractmethod
    def _write(self, text: str) -> None:
        """Write down how to search."""

    @abstractmethod
    def _built(self, queries: np.ndarray) -> S | None:
        """Build the graph; how to search with it, or None where it does not find enough."""

    @abstractmethod
    def _drop(self) -> None:
        """Let go of the graph."""
