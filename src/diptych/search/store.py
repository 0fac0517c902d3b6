"""What an index needs of a store: a small protocol, so that one file and a cluster are used alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

Value = str | float
Kind = Literal["picture", "sentence"]


@dataclass(frozen=True)
class Stamp:
    """How a file is known again without reading it: size in bytes, time of change in nanoseconds, content hash."""

    key: str
    size: int
    changed: int
    digest: str


@dataclass(frozen=True)
class Entry:
    """One picture or sentence with its vectors.

    key: what it is called: a picture's path, or file#line of a sentence; unique in the store
    vectors: (K, d) float32 unit vectors, K = 1 for most models
    text: the sentence itself; empty for a picture
    metadata: columns that filters can ask for
    locals: what a re-ranker needs of a picture, (cells, f) float16, where it is kept
    """

    key: str
    kind: Kind
    vectors: np.ndarray
    stamp: Stamp
    text: str = ""
    metadata: dict[str, Value] = field(default_factory=dict)
    locals: np.ndarray | None = None


@dataclass(frozen=True)
class Condition:
    """One filter: `field` is "path" (a glob pattern with `matches`), "kind", "date" or any metadata column."""

    field: str
    operator: Literal["=", "!=", "<", "<=", ">", ">=", "matches"]
    value: Value


@dataclass(frozen=True)
class Hit:
    """One result of a store: its key and exact score."""

    key: str
    score: float


@dataclass(frozen=True)
class Search:
    """What a store's search gave: hits of each query, best first, and whether every vector was looked at."""

    hits: list[list[Hit]]
    exact: bool


class Store(Protocol):
    """Entries by key, searched by their vectors. One writer, any number of readers."""

    @property
    def dim(self) -> int:
        """d."""

    @property
    def set_size(self) -> int:
        """K."""

    @property
    def properties(self) -> dict[str, str]:
        """What the index wrote down of itself (its model, when it was made); small strings by name."""

    def set_properties(self, changes: dict[str, str]) -> None:
        """Add or change properties."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries; one with a key that is there already takes its place. All of them or none."""

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there."""

    def get(self, keys: Sequence[str]) -> list[Entry | None]:
        """Whole entries in the order asked for, None where there is none."""

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """The stamps of all entries whose key begins with `prefix`, in key order, without their vectors."""

    def rename(self, old: str, new: Stamp) -> None:
        """A file moved: the entry takes its new key and stamp, vectors and metadata stay."""

    def search(self, queries: np.ndarray, top: int, where: Sequence[Condition] = ()) -> Search:
        """The `top` best of those that fit `where`, for each query (q, K, d), by cosine or smooth-Chamfer."""

    def background(self, count: int) -> np.ndarray:
        """Vectors (count, K, d) of entries spread over the store, the same every time for the same contents."""

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit."""

    def close(self) -> None:
        """Let go of files and connections; closing twice is fine."""
