"""A store on a Qdrant server, where the engine itself knows sets of vectors.

Two collections: `name` has a point for each entry, with all of its vectors and all that filters ask for; `name_side`
keeps the properties and the locals.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import check_conditions
from diptych.search.stores.key_order import in_key_order
from diptych.search.stores.qdrant_connection import QdrantConnection
from diptych.search.stores.qdrant_filters import column_paths, has_ids, has_word, in_folder, to_qdrant, words_of
from diptych.search.stores.qdrant_index import QdrantIndex
from diptych.search.stores.qdrant_notes import OWN, PROPERTIES, QdrantNotes
from diptych.search.stores.qdrant_place import QdrantPlace
from diptych.search.stores.qdrant_points import QdrantPoints
from diptych.search.stores.qdrant_rows import (
    INDEXED,
    RECORD,
    STAMP,
    fields_of,
    index_fields,
    is_whole,
    make_collections,
    record_of,
    vector_name,
)
from diptych.search.stores.qdrant_search import QdrantSearcher
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
    check_entries,
    check_fields,
    check_key,
    check_layout,
    check_queries,
)
from diptych.search.stores.watch import Watch

ROWS_AT_ONCE, IDS_AT_ONCE, CHECKED_AT_ONCE = 4_096, 10_000, 1_024
# From so many entries on, the server indexes the columns too.
COLUMNS_INDEXED_FROM = 10_000
# The note of the contents' state: empty while they change.
CONTENTS = "contents"
T = TypeVar("T")


class QdrantStore(ServerStore):
    """Entries on a Qdrant server at qdrant://host:port/name; every read sees what was written before.

    A collection that is made again while it is open is noticed at the next look, as a file's replacement is.

    `layout` makes the store where there is none. Entries are sent in requests of up to 32 MiB: each is kept whole or
    not at all, and so is an `add` that fits into one. A call that the server does not answer within `patience` seconds
    fails; the next one connects again.
    """

    _server: QdrantConnection

    def __init__(
        self,
        address: str,
        layout: Layout | None = None,
        *,
        exact_up_to: int = EXACT_UP_TO,
        recall_floor: float = RECALL_FLOOR,
        patience: float = 30.0,
    ) -> None:
        self._server = QdrantConnection(address, patience)
        self._name, self._side = self._server.name, f"{self._server.name}_side"
        self._properties = QdrantNotes(self._server, self._side, PROPERTIES)
        self._own = QdrantNotes(self._server, self._side, OWN)
        try:
            if self._server.info(self._name) is None:
                if layout is None:
                    raise DiptychError(f"{address}: no such index")
                make_collections(self._server, self._side, layout)
            self._watch = Watch(QdrantPlace(self._server, self._properties), self._replaced)
            self._layout = self._watch.layout
            check_layout(self._layout, layout, address)
            index_fields(self._server, INDEXED)
        except DiptychError:
            self._server.close()
            raise
        self._points = QdrantPoints(self._server, self._side, self._layout)
        self._searcher = QdrantSearcher(self._server, self._layout)
        self._index = QdrantIndex(self._server, self._own, self._layout, exact_up_to, recall_floor, self._searcher)

    @property
    def state(self) -> str | None:
        """Another text after every change by any Diptych; None during one, and after one that was broken off."""
        contents = self._watch.look(self._own.read).get(CONTENTS)
        return f"{self.identity} {contents}" if contents else None

    @property
    def state_takes_time(self) -> bool:
        """The server is asked."""
        return True

    @property
    def properties(self) -> dict[str, str]:
        """Small strings by name."""
        return self._watch.look(self._properties.read)

    def set_properties(self, changes: dict[str, str]) -> None:
        """Add or change properties."""
        self._write(lambda: self._properties.write(changes))
        self._watch.noted(changes)

    def delete_properties(self, names: Sequence[str]) -> None:
        """Remove properties; those that are not there are no error."""
        self._write(lambda: self._properties.remove(names))

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries; one with a key that is there already takes its place."""
        check_entries(entries, self._layout, self.address)
        tokened = [(e, str(uuid.uuid4()) if e.locals is not None else "") for e in entries]

        def add() -> None:
            # Locals come first and under a new name: an entry never points at locals that are not there.
            old = self._points.tokens([e.key for e in entries])
            self._points.put_locals(tokened)
            self._points.put(tokened)
            self._points.remove_locals(old.values())

        self._write(add)

    def describe(self, descriptions: Sequence[Description]) -> None:
        """Entries take other stamps and columns; their vectors stay."""
        told = {new.stamp.key: new for new in descriptions}
        for new in descriptions:
            check_fields(new.stamp.key, "", new.metadata, f"{self.address}: entry {new.stamp.key!r}")

        def describe() -> None:
            whole = self._points.whole(list(told), locals=False).values()
            self._points.put(
                (replace(e, stamp=told[e.key].stamp, metadata=told[e.key].metadata), token) for e, token in whole
            )

        self._write(describe)

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there."""

        def delete() -> int:
            there = self._points.tokens(keys)
            self._points.remove(list(there))
            self._points.remove_locals(there.values())
            return len(there)

        return self._write(delete)

    def get(self, keys: Sequence[str], *, locals: bool = True) -> list[Entry | None]:
        """Whole entries in the order asked for, None where there is none."""
        stored = self._watch.look(lambda: self._points.whole(keys, locals))
        return [stored[key][0] if key in stored else None for key in keys]

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """The stamps of all entries whose key begins with `prefix`, in key order; sorted here, on disk."""

        def rows() -> Iterator[dict[str, Any]]:
            for page in self._server.pages(self._name, in_folder(prefix), STAMP, ROWS_AT_ONCE):
                yield from (fields for fields in map(fields_of, page) if fields["key"].startswith(prefix))

        for fields in self._watch.look(lambda: in_key_order(rows())):
            yield Stamp(*(fields[name] for name in STAMP))

    def records(self, where: Sequence[Condition] = ()) -> Iterator[Record]:
        """The entries that fit, in key order, without their vectors; sorted here, on disk."""
        check_conditions(where)
        for fields in self._watch.look(
            lambda: in_key_order(map(fields_of, self._points.fitting(where, RECORD, ROWS_AT_ONCE)))
        ):
            yield record_of(fields)

    def columns(self) -> list[str]:
        """The names of all metadata columns, in order."""

        def names() -> list[str]:
            limit = 1_000
            while True:
                answer = self._server.points(
                    "Facet", self._name, request="FacetCounts", key="columns", limit=limit, exact=True
                )
                if len(answer.hits) < limit:  # columns that no entry has any more are told with a count of 0
                    return sorted(hit.value.string_value for hit in answer.hits if hit.count)
                limit *= 10

        return self._watch.look(names)

    def has_column(self, name: str) -> bool:
        """Whether any entry has a metadata column of this name."""
        return self._watch.look(lambda: self._server.count(self._name, has_word("columns", name)) > 0)

    def rename(self, old: str, new: Stamp) -> None:
        """A file moved: the entry takes its new key and stamp, vectors and metadata stay."""
        check_key(new.key, self.address)

        def rename() -> None:
            stored = self._points.whole([old], locals=False)
            if not stored:
                raise DiptychError(f"{self.address}: there is no {old!r} to rename")
            entry, token = stored[old]
            replaced = self._points.tokens([new.key]) if new.key != old else {}
            self._points.put([(replace(entry, key=new.key, stamp=new), token)])
            if new.key != old:
                self._points.remove([old])
                self._points.remove_locals(replaced.values())

        self._write(rename)

    def search(self, queries: np.ndarray, top: int, where: Sequence[Condition] = ()) -> Search:
        """The `top` best of those that fit `where`, for each query (q, K, d), by cosine or smooth-Chamfer."""
        queries = check_queries(queries, top, self._layout, self.address)
        check_conditions(where)
        if where:
            return self._watch.look(lambda: self._searcher.exact(queries, top, self._filters(where)))
        return self._watch.look(lambda: self._search_all(queries, top))

    def _search_all(self, queries: np.ndarray, top: int) -> Search:
        state = self._index.state()
        if state.breadth:
            return self._searcher.quick(queries, top, state)
        return self._searcher.exact(queries, top, [None])

    def _filters(self, where: Sequence[Condition]) -> list[Any]:
        """Filters that between them let through what fits, and nothing else."""
        whole, rest = to_qdrant(where)
        if not rest:
            return [whole]
        ids = [point.id for point in self._points.fitting(where, [], ROWS_AT_ONCE)]
        return [has_ids(ids[i : i + IDS_AT_ONCE]) for i in range(0, len(ids), IDS_AT_ONCE)]

    def written(self, words: Sequence[str], top: int, where: Sequence[Condition] = ()) -> list[str]:
        """Keys of entries that fit and in whose column `written` all the words stand; the shortest texts first."""
        check_conditions(where)
        wanted = set[str]().union(*map(words_of, words))

        def look() -> list[str]:
            points = self._points.fitting(where, RECORD, ROWS_AT_ONCE, [has_word("words", word) for word in wanted])
            found = (record_of(fields_of(point)) for point in points)
            return [key for _, key in sorted((len(str(r.metadata[WRITTEN])), r.key) for r in found)[:top]]

        return self._watch.look(look) if wanted else []

    def background(self, count: int, where: Sequence[Condition] = ()) -> np.ndarray:
        """Vectors (count, K, d) of entries spread over the store, the same every time for the same contents."""
        check_conditions(where)

        def look() -> np.ndarray:
            keys = list[str]()
            for point in self._points.fitting(where, ["key"], min(ROWS_AT_ONCE, count + 1)):
                keys.append(point.payload["key"].string_value)
                if len(keys) >= count:
                    break
            return self._searcher.vectors().of(keys)

        return self._watch.look(look)

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit."""
        check_conditions(where)
        return self._watch.look(lambda: self._count(where))

    def _count(self, where: Sequence[Condition]) -> int:
        whole, rest = to_qdrant(where)
        return (
            sum(1 for _ in self._points.fitting(where, [], ROWS_AT_ONCE))
            if rest
            else self._server.count(self._name, whole)
        )

    def damaged(self) -> Iterator[str]:
        """The keys of entries whose vectors have not the checksum that they were written with."""
        vectors = [vector_name(self._layout)]
        for page in self._server.pages(self._name, None, ["key", "checksum"], CHECKED_AT_ONCE, vectors):
            for point in page:
                if not is_whole(point):
                    yield point.payload["key"].string_value

    def prepare(self, queries: np.ndarray | None = None) -> None:
        """Have the server index the columns and, beyond the exact range, build its graph, whose recall is measured."""
        if queries is not None:
            queries = check_queries(queries, 1, self._layout, self.address)

        def prepare() -> None:
            count = self._count(())
            if count >= COLUMNS_INDEXED_FROM:
                paths = [column_paths(name) for name in self.columns() if name != WRITTEN]
                index_fields(self._server, {text: "keyword" for text, _ in paths} | {n: "float" for _, n in paths})
            self._index.prepare(count, self.background(128) if queries is None else queries)

        self._watch.write(prepare)

    def _write(self, action: Callable[[], T]) -> T:
        """Change something; the note of the contents' state is empty until that is done."""

        def change() -> T:
            self._own.write({CONTENTS: ""})
            done = action()
            self._own.write({CONTENTS: uuid.uuid4().hex})
            return done

        return self._watch.write(change)
