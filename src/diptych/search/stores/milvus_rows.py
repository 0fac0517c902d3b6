"""How a store lies on a Milvus server: its two collections, and entries as their rows."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.milvus_connection import MilvusConnection
from diptych.search.stores.store import Description, Entry, Layout, Stamp, spread_of

VERSION = 2
LONGEST_TEXT = 65_535
PIECE = LONGEST_TEXT // 4 * 3  # bytes that fit into the longest text as base64
RECORD = [
    "key",
    "element",
    "kind",
    "text",
    "size",
    "changed",
    "digest",
    "spread",
    "metadata",
    "token",
    "cells",
    "width",
]


def make_collections(server: MilvusConnection, name: str, side_name: str, layout: Layout) -> None:
    """Make the two collections of a store; of several processes that try, one does."""
    from pymilvus import DataType

    client, text = server.client, {"datatype": DataType.VARCHAR, "max_length": LONGEST_TEXT}
    side = client.create_schema(auto_id=False, enable_dynamic_field=False, description="a side table of Diptych")
    side.add_field("id", is_primary=True, **text)
    side.add_field("data", **text)
    side.add_field("blank", DataType.BINARY_VECTOR, dim=8)  # the server wants a vector in every collection
    about = {"diptych": VERSION, **asdict(layout)}
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=json.dumps(about))
    schema.add_field("id", is_primary=True, **text)
    for column in ("key", "kind", "text", "digest", "token"):
        schema.add_field(column, **text)
    for column in ("element", "size", "changed", "spread", "cells", "width"):
        schema.add_field(column, DataType.INT64)
    schema.add_field("metadata", DataType.JSON)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=layout.dim)
    # The one with the store's own name comes last: where it is, the other is too.
    for collection, fields, vector, kind, metric in (
        (side_name, side, "blank", "BIN_FLAT", "HAMMING"),
        (name, schema, "vector", "FLAT", "IP"),
    ):
        index = client.prepare_index_params()
        index.add_index(vector, index_type=kind, metric_type=metric, index_name=vector, params={})
        options = {"schema": fields, "index_params": index, "consistency_level": "Strong"}
        try:
            server.call("create_collection", collection, **options)
        except DiptychError:
            if not server.call("has_collection", collection):  # else another process was first
                raise


def read_layout(server: MilvusConnection, name: str) -> Layout:
    """What a store was made for; an error where the collection is something else."""
    about = server.call("describe_collection", name).get("description", "")
    try:
        fields = json.loads(about)
        version = int(fields.pop("diptych"))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise DiptychError(f"{server.address}: a collection, but not an index") from None
    if version > VERSION:
        raise DiptychError(f"{server.address}: made by a newer Diptych (version {version}, this one knows {VERSION})")
    return Layout(**fields)


def collection_number(server: MilvusConnection, name: str) -> int | None:
    """The number that the server gave to a collection, which no other ever has; None where there is none."""
    try:
        return int(server.call("describe_collection", name)["collection_id"])
    except DiptychError:
        if server.call("has_collection", name):
            raise
        return None


def row_id(key: str, element: int) -> str:
    """The id of one row. No key holds the character 1, so that ids are in the order of the keys."""
    return f"{key}\x01{element}"


def rows_of(entry: Entry, token: str, address: str) -> Iterator[dict[str, Any]]:
    """The rows of an entry, one a vector; the text is kept with the first. `token` names its locals."""
    metadata = json.dumps(entry.metadata)
    for name, text in (("key", entry.key), ("text", entry.text), ("metadata", metadata)):
        _check_length(address, entry.key, name, text)
    cells, width = entry.locals.shape if entry.locals is not None else (0, 0)
    for element, vector in enumerate(entry.vectors):
        yield {
            "id": row_id(entry.key, element),
            "key": entry.key,
            "element": element,
            "kind": entry.kind,
            "text": entry.text if element == 0 else "",
            "size": entry.stamp.size,
            "changed": entry.stamp.changed,
            "digest": entry.stamp.digest,
            "spread": spread_of(entry.key),
            "metadata": entry.metadata,
            "token": token,
            "cells": cells,
            "width": width,
            "vector": np.asarray(vector, np.float32),
        }


def moved_rows(rows: Sequence[Any], new: Stamp) -> list[dict[str, Any]]:
    """An entry's rows under another key and stamp."""
    stamp = {"key": new.key, "size": new.size, "changed": new.changed, "digest": new.digest}
    return [dict(row) | stamp | {"spread": spread_of(new.key), "id": row_id(new.key, row["element"])} for row in rows]


def described_rows(rows: Sequence[Any], told: Mapping[str, Description], address: str) -> list[dict[str, Any]]:
    """An entry's rows with another stamp and other columns."""
    new = told[rows[0]["key"]]
    _check_length(address, new.stamp.key, "metadata", json.dumps(new.metadata))
    stamp = {"size": new.stamp.size, "changed": new.stamp.changed, "digest": new.stamp.digest}
    return [dict(row) | stamp | {"metadata": new.metadata} for row in rows]


def entry_of(rows: Sequence[Any], locals: np.ndarray | None) -> Entry:
    """The entry that these rows hold."""
    first = rows[0]
    stamp = Stamp(first["key"], first["size"], first["changed"], first["digest"])
    vectors = np.array([row["vector"] for row in rows], np.float32)
    return Entry(first["key"], first["kind"], vectors, stamp, first["text"], dict(first["metadata"]), locals)


def side_row(name: str, text: str) -> dict[str, Any]:
    """A row of the side collection."""
    return {"id": name, "data": text, "blank": b"\0"}


def piece_rows(token: str, locals: np.ndarray) -> Iterator[dict[str, Any]]:
    """Locals (cells, f) as rows of the side collection, in pieces."""
    data = np.ascontiguousarray(locals, "<f2").tobytes()
    for number, start in enumerate(range(0, len(data), PIECE)):
        yield side_row(_piece_id(token, number), base64.b64encode(data[start : start + PIECE]).decode())


def piece_ids(row: Any) -> list[str]:
    """The ids of the pieces of an entry's locals, given one of its rows."""
    count = -(-2 * row["cells"] * row["width"] // PIECE)
    return [_piece_id(row["token"], number) for number in range(count)] if row["token"] else []


def joined(row: Any, pieces: Sequence[str]) -> np.ndarray | None:
    """Locals (cells, f) from their pieces; None where one is missing."""
    data = b"".join(map(base64.b64decode, pieces))
    whole = len(data) == 2 * row["cells"] * row["width"]
    return np.frombuffer(data, "<f2").reshape(row["cells"], row["width"]) if whole else None


def size_of(row: dict[str, Any]) -> int:
    """About how many bytes a row takes in a request."""
    return sum(
        value.nbytes if isinstance(value, np.ndarray) else len(value) if isinstance(value, str) else 8
        for value in row.values()
    )


def _check_length(address: str, key: str, name: str, text: str) -> None:
    if len(text.encode()) > LONGEST_TEXT - 16:
        raise DiptychError(f"{address}: entry {key[:80]!r}: its {name} is too long for Milvus")


def _piece_id(token: str, number: int) -> str:
    return f"l\x01{token}\x01{number:06d}"
