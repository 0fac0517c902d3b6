"""A connection to a Qdrant server, over gRPC: vectors come and go as they are."""

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from diptych.common.errors import DiptychError
from diptych.search.stores.server import ServerConnection, parse_server

# Bytes of one request.
REQUEST_BYTES = 32 << 20
API_KEY = "DIPTYCH_QDRANT_API_KEY"


class QdrantConnection(ServerConnection):
    """Calls on the Qdrant server at qdrant://host:port/name, or qdrants:// with TLS; the port is that of gRPC.

    A key is taken from the environment, DIPTYCH_QDRANT_API_KEY, so that it stands in no address.
    """

    server = "Qdrant"

    def __init__(self, address: str, patience: float) -> None:
        self._host, self._port, self.name = parse_server(address, ("qdrant", "qdrants"), 6334)
        try:
            import grpc  # type: ignore[import-untyped]
            import qdrant_client  # noqa: F401
        except ImportError:
            raise DiptychError(
                f"{address}: the package qdrant-client is missing; install it with: pip install 'diptych[qdrant]'"
            ) from None
        super().__init__(address, patience, (grpc.RpcError, ValueError))

    def _connect(self) -> Any:
        from qdrant_client import QdrantClient

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a key without TLS: the documents say what that means
            return QdrantClient(
                host=self._host,
                grpc_port=self._port,
                prefer_grpc=True,
                https=self.address.startswith("qdrants:"),
                api_key=os.environ.get(API_KEY) or None,
                timeout=max(1, round(self.patience)),
                check_compatibility=False,  # it would ask the other port
                grpc_options={"grpc.use_local_subchannel_pool": 1},
            )

    def admin(self, method: str, collection: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client that makes, changes or describes a collection."""
        return self.attempt(lambda: getattr(self.client, method)(collection, *arguments, **options))

    def points(self, method: str, collection: str, **fields: Any) -> Any:
        """Call a method of the server's points; its request has the same name, or is named by `request`."""
        from qdrant_client import grpc as wire

        request = getattr(wire, fields.pop("request", f"{method}Points"))
        call = request(collection_name=collection, **fields)
        return self.attempt(lambda: getattr(self.client.grpc_points, method)(call, timeout=self.patience))

    def info(self, collection: str) -> Any | None:
        """What the server tells of a collection; None where there is none."""
        import grpc

        def ask() -> Any | None:
            try:
                return self.client.get_collection(collection)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.NOT_FOUND:
                    raise
                return None

        return self.attempt(ask)

    def upsert(self, collection: str, points: Sequence[Any]) -> None:
        """Write points; when this returns they are kept, and seen by all."""
        self.points("Upsert", collection, wait=True, points=points)

    def remove(self, collection: str, ids: Sequence[Any]) -> None:
        """Remove points."""
        from qdrant_client import grpc as wire

        if ids:
            selector = wire.PointsSelector(points=wire.PointsIdsList(ids=ids))
            self.points("Delete", collection, wait=True, points=selector)

    def get(self, collection: str, ids: Sequence[Any], fields: Sequence[str], vectors: Sequence[str] = ()) -> list[Any]:
        """Those of the points that are there, with some fields and vectors."""
        if not ids:
            return []
        return list(self.points("Get", collection, ids=ids, **wanted(fields, vectors)).result)

    def pages(
        self, collection: str, where: Any, fields: Sequence[str], size: int, vectors: Sequence[str] = ()
    ) -> Iterator[list[Any]]:
        """All points that fit, in the order of their ids, `size` at a time."""
        what = wanted(fields, vectors) | {"filter": where, "limit": size}
        offset: dict[str, Any] = {}
        while True:
            answer = self.points("Scroll", collection, **what, **offset)
            yield list(answer.result)
            if not answer.HasField("next_page_offset"):
                return
            offset = {"offset": answer.next_page_offset}

    def count(self, collection: str, where: Any) -> int:
        """How many points fit."""
        return int(self.points("Count", collection, filter=where, exact=True).result.count)

    def query(self, collection: str, queries: Sequence[Any]) -> list[list[Any]]:
        """The results of several queries at once."""
        if not queries:
            return []
        answer = self.points("QueryBatch", collection, request="QueryBatchPoints", query_points=queries)
        return [list(one.result) for one in answer.result]

    def _is_lost(self, error: Exception) -> bool:
        import grpc

        lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
        # Of a channel that another thread has closed meanwhile gRPC says so with a plain ValueError.
        return error.code() in lost if isinstance(error, grpc.RpcError) else "closed channel" in str(error)

    def _hint(self, error: Exception) -> str:
        if "http1.x" in str(error):
            return "; this port speaks HTTP, expected the one for gRPC, 6334 as a rule"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "; its certificate is not trusted (GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names a file of those that are)"
        return ""

    def _said(self, error: Exception) -> str:
        import grpc

        code = getattr(error, "code", lambda: None)()
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return f"the Qdrant server refuses; an API key is taken from the environment variable {API_KEY}"
        return f"the Qdrant server says: {getattr(error, 'details', lambda: error)()}"


def wanted(fields: Sequence[str], vectors: Sequence[str]) -> dict[str, Any]:
    """What a request says of the fields and vectors that its answer brings."""
    from qdrant_client import grpc as wire

    return {
        "with_payload": wire.WithPayloadSelector(include=wire.PayloadIncludeSelector(fields=fields))
        if fields
        else wire.WithPayloadSelector(enable=False),
        "with_vectors": wire.WithVectorsSelector(include=wire.VectorsSelector(names=vectors))
        if vectors
        else wire.WithVectorsSelector(enable=False),
    }
