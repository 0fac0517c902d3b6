"""What an index needs of a store: a small protocol, so that one file and a cluster are used alike."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

import numpy as np

from diptych.common.errors import DiptychError
from diptych.matchers.layout import Layout as Layout

Value = str | float
Kind = Literal["picture", "sentence"]
# The fields that every entry has; a metadata column cannot be called so.
OWN_FIELDS = ("path", "kind", "date")
# The column of what is written in a picture.
WRITTEN = "written"
# The property that says whether what is written in pictures is read.
TEXT_IN_PICTURES = "text-in-pictures"
# Up to so many vectors every one is looked at; beyond, an approximate index says which are.
EXACT_UP_TO = 200_000
# An approximate index that finds less of what an exact search finds is not used.
RECALL_FLOOR = 0.95
# What a store takes for a unit vector may be off by 0.01, and by rounding.
UNIT_TOLERANCE = 0.02


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
class Record:
    """What a store knows of an entry besides its vectors."""

    key: str
    kind: Kind
    stamp: Stamp
    text: str = ""
    metadata: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Description:
    """What is new of an entry whose vectors stay: its stamp, and all of its columns."""

    stamp: Stamp
    metadata: dict[str, Value]


@dataclass(frozen=True)
class Condition:
    """One filter: `field` is "path", "kind", "date" or any metadata column.

    matches: a glob pattern on the path or on a column of text; * and ? stand for any characters, folders included
    date: when the picture was taken, or where it does not say when its file was changed: "2024", "2024-05",
        "2024-05-01", "2024-05-01T12:30" or seconds since 1970
    !=: fits whatever = does not fit, also entries that do not have the column
    """

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
    """What a store's search gave.

    hits: of each query, best first
    exact: whether every vector that fits was looked at (or shown to be too far away)
    recall: of an approximate search, the share of the exact results that it found when it was measured
    """

    hits: list[list[Hit]]
    exact: bool
    recall: float | None = None


class StoreReplaced(DiptychError):  # noqa: N818
    """The store that was opened is not there any more, and what is in its place is another."""


class Store(Protocol):
    """Entries by key, searched by their vectors. One writer, any number of readers."""

    @property
    def address(self) -> str:
        """What opens it again: a file's path, or milvus://host:port/name, or qdrant://host:port/name."""

    @property
    def identity(self) -> str:
        """Which store it is now; one that is made again at the same address has another, where that can be seen."""

    @property
    def state(self) -> str | None:
        """Another text whenever the contents are others, whoever changed them; None where that cannot be seen."""

    @property
    def state_takes_time(self) -> bool:
        """Whether a server is asked for the state, so that who must not wait leaves it to a thread."""

    @property
    def dim(self) -> int:
        """d."""

    @property
    def set_size(self) -> int:
        """K."""

    @property
    def layout(self) -> Layout:
        """d, K and alpha."""

    @property
    def recall(self) -> float | None:
        """The measured recall of the approximate index in use; None while searches are exact."""

    @property
    def properties(self) -> dict[str, str]:
        """What the index wrote down of itself (its model, when it was made); small strings by name."""

    def set_properties(self, changes: dict[str, str]) -> None:
        """Add or change properties."""

    def delete_properties(self, names: Sequence[str]) -> None:
        """Remove properties; those that are not there are no error."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries; one with a key that is there already takes its place. All of them or none."""

    def describe(self, descriptions: Sequence[Description]) -> None:
        """Entries take other stamps and columns, and keep their vectors; those that are not there are left out."""

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there."""

    def get(self, keys: Sequence[str], *, locals: bool = True) -> list[Entry | None]:
        """Whole entries in the order asked for, None where there is none; without their locals where not wanted."""

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """The stamps of all entries whose key begins with `prefix`, in key order, without their vectors."""

    def records(self, where: Sequence[Condition] = ()) -> Iterator[Record]:
        """The entries that fit, in key order, without their vectors."""

    def columns(self) -> list[str]:
        """The names of all metadata columns, in order."""

    def has_column(self, name: str) -> bool:
        """Whether any entry has a metadata column of this name."""

    def rename(self, old: str, new: Stamp) -> None:
        """A file moved: the entry takes its new key and stamp, vectors and metadata stay."""

    def search(self, queries: np.ndarray, top: int, where: Sequence[Condition] = ()) -> Search:
        """The `top` best of those that fit `where`, for each query (q, K, d), by cosine or smooth-Chamfer."""

    def written(self, words: Sequence[str], top: int, where: Sequence[Condition] = ()) -> list[str]:
        """Keys of entries that fit `where` and in whose column `written` all the words stand, best first.

        Capital letters do not count.
        """

    def background(self, count: int, where: Sequence[Condition] = ()) -> np.ndarray:
        """Vectors (count, K, d) of entries spread over the store, the same every time for the same contents.

        Fewer where there are not so many.
        """

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit."""

    def damaged(self) -> Iterator[str]:
        """The keys of entries whose vectors are not as they were written; all of the store is read."""

    def prepare(self, queries: np.ndarray | None = None) -> None:
        """Make later searches quick; for the writer to call after many changes. Nothing is wrong without it.

        Beyond 200,000 vectors it builds the approximate index and measures its recall with `queries` (q, K, d), by
        default with entries of the store.
        """

    def close(self) -> None:
        """Let go of files and connections; closing twice is fine."""


def check_entries(entries: Sequence[Entry], layout: Layout, address: str) -> None:
    """Refuse entries that cannot be kept, before anything is written."""
    shape = (layout.set_size, layout.dim)
    seen = set()
    for entry in entries:
        where = f"{address}: entry {entry.key!r}"
        check_fields(entry.key, entry.text, entry.metadata, where)
        if entry.key in seen:
            raise DiptychError(f"{where} is there twice among those to add")
        seen.add(entry.key)
        if entry.stamp.key != entry.key:
            raise DiptychError(f"{where} has the stamp of {entry.stamp.key!r}")
        if entry.kind not in get_args(Kind):
            raise DiptychError(f"{where}: kind {entry.kind!r} is neither 'picture' nor 'sentence'")
        if entry.vectors.shape != shape:
            raise DiptychError(f"{where}: vectors of shape {entry.vectors.shape}, expected {shape}")
        lengths = np.linalg.norm(entry.vectors.astype(np.float64), axis=1)
        if not np.all(np.abs(lengths - 1) < 1e-2):
            raise DiptychError(f"{where}: vectors of length {lengths.round(3).tolist()}, expected unit vectors")
        if entry.locals is not None and entry.locals.ndim != 2:
            raise DiptychError(f"{where}: locals of shape {entry.locals.shape}, expected (cells, f)")


def check_fields(key: str, text: str, metadata: dict[str, Value], where: str) -> None:
    """Refuse what no store can keep of an entry, whatever its vectors are."""
    check_key(key, where)
    if not is_unicode(text):
        raise DiptychError(f"{where}: its text is not valid Unicode")
    for name, value in metadata.items():
        _check_column(name, value, where)


def are_units(vectors: np.ndarray) -> np.ndarray:
    """Whether all vectors of each entry (n, K, d) have length 1, as all that are kept have: (n,) bool."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("nkd,nkd->nk", vectors, vectors, dtype=np.float64)
    return np.asarray((np.abs(np.sqrt(squares) - 1) < UNIT_TOLERANCE).all(1))


def check_key(key: str, address: str) -> None:
    """Refuse a key that no store can keep: empty, not Unicode, or with the control characters 0 and 1."""
    if not key or not is_unicode(key) or "\x00" in key or "\x01" in key:
        raise DiptychError(f"{address}: {key!r} cannot be a key; expected Unicode text without control characters")


def check_queries(queries: np.ndarray, top: int, layout: Layout, address: str) -> np.ndarray:
    """Queries (q, K, d) as contiguous float32, or an error that says what was expected."""
    if queries.ndim != 3 or queries.shape[1:] != (layout.set_size, layout.dim):
        raise DiptychError(
            f"{address}: queries of shape {queries.shape}, expected (queries, {layout.set_size}, {layout.dim})"
        )
    if top < 1:
        raise DiptychError(f"{address}: top is {top}, expected at least 1")
    if not np.isfinite(queries).all():
        raise DiptychError(f"{address}: a query holds a number that is not finite")
    return np.ascontiguousarray(queries, dtype=np.float32)


def check_layout(stored: Layout, wanted: Layout | None, address: str) -> None:
    """Refuse a store that was made for other vectors."""
    if wanted is not None and stored != wanted:
        raise DiptychError(f"{address}: made for {stored}, but {wanted} is wanted; index into another store")


def spread_of(key: str) -> int:
    """A number that has nothing to do with the key's order: entries in the order of it are a sample of the store."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) >> 1


def _check_column(name: str, value: Value, where: str) -> None:
    if name in OWN_FIELDS or not name or not is_unicode(name) or "\x00" in name:
        raise DiptychError(f"{where}: a metadata column cannot be called {name!r}")
    if isinstance(value, str):
        if not is_unicode(value) or "\x00" in value:
            raise DiptychError(f"{where}: metadata {name!r} is not valid Unicode text")
    elif isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 1 << 63:
            raise DiptychError(f"{where}: metadata {name!r} is a whole number of 2^63 or more, expected less")
    elif not isinstance(value, float) or not math.isfinite(value):
        raise DiptychError(f"{where}: metadata {name!r} is {value!r}, expected text or a finite number")


def is_unicode(text: str) -> bool:
    """Whether a text can be written; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
