"""A connection to a Milvus server: bounded in time, with errors in plain words, and good again after it was lost."""

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import quoted

# The server's own limits: results of one search or page, and bytes of one request.
MOST_RESULTS, REQUEST_BYTES = 16_384, 32 << 20
NOT_LOADED = 101
LOST = ("UNAVAILABLE", "DEADLINE", "Deadline", "connect", "closed channel", "not ready", "timed out", "No channel")


def parse_address(address: str) -> tuple[str, str]:
    """milvus://host:port/name as the server's URI and the store's name."""
    parts = urlsplit(address)
    if "@" in parts.netloc:
        # Not repeated: it may hold a password.
        raise DiptychError("milvus://…@…: a user and a password cannot be given; expected milvus://host:port/name")
    name = parts.path.strip("/")
    try:
        port = parts.port or 19530
    except ValueError:
        port = 0
    if parts.scheme != "milvus" or not parts.hostname or not port or parts.query:
        raise DiptychError(f"{address}: expected milvus://host:port/name")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", name):
        raise DiptychError(f"{address}: {name!r} cannot name a store; expected letters, digits and _")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"http://{host}:{port}", name


class MilvusConnection:
    """Calls on one server. `patience`: seconds after which a call is given up."""

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
        self.address = address
        self.patience = patience
        self._failures: tuple[type[Exception], ...] = (pymilvus.MilvusException, grpc.RpcError, ConnectionError)
        self._uri = uri
        self._closed = False
        self._client: Any = None
        self._call(lambda: self.client)

    @property
    def client(self) -> Any:
        """The client, connected."""
        if self._closed:
            raise DiptychError(f"{self.address}: the store is closed")
        if self._client is None:
            import pymilvus

            # Not shared with other stores of this process: a lost one is thrown away, and with its own pool of
            # connections the next one tries at once, instead of sitting out the lost one's back-off.
            self._client = pymilvus.MilvusClient(
                self._uri,
                timeout=self.patience,
                dedicated=True,
                grpc_options={"grpc.use_local_subchannel_pool": 1},
            )
        return self._client

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

        return self._call(again)

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

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is done, or the time is over."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        return True

    def close(self) -> None:
        """Close the connection; closing twice is fine."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*self._failures):
                client.close()

    def _call(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except self._failures as error:
            if _is_lost(error):
                self._let_go()
                raise DiptychError(f"{self.address}: the Milvus server cannot be reached") from error
            text = str(getattr(error, "message", "") or error)
            raise DiptychError(f"{self.address}: the Milvus server says: {text.splitlines()[0]}") from error


def _is_lost(error: Exception) -> bool:
    """Whether an error means that the server is not there, rather than that it refused something."""
    text = f"{error} {getattr(error, 'message', '')}"
    return any(sign in text for sign in LOST)
