"""A store on a Milvus server, for more than one machine holds.

Two collections: `name` has a row for each vector of an entry, with all that filters ask for; `name_side` keeps the
properties and the locals, cut into pieces of text as long as the server takes.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import check_conditions, fits, prefix_range, quoted, to_milvus
from diptych.search.stores.milvus_connection import MOST_RESULTS, REQUEST_BYTES, MilvusConnection, parse_address
from diptych.search.stores.milvus_index import MilvusIndex
from diptych.search.stores.milvus_place import PROPERTY, MilvusPlace
from diptych.search.stores.milvus_rows import (
    RECORD,
    described_rows,
    entry_of,
    joined,
    make_collections,
    moved_rows,
    piece_ids,
    piece_rows,
    row_id,
    rows_of,
    side_row,
    size_of,
)
from diptych.search.stores.milvus_search import MilvusSearcher
from diptych.search.stores.requests import in_requests
from diptych.search.stores.server_store import ServerStore
from diptych.search.stores.store import (
    EXACT_UP_TO,
    RECALL_FLOOR,
    WRITTEN,
    Condition,
    Description,
    Entry,
    Layout,
    Record,
    Search,
    Stamp,
    StoreReplaced,
    are_units,
    check_entries,
    check_fields,
    check_key,
    check_layout,
    check_queries,
)
from diptych.search.stores.watch import Watch

KEYS_AT_ONCE, ROWS_AT_ONCE, NUMBERS_AT_ONCE = 1_000, 4_096, 10_000

CHECKED_AT_ONCE = 1024


class MilvusStore(ServerStore):
    """Entries on a Milvus server at milvus://host:port/name; every read sees what was written before (Strong).

    A collection that is made again while it is open is noticed at the next look, as a file's replacement is.

    `layout` makes the store where there is none. Entries are sent in requests of up to 32 MiB: each is kept whole or
    not at all, and so is an `add` that fits into one. A call that the server does not answer within `patience` seconds
    fails; the next one connects again.
    """

    _server: MilvusConnection

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
        self._server = MilvusConnection(address, uri, patience)
        try:
            if not self._server.call("has_collection", self._name):
                if layout is None:
                    raise DiptychError(f"{address}: no such index")
                make_collections(self._server, self._name, self._side, layout)
            self._place = MilvusPlace(self._server, self._name, self._side)
            self._watch = Watch(self._place, self._replaced)
            self._layout = self._watch.layout
            check_layout(self._layout, layout, address)
        except DiptychError:
            self._server.close()
            raise
        self._index = MilvusIndex(self._server, self._name, self._side, self._layout, exact_up_to, recall_floor)
        self._searcher = MilvusSearcher(self._server, self._name, self._layout)

    @property
    def state(self) -> str | None:
        """Nothing that can be asked for quickly tells whether others have changed the collection."""
        return None

    @property
    def state_takes_time(self) -> bool:
        """Nothing is asked."""
        return False

    @property
    def properties(self) -> dict[str, str]:
        """Small strings by name."""
        return self._watch.look(self._place.properties)

    def set_properties(self, changes: dict[str, str]) -> None:
        """Add or change properties."""
        rows = [side_row(f"{PROPERTY}{name}", value) for name, value in changes.items()]
        self._watch.write(lambda: self._put(self._side, rows))
        self._watch.noted(changes)

    def delete_properties(self, names: Sequence[str]) -> None:
        """Remove properties; those that are not there are no error."""
        self._watch.write(lambda: self._remove(self._side, [f"{PROPERTY}{name}" for name in names]))

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries; one with a key that is there already takes its place."""
        check_entries(entries, self._layout, self.address)
        tokens = [uuid.uuid4().hex if e.locals is not None else "" for e in entries]
        tokened = list(zip(entries, tokens, strict=True))
        records = [row for e, token in tokened for row in rows_of(e, token, self.address)]

        def add() -> None:
            # Locals come first and under a new name: an entry never points at locals that are not there.
            old = self._locals_of([e.key for e in entries])
            pieces = (row for e, token in tokened if e.locals is not None for row in piece_rows(token, e.locals))
            self._put(self._side, pieces)
            self._put(self._name, records, self.set_size)
            self._remove(self._side, [i for ids in old.values() for i in ids])

        self._watch.write(add)

    def describe(self, descriptions: Sequence[Description]) -> None:
        """Entries take other stamps and columns; their vectors stay."""
        told = {new.stamp.key: new for new in descriptions}
        for new in descriptions:
            check_fields(new.stamp.key, "", new.metadata, f"{self.address}: entry {new.stamp.key!r}")

        def describe() -> None:
            rows = [row for whole in self._whole(list(told)) for row in described_rows(whole, told, self.address)]
            self._put(self._name, rows, self.set_size)

        self._watch.write(describe)

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there."""

        def delete() -> int:
            there = self._locals_of(keys)
            self._remove(self._name, [i for key in there for i in self._ids(key)])
            self._remove(self._side, [i for ids in there.values() for i in ids])
            return len(there)

        return self._watch.write(delete)

    def get(self, keys: Sequence[str], *, locals: bool = True) -> list[Entry | None]:
        """Whole entries in the order asked for, None where there is none."""
        return self._watch.look(lambda: self._get(keys, locals))

    def _get(self, keys: Sequence[str], locals: bool) -> list[Entry | None]:
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
        begun = self._watch.number
        for page in self._server.pages(self._name, expression, fields, ROWS_AT_ONCE):
            if self._watch.number != begun:
                raise StoreReplaced(f"{self.address}: made again while it was read; try again")
            for row in page:
                yield Stamp(*(row[name] for name in fields))

    def records(self, where: Sequence[Condition] = ()) -> Iterator[Record]:
        """The entries that fit, in key order, without their vectors."""
        begun = self._watch.number
        for place, row in enumerate(
            self._fitting(where, [], ["text", "size", "digest", "kind", "changed", "metadata"])
        ):
            if place % ROWS_AT_ONCE == 0 and self._watch.number != begun:
                raise StoreReplaced(f"{self.address}: made again while it was read; try again")
            stamp = Stamp(row["key"], row["size"], row["changed"], row["digest"])
            yield Record(row["key"], row["kind"], stamp, row["text"], dict(row["metadata"]))

    def columns(self) -> list[str]:
        """The names of all metadata columns, in order; all of the store is read, since the server has no list."""

        def names() -> list[str]:
            pages = self._server.pages(self._name, "element == 0", ["metadata"], ROWS_AT_ONCE)
            return sorted({name for page in pages for row in page for name in row["metadata"]})

        return self._watch.look(names)

    def has_column(self, name: str) -> bool:
        """Whether any entry has a metadata column of this name."""
        expression = f"element == 0 and exists metadata[{quoted(name)}]"
        return self._watch.look(lambda: bool(self._server.query(self._name, expression, ["key"], 1)))

    def rename(self, old: str, new: Stamp) -> None:
        """A file moved: the entry takes its new key and stamp, vectors and metadata stay."""
        check_key(new.key, self.address)
        self._watch.write(lambda: self._rename(old, new))

    def _rename(self, old: str, new: Stamp) -> None:
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
        return self._watch.look(lambda: self._search(queries, top, where))

    def _search(self, queries: np.ndarray, top: int, where: Sequence[Condition]) -> Search:
        expression, rest = to_milvus(where)
        expressions = [expression]
        if rest:
            spreads = [row["spread"] for row in self._fitting(where, [])]
            parts = range(0, len(spreads), NUMBERS_AT_ONCE)
            expressions = [f"spread in {spreads[i : i + NUMBERS_AT_ONCE]}" for i in parts]
        return self._searcher.search(queries, top, expressions, self._index.state())

    def written(self, words: Sequence[str], top: int, where: Sequence[Condition] = ()) -> list[str]:
        """Keys of entries that fit `where` and in whose column `written` all the words stand; the shortest texts first.

        Servers of 2.3 have no full-text index: all texts that fit are looked through here.
        """
        wanted = {word.lower() for word in words}

        def look() -> list[str]:
            found: list[tuple[int, str]] = []
            for row in self._fitting(where, [f'metadata["{WRITTEN}"] >= ""'], ["metadata"]):
                text = str(row["metadata"][WRITTEN]).lower()
                if wanted <= set(re.findall(r"\w+", text)):
                    found.append((len(text), row["key"]))
            return [key for _, key in sorted(found)[:top]]

        return self._watch.look(look) if wanted else []

    def background(self, count: int, where: Sequence[Condition] = ()) -> np.ndarray:
        """Vectors (count, K, d) of entries spread over the store, the same every time for the same contents."""
        return self._watch.look(lambda: self._background(count, where))

    def _background(self, count: int, where: Sequence[Condition]) -> np.ndarray:
        total = self._count(where)
        # `spread` is even over its range, so that a part of the range holds that part of the entries.
        share = 2 * (count + 10) / max(1, total)
        while True:
            below = [f"spread < {int(share * (1 << 63))}"] if share < 1 else []
            rows = sorted(self._fitting(where, below), key=lambda row: (row["spread"], row["key"]))
            if len(rows) >= min(count, total) or share >= 1:
                break
            share *= 4
        return self._searcher.vectors().of([row["key"] for row in rows[:count]])

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit."""
        check_conditions(where)
        return self._watch.look(lambda: self._count(where))

    def _count(self, where: Sequence[Condition]) -> int:
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
        self._watch.write(
            lambda: self._index.prepare(self._count(()), self._background(128, ()) if queries is None else queries)
        )

    def _fitting(
        self, where: Sequence[Condition], more: list[str], wanted: Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        """Key and spread of the entries that fit, and wanted fields, decided here where the server cannot."""
        check_conditions(where)
        expression, rest = to_milvus(where)
        whole = " and ".join(["element == 0", *filter(None, [expression]), *more])
        decided = ("kind", "changed", "metadata") if rest else ()
        fields = list(dict.fromkeys(["key", "spread", *decided, *wanted]))
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
        for batch in in_requests(rows, size_of, REQUEST_BYTES, together):
            self._server.call("upsert", collection, batch)

    def _remove(self, collection: str, ids: Sequence[str]) -> None:
        for i in range(0, len(ids), KEYS_AT_ONCE):
            expression = f"id in [{','.join(map(quoted, ids[i : i + KEYS_AT_ONCE]))}]"
            self._server.call("delete", collection, filter=expression)

    def _ids(self, key: str) -> list[str]:
        return [row_id(key, element) for element in range(self.set_size)]
