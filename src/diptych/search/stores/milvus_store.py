"""A store on a Milvus server, for more than one machine holds.

Two collections: `name` has a row for each vector of an entry, with all that filters ask for; `name_side` keeps the
properties and the locals, cut into pieces of text as long as the server takes.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import check_conditions, fits, prefix_range, quoted, to_milvus
from diptych.search.stores.milvus_connection import MOST_RESULTS, REQUEST_BYTES, MilvusConnection, parse_address
from diptych.search.stores.milvus_index import MilvusIndex
from diptych.search.stores.milvus_rows import (
    RECORD,
    entry_of,
    joined,
    make_collections,
    moved_rows,
    piece_ids,
    piece_rows,
    read_layout,
    row_id,
    rows_of,
    side_row,
    size_of,
)
from diptych.search.stores.milvus_search import EntryVectors, MilvusSearcher
from diptych.search.stores.store import (
    EXACT_UP_TO,
    RECALL_FLOOR,
    Condition,
    Entry,
    Layout,
    Search,
    Stamp,
    are_units,
    check_entries,
    check_key,
    check_layout,
    check_queries,
)

KEYS_AT_ONCE, ROWS_AT_ONCE, NUMBERS_AT_ONCE = 1_000, 4_096, 10_000

CHECKED_AT_ONCE = 1024


class MilvusStore:
    """Entries on a Milvus server at milvus://host:port/name; every read sees what was written before (Strong).

    `layout` makes the store where there is none. Entries are sent in requests of up to 32 MiB: each is kept whole or
    not at all, and so is an `add` that fits into one. A call that the server does not answer within `patience` seconds
    fails; the next one connects again.
    """

    def __init__(
        self,
        address: str,
        layout: Layout | None = None,
        *,
        exact_up_to: int = EXACT_UP_TO,
        recall_floor: float = RECALL_FLOOR,
        patience: float = 30.0,
    ) -> None:
        uri, self._name = parse_address(address)
        self._side = f"{self._name}_side"
        self._address = address
        self._server = MilvusConnection(address, uri, patience)
        try:
            if not self._server.call("has_collection", self._name):
                if layout is None:
                    raise DiptychError(f"{address}: no such index")
                make_collections(self._server, self._name, self._side, layout)
            self._layout = read_layout(self._server, self._name)
            check_layout(self._layout, layout, address)
        except DiptychError:
            self._server.close()
            raise
        self._index = MilvusIndex(self._server, self._name, self._side, self._layout, exact_up_to, recall_floor)
        self._searcher = MilvusSearcher(self._server, self._name, self._layout)

    @property
    def address(self) -> str:
        """milvus://host:port/name."""
        return self._address

    @property
    def layout(self) -> Layout:
        """d, K and alpha."""
        return self._layout

    @property
    def identity(self) -> str:
        """The address: a collection that was made again is not told from the one before."""
        return self.address

    @property
    def dim(self) -> int:
        """d."""
        return self._layout.dim

    @property
    def set_size(self) -> int:
        """K."""
        return self._layout.set_size

    @property
    def recall(self) -> float | None:
        """The measured recall of the approximate index in use; None while searches are exact."""
        return self._index.state().recall

    @property
    def properties(self) -> dict[str, str]:
        """Small strings by name."""
        expression = prefix_range("id", "p\x01")
        rows = (row for page in self._server.pages(self._side, expression, ["data"], ROWS_AT_ONCE) for row in page)
        return {row["id"][2:]: row["data"] for row in rows}

    def set_properties(self, changes: dict[str, str]) -> None:
        """Add or change properties."""
        self._put(self._side, [side_row(f"p\x01{name}", value) for name, value in changes.items()])

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries; one with a key that is there already takes its place."""
        check_entries(entries, self._layout, self.address)
        tokens = [uuid.uuid4().hex if e.locals is not None else "" for e in entries]
        tokened = list(zip(entries, tokens, strict=True))
        records = [row for e, token in tokened for row in rows_of(e, token, self.address)]
        pieces = (row for e, token in tokened if e.locals is not None for row in piece_rows(token, e.locals))
        # Locals come first and under a new name: an entry never points at locals that are not there.
        old = self._locals_of([e.key for e in entries])
        self._put(self._side, pieces)
        self._put(self._name, records, self.set_size)
        self._remove(self._side, [i for ids in old.values() for i in ids])

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there."""
        there = self._locals_of(keys)
        self._remove(self._name, [i for key in there for i in self._ids(key)])
        self._remove(self._side, [i for ids in there.values() for i in ids])
        return len(there)

    def get(self, keys: Sequence[str], *, locals: bool = True) -> list[Entry | None]:
        """Whole entries in the order asked for, None where there is none."""
        stored = {rows[0]["key"]: rows for rows in self._whole(keys)}
        cells: dict[str, np.ndarray] = {}
        if locals:
            wanted = {key: piece_ids(rows[0]) for key, rows in stored.items() if rows[0]["token"]}
            texts = self._by_id(self._side, [i for ids in wanted.values() for i in ids], ["data"])
            for key, ids in wanted.items():
                whole = joined(stored[key][0], [texts[i]["data"] for i in ids if i in texts])
                if whole is None:
                    raise DiptychError(f"{self.address}: the locals of {key!r} are not whole; index it again")
                cells[key] = whole
        return [entry_of(stored[key], cells.get(key)) if key in stored else None for key in keys]

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """The stamps of all entries whose key begins with `prefix`, in key order; read a few thousand at a time."""
        expression = " and ".join(["element == 0", *filter(None, [prefix_range("id", prefix)])])
        fields = ["key", "size", "changed", "digest"]
        for page in self._server.pages(self._name, expression, fields, ROWS_AT_ONCE):
            for row in page:
                yield Stamp(*(row[name] for name in fields))

    def rename(self, old: str, new: Stamp) -> None:
        """A file moved: the entry takes its new key and stamp, vectors and metadata stay."""
        check_key(new.key, self.address)
        stored = self._whole([old])
        if not stored:
            raise DiptychError(f"{self.address}: there is no {old!r} to rename")
        replaced = self._locals_of([new.key]) if new.key != old else {}
        self._put(self._name, moved_rows(stored[0], new), self.set_size)
        if new.key != old:
            self._remove(self._name, self._ids(old))
            self._remove(self._side, [i for ids in replaced.values() for i in ids])

    def search(self, queries: np.ndarray, top: int, where: Sequence[Condition] = ()) -> Search:
        """The `top` best of those that fit `where`, for each query (q, K, d), by cosine or smooth-Chamfer."""
        queries = check_queries(queries, top, self._layout, self.address)
        if top > MOST_RESULTS:
            raise DiptychError(f"{self.address}: top is {top}, but Milvus gives at most {MOST_RESULTS:,} results")
        check_conditions(where)
        expression, rest = to_milvus(where)
        expressions = [expression]
        if rest:
            spreads = [row["spread"] for row in self._fitting(where, [])]
            parts = range(0, len(spreads), NUMBERS_AT_ONCE)
            expressions = [f"spread in {spreads[i : i + NUMBERS_AT_ONCE]}" for i in parts]
        return self._searcher.search(queries, top, expressions, self._index.state())

    def background(self, count: int, where: Sequence[Condition] = ()) -> np.ndarray:
        """Vectors (count, K, d) of entries spread over the store, the same every time for the same contents."""
        total = self.count(where)
        # `spread` is even over its range, so that a part of the range holds that part of the entries.
        share = 2 * (count + 10) / max(1, total)
        while True:
            below = [f"spread < {int(share * (1 << 63))}"] if share < 1 else []
            rows = sorted(self._fitting(where, below), key=lambda row: (row["spread"], row["key"]))
            if len(rows) >= min(count, total) or share >= 1:
                break
            share *= 4
        return EntryVectors(self._server, self._name, self._layout).of([row["key"] for row in rows[:count]])

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit."""
        check_conditions(where)
        expression, rest = to_milvus(where)
        if rest:
            return sum(1 for _ in self._fitting(where, []))
        whole = " and ".join(["element == 0", *filter(None, [expression])])
        return int(self._server.query(self._name, whole, ["count(*)"])[0]["count(*)"])

    def damaged(self) -> Iterator[str]:
        """The keys of entries whose vectors have not the length 1 that they were written with."""
        stamps = self.stamps()
        while some := [stamp.key for stamp in islice(stamps, CHECKED_AT_ONCE)]:
            for entry in self.get(some, locals=False):
                if entry is not None and not are_units(entry.vectors[None])[0]:
                    yield entry.key

    def prepare(self, queries: np.ndarray | None = None) -> None:
        """Beyond the exact range, have the server build its approximate index, and measure its recall."""
        if queries is not None:
            queries = check_queries(queries, 1, self._layout, self.address)
        self._index.prepare(self.count(), self.background(128) if queries is None else queries)

    def close(self) -> None:
        """Let go of the connection; closing twice is fine."""
        self._server.close()

    def _fitting(self, where: Sequence[Condition], more: list[str]) -> Iterator[dict[str, Any]]:
        """Key and spread of the entries that fit, decided here where the server cannot."""
        check_conditions(where)
        expression, rest = to_milvus(where)
        whole = " and ".join(["element == 0", *filter(None, [expression]), *more])
        fields = ["key", "spread"] + (["kind", "changed", "metadata"] if rest else [])
        for page in self._server.pages(self._name, whole, fields, ROWS_AT_ONCE):
            for row in page:
                if not rest or fits(rest, row["key"], row["kind"], row["changed"], row["metadata"]):
                    yield row

    def _whole(self, keys: Sequence[str]) -> list[list[Any]]:
        """All rows of each entry that is there, in the order of its vectors."""
        unique = list(dict.fromkeys(keys))
        rows = self._by_id(self._name, [i for key in unique for i in self._ids(key)], [*RECORD, "vector"])
        sets = ([rows[i] for i in self._ids(key) if i in rows] for key in unique)
        return [whole for whole in sets if len(whole) == self.set_size]

    def _locals_of(self, keys: Sequence[str]) -> dict[str, list[str]]:
        """The ids of the locals of those entries that are there, by key."""
        rows = self._by_id(self._name, [row_id(key, 0) for key in keys], ["key", "token", "cells", "width"])
        return {row["key"]: piece_ids(row) for row in rows.values()}

    def _by_id(self, collection: str, ids: Sequence[str], fields: list[str]) -> dict[str, Any]:
        rows = {}
        for i in range(0, len(ids), KEYS_AT_ONCE):
            expression = f"id in [{','.join(map(quoted, ids[i : i + KEYS_AT_ONCE]))}]"
            rows.update({row["id"]: row for row in self._server.query(collection, expression, ["id", *fields])})
        return rows

    def _put(self, collection: str, rows: Iterable[dict[str, Any]], together: int = 1) -> None:
        """Write rows, so many at once as one request holds; `together` rows are never parted."""
        batch, size = list[dict[str, Any]](), 0
        for row in rows:
            if size > REQUEST_BYTES and len(batch) % together == 0:
                self._server.call("upsert", collection, batch)
                batch, size = [], 0
            batch.append(row)
            size += size_of(row)
        if batch:
            self._server.call("upsert", collection, batch)

    def _remove(self, collection: str, ids: Sequence[str]) -> None:
        for i in range(0, len(ids), KEYS_AT_ONCE):
            expression = f"id in [{','.join(map(quoted, ids[i : i + KEYS_AT_ONCE]))}]"
            self._server.call("delete", collection, filter=expression)

    def _ids(self, key: str) -> list[str]:
        return [row_id(key, element) for element in range(self.set_size)]
