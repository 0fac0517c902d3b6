"""The ids of points on a Qdrant server: numbers of 128 bits, made from the keys."""

import hashlib
import uuid
from collections.abc import Sequence
from typing import Any

from diptych.search.stores.store import spread_of


def point_id(key: str) -> Any:
    """The id of an entry. The server reads points in the order of their ids, and that is the order of `spread_of`."""
    rest = hashlib.blake2b(key.encode(), digest_size=8, person=b"diptych").digest()
    return uuid_id(str(uuid.UUID(int=spread_of(key) << 64 | int.from_bytes(rest))))


def point_ids(keys: Sequence[str]) -> list[Any]:
    """The ids of several entries."""
    return [point_id(key) for key in keys]


def uuid_id(text: str) -> Any:
    """An id as the server takes it."""
    from qdrant_client import grpc as wire

    return wire.PointId(uuid=text)
