"""What a store on a Qdrant server writes down beside its entries: properties, and a few words of its own."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

from diptych.search.stores.qdrant_connection import QdrantConnection

# Two points of the side collection; those of locals have ids of 128 bits.
PROPERTIES, OWN = 1, 2


def make_notes(server: QdrantConnection, side: str) -> None:
    """Make the points, with nothing in them; those that are there stay as they are."""
    from qdrant_client import grpc as wire

    there = {point.id.num for point in server.get(side, _ids(PROPERTIES, OWN), ())}
    missing = [number for number in (PROPERTIES, OWN) if number not in there]
    if missing:
        server.upsert(
            side, [wire.PointStruct(id=i, vectors=wire.Vectors(vectors=wire.NamedVectors())) for i in _ids(*missing)]
        )


class QdrantNotes:
    """Small strings by name, in a point of the side collection: each is set alone, whoever sets another meanwhile."""

    def __init__(self, server: QdrantConnection, side: str, number: int) -> None:
        self._server, self._side, self._ids = server, side, _ids(number)

    def read(self) -> dict[str, str]:
        """All of them."""
        from qdrant_client import grpc as wire

        everything = wire.WithPayloadSelector(enable=True)
        points = self._server.points("Get", self._side, ids=self._ids, with_payload=everything).result
        return {unquote(name): value.string_value for point in points for name, value in point.payload.items()}

    def write(self, changes: dict[str, str]) -> None:
        """Add or change some."""
        from qdrant_client import grpc as wire

        payload = {_code(name): wire.Value(string_value=value) for name, value in changes.items()}
        self._change("SetPayload", payload=payload)

    def remove(self, names: Sequence[str]) -> None:
        """Remove some; those that are not there are no error."""
        self._change("DeletePayload", keys=[f'"{_code(name)}"' for name in names])

    def _change(self, method: str, **what: Any) -> None:
        from qdrant_client import grpc as wire

        if any(what.values()):
            selector = wire.PointsSelector(points=wire.PointsIdsList(ids=self._ids))
            self._server.points(method, self._side, wait=True, points_selector=selector, **what)


def _ids(*numbers: int) -> list[Any]:
    from qdrant_client import grpc as wire

    return [wire.PointId(num=number) for number in numbers]


def _code(name: str) -> str:
    """A name without the characters that mean something in a path."""
    return quote(name, safe=" ")
