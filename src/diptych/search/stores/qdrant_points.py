"""The points of a store on a Qdrant server, read and written as entries."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import fits
from diptych.search.stores.qdrant_connection import REQUEST_BYTES, QdrantConnection
from diptych.search.stores.qdrant_filters import every, to_qdrant
from diptych.search.stores.qdrant_ids import point_ids, uuid_id
from diptych.search.stores.qdrant_rows import (
    RECORD,
    checked_vectors,
    fields_of,
    locals_point,
    point_of,
    read_locals,
    record_of,
    vector_name,
)
from diptych.search.stores.requests import in_requests
from diptych.search.stores.store import Condition, Entry, Layout

KEYS_AT_ONCE = 1_000
# An entry, and the name of its locals; empty where it has none.
Tokened = tuple[Entry, str]


class QdrantPoints:
    """Entries as points of one collection, their locals as points of another."""

    def __init__(self, server: QdrantConnection, side: str, layout: Layout) -> None:
        self._server, self._name, self._side, self._layout = server, server.name, side, layout

    def put(self, entries: Iterable[Tokened]) -> None:
        """Write entries."""
        self._put(self._name, (point_of(entry, token) for entry, token in entries))

    def put_locals(self, entries: Iterable[Tokened]) -> None:
        """Write the locals of those entries that have some."""
        kept = ((token, entry.locals) for entry, token in entries if entry.locals is not None)
        self._put(self._side, (locals_point(token, locals) for token, locals in kept))

    def tokens(self, keys: Sequence[str]) -> dict[str, str]:
        """The names of the locals of those entries that are there, by key."""
        found = (
            fields_of(point) for point in self._get(self._name, point_ids(list(dict.fromkeys(keys))), ["key", "token"])
        )
        return {fields["key"]: fields["token"] for fields in found}

    def remove(self, keys: Sequence[str]) -> None:
        """Remove entries."""
        self._remove(self._name, point_ids(keys))

    def remove_locals(self, tokens: Iterable[str]) -> None:
        """Remove locals by their names; empty ones name none."""
        self._remove(self._side, [uuid_id(token) for token in tokens if token])

    def whole(self, keys: Sequence[str], locals: bool) -> dict[str, Tokened]:
        """Those of the entries that are there, by key, with their locals where these are wanted."""
        found = dict[str, tuple[dict[str, Any], np.ndarray]]()
        ids, vectors = point_ids(list(dict.fromkeys(keys))), [vector_name(self._layout)]
        for point in self._get(self._name, ids, [*RECORD, "token", "checksum"], vectors):
            fields = fields_of(point)
            found[fields["key"]] = fields, checked_vectors(point, self._server.address)
        tokens = {key: fields["token"] for key, (fields, _) in found.items()}
        cells = self._locals(tokens) if locals else {}
        made = {}
        for key, (fields, own) in found.items():
            record = record_of(fields)
            entry = Entry(key, record.kind, own, record.stamp, record.text, record.metadata, cells.get(key))
            made[key] = entry, tokens[key]
        return made

    def fitting(
        self, where: Sequence[Condition], fields: Sequence[str], at_once: int, more: Sequence[Any] = ()
    ) -> Iterator[Any]:
        """The points that fit, in the order of their ids, decided here where the server cannot.

        more: filters of the server that must fit too
        """
        filtered, rest = to_qdrant(where)
        decided = ("key", "kind", "changed", "metadata") if rest else ()
        asked = list(dict.fromkeys([*fields, *decided]))
        for page in self._server.pages(self._name, every(filtered, *more), asked, at_once):
            for point in page:
                if not rest or _fits(rest, fields_of(point)):
                    yield point

    def _locals(self, tokens: Mapping[str, str]) -> dict[str, np.ndarray]:
        ids = [uuid_id(token) for token in tokens.values() if token]
        points = {point.id.uuid: point for point in self._get(self._side, ids, ["data", "cells", "width", "checksum"])}
        found = {}
        for key, token in tokens.items():
            if not token:
                continue
            whole = read_locals(fields_of(points[token])) if token in points else None
            if whole is None:
                told = f"the local features of {key!r} are not as they were written; index it again"
                raise DiptychError(f"{self._server.address}: {told}")
            found[key] = whole
        return found

    def _get(
        self, collection: str, ids: Sequence[Any], fields: Sequence[str], vectors: Sequence[str] = ()
    ) -> Iterator[Any]:
        for i in range(0, len(ids), KEYS_AT_ONCE):
            yield from self._server.get(collection, ids[i : i + KEYS_AT_ONCE], fields, vectors)

    def _put(self, collection: str, points: Iterable[Any]) -> None:
        for some in in_requests(points, lambda point: int(point.ByteSize()), REQUEST_BYTES):
            self._server.upsert(collection, some)

    def _remove(self, collection: str, ids: Sequence[Any]) -> None:
        for i in range(0, len(ids), KEYS_AT_ONCE):
            self._server.remove(collection, ids[i : i + KEYS_AT_ONCE])


def _fits(rest: Sequence[Condition], fields: Mapping[str, Any]) -> bool:
    return fits(rest, fields["key"], fields["kind"], fields["changed"], json.loads(fields["metadata"]))
