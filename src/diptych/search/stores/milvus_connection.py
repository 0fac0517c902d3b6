"""A connection to a Milvus server."""

import logging
from collections.abc import Iterator
from typing import Any

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import quoted
from diptych.search.stores.server import ServerConnection, parse_server

# The server's own limits: results of one search or page, and bytes of one request.
MOST_RESULTS, REQUEST_BYTES = 16_384, 32 << 20
NOT_LOADED = 101
LOST = ("UNAVAILABLE", "DEADLINE", "Deadline", "connect", "closed channel", "not ready", "timed out", "No channel")


def parse_address(address: str) -> tuple[str, str]:
    """milvus://host:port/name as the server's URI and the store's name."""
    host, port, name = parse_server(address, ("milvus",), 19530)
    return f"http://{host}:{port}", name


class MilvusConnection(ServerConnection):
    """Calls on one Milvus server."""

    server = "Milvus"

    def __init__(self, address: str, uri: str, patience: float) -> None:
        try:
            import grpc  # type: ignore[import-untyped]
            import pymilvus
        except ImportError:
            raise DiptychError(
                f"{address}: the package pymilvus is missing; install it with: pip install 'diptych[milvus]'"
            ) from None
        # Every failure is raised here as an error; pymilvus would print it too.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL + 1)
        super().__init__(address, patience, (pymilvus.MilvusException, grpc.RpcError))
        self._uri = uri
        self.attempt(lambda: self.client)

    def _connect(self) -> Any:
        import pymilvus

        # Not shared with other stores of this process: a lost one is thrown away.
        return pymilvus.MilvusClient(
            self._uri, timeout=self.patience, dedicated=True, grpc_options={"grpc.use_local_subchannel_pool": 1}
        )

    def call(self, method: str, collection: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client on a collection, which is loaded first where the server has let go of it."""

        def once() -> Any:
            return getattr(self.client, method)(collection, *arguments, timeout=self.patience, **options)

        def again() -> Any:
            try:
                return once()
            except self._failures as error:
                if getattr(error, "code", None) != NOT_LOADED:
                    raise
                self.client.load_collection(collection, timeout=self.patience)
                return once()

        return self.attempt(again)

    def query(self, collection: str, expression: str, fields: list[str], limit: int | None = None) -> list[Any]:
        """Rows that fit an expression, as dictionaries; those with the lowest ids where there are more than `limit`."""
        options = {} if limit is None else {"limit": limit}
        return list(
            self.call(
                "query",
                collection,
                filter=expression,
                output_fields=fields,
                consistency_level="Strong",
                **options,
            )
        )

    def pages(self, collection: str, expression: str, fields: list[str], size: int) -> Iterator[list[Any]]:
        """All rows that fit, in the order of their ids, `size` at a time."""
        last = ""
        while True:
            after = f"id > {quoted(last)}" + (f" and ({expression})" if expression else "")
            rows = sorted(self.query(collection, after, ["id", *fields], size), key=lambda row: str(row["id"]))
            if rows:
                yield rows
                last = rows[-1]["id"]
            if len(rows) < size:
                return

    def _is_lost(self, error: Exception) -> bool:
        text = f"{error} {getattr(error, 'message', '')}"
        return any(sign in text for sign in LOST)
