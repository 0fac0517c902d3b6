"""How a store lies on a Qdrant server: its two collections, and entries as their points."""

import base64
import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.qdrant_connection import QdrantConnection
from diptych.search.stores.qdrant_filters import filter_fields
from diptych.search.stores.qdrant_ids import point_id, uuid_id
from diptych.search.stores.qdrant_notes import make_notes
from diptych.search.stores.store import Entry, Kind, Layout, Record, Stamp

VERSION = 1
STAMP = ["key", "size", "changed", "digest"]
RECORD = [*STAMP, "kind", "note", "metadata"]
# Fields that have an index of the server's own, by its kind.
INDEXED = {
    **dict.fromkeys(("kind", "folders", "columns", "words"), "keyword"),
    **dict.fromkeys(("seconds", "taken"), "integer"),
}
DENSE, SET = "dense", "set"


def make_collections(server: QdrantConnection, side: str, layout: Layout) -> None:
    """Make the two collections of a store; of several processes that try, one does."""
    from qdrant_client import models

    off = models.HnswConfigDiff(m=0)
    vectors = {DENSE: models.VectorParams(size=layout.dim, distance=models.Distance.DOT, hnsw_config=off)}
    if layout.set_size > 1:
        nearest = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        vectors[SET] = models.VectorParams(
            size=layout.dim, distance=models.Distance.DOT, hnsw_config=off, multivector_config=nearest
        )
    about = {"diptych": VERSION, "uid": uuid.uuid4().hex, **asdict(layout)}
    # The one with the store's own name comes last: where it is, the other is too.
    for collection, options in ((side, {"vectors_config": {}}), (server.name, {"vectors_config": vectors})):
        told = {"metadata": about} if collection == server.name else {}
        try:
            server.admin("create_collection", collection, **options, **told)
        except DiptychError:
            if server.info(collection) is None:  # else another process was first
                raise
        if collection == side:
            make_notes(server, side)


def index_fields(server: QdrantConnection, wanted: Mapping[str, str]) -> None:
    """Have the server index some fields, where it does not yet."""
    there = getattr(server.info(server.name), "payload_schema", {})
    for field, kind in wanted.items():
        if field not in there:
            server.admin("create_payload_index", server.name, field, field_schema=kind, wait=True)


def read_about(server: QdrantConnection) -> tuple[str, Layout] | None:
    """Which store it is, and what it was made for; None where there is none, an error where it is something else."""
    info = server.info(server.name)
    if info is None:
        return None
    fields = dict(info.config.metadata or {})
    try:
        version, uid = int(fields.pop("diptych")), str(fields.pop("uid"))
    except (ValueError, KeyError, TypeError):
        raise DiptychError(f"{server.address}: a collection, but not an index") from None
    if version > VERSION:
        raise DiptychError(f"{server.address}: made by a newer Diptych (version {version}, this one knows {VERSION})")
    return uid, Layout(**fields)


def vector_name(layout: Layout) -> str:
    """The vector of a point that holds all that an entry has."""
    return SET if layout.set_size > 1 else DENSE


def dense_of(vectors: np.ndarray) -> np.ndarray:
    """The one vector that stands for a set where a graph is searched: its mean, of length 1: (..., K, d) -> (..., d).

    The product of two means is the mean of all cosines between the sets, as smooth-Chamfer is for small alpha.
    """
    if vectors.shape[-2] == 1:
        return vectors[..., 0, :]
    mean = vectors.mean(-2)
    length = np.linalg.norm(mean, axis=-1, keepdims=True)
    return np.where(length > 1e-6, mean / np.maximum(length, 1e-6), vectors[..., 0, :]).astype(np.float32)


def point_of(entry: Entry, token: str) -> Any:
    """An entry as a point. `token` names its locals."""
    from qdrant_client import grpc as wire

    vectors = np.ascontiguousarray(entry.vectors, np.float32)
    named = {DENSE: wire.Vector(dense=wire.DenseVector(data=dense_of(vectors).tolist()))}
    if len(vectors) > 1:
        elements = [wire.DenseVector(data=vector.tolist()) for vector in vectors]
        named[SET] = wire.Vector(multi_dense=wire.MultiDenseVector(vectors=elements))
    fields = filter_fields(entry.key, entry.kind, entry.stamp.changed, entry.metadata) | {
        "size": entry.stamp.size,
        "changed": entry.stamp.changed,
        "digest": entry.stamp.digest,
        "note": entry.text,
        "metadata": json.dumps(entry.metadata),
        "token": token,
        "checksum": zlib.crc32(vectors.data),
    }
    return wire.PointStruct(
        id=point_id(entry.key),
        payload=payload_of(fields),
        vectors=wire.Vectors(vectors=wire.NamedVectors(vectors=named)),
    )


def record_of(fields: Mapping[str, Any]) -> Record:
    """What a point's fields tell of its entry."""
    kind: Kind = fields["kind"]
    stamp = Stamp(*(fields[name] for name in STAMP))
    return Record(fields["key"], kind, stamp, fields["note"], json.loads(fields["metadata"]))


def vectors_of(point: Any) -> np.ndarray:
    """The vectors of a point that was read with the one that holds all: (K, d)."""
    (output,) = point.vectors.vectors.vectors.values()
    if output.HasField("multi_dense"):
        return np.array([vector.data for vector in output.multi_dense.vectors], np.float32)
    if output.HasField("dense"):
        return np.array([output.dense.data], np.float32)
    # Servers of 1.16 send the numbers of all vectors in one row.
    return np.array(output.data, np.float32).reshape(output.vectors_count or 1, -1)


def is_whole(point: Any) -> bool:
    """Whether the vectors of a point that was read with its checksum are as they were written."""
    return zlib.crc32(np.ascontiguousarray(vectors_of(point), "<f4").data) == point.payload["checksum"].integer_value


def checked_vectors(point: Any, address: str) -> np.ndarray:
    """The vectors (K, d) of a point that was read with its key and checksum; an error where they are not whole."""
    if not is_whole(point):
        raise DiptychError(
            f"{address}: the vector of {point.payload['key'].string_value!r} is not as it was written; "
            "`diptych index --check` finds all of them"
        )
    return vectors_of(point)


def locals_point(token: str, locals: np.ndarray) -> Any:
    """Locals (cells, f) as a point of the side collection. Their shape is any, which no vector of a collection has."""
    from qdrant_client import grpc as wire

    data = np.ascontiguousarray(locals, "<f2").tobytes()
    cells, width = locals.shape
    fields = {"data": base64.b64encode(data).decode(), "cells": cells, "width": width, "checksum": zlib.crc32(data)}
    return wire.PointStruct(
        id=uuid_id(token), payload=payload_of(fields), vectors=wire.Vectors(vectors=wire.NamedVectors())
    )


def read_locals(fields: Mapping[str, Any]) -> np.ndarray | None:
    """Locals (cells, f) from the fields of their point; None where they are not as they were written."""
    data, shape = base64.b64decode(fields["data"]), (fields["cells"], fields["width"])
    if len(data) != 2 * shape[0] * shape[1] or zlib.crc32(data) != fields["checksum"]:
        return None
    return np.frombuffer(data, "<f2").reshape(shape)


def payload_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as the server takes them."""
    from qdrant_client.conversions.conversion import json_to_value

    return {name: json_to_value(value) for name, value in fields.items()}


def fields_of(point: Any) -> dict[str, Any]:
    """The fields of a point."""
    from qdrant_client.conversions.conversion import grpc_to_payload

    return grpc_to_payload(point.payload)
