"""Connections that may not be there in vain: so many at once, and each must say soon what it wants."""

import asyncio
import resource

from uvicorn.protocols.http.h11_impl import H11Protocol

# Beyond so many connections a further one is closed without a word.
MOST_CONNECTIONS = 1000
# Files and sockets that the server needs for everything else, and that are accepted before they can be closed.
OTHER_FILES, BACKLOG = 128, 64
# The seconds within which the line and the headers of a request must be there.
HEADERS_WITHIN = 20.0


def most_connections(workers: int = 1) -> int:
    """How many connections each of so many processes may have: fewer where the system allows a process fewer files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = max(8, MOST_CONNECTIONS // workers)
    return share if files < 0 else max(8, min(share, files - OTHER_FILES - BACKLOG))


class BoundedProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, over connections that are few enough and not silent."""

    workers = 1
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more too many is closed before it can ask for anything."""
        super().connection_made(transport)
        if len(self.connections) > most_connections(self.workers):
            transport.abort()
        else:
            self._expect()

    def data_received(self, data: bytes) -> None:
        """Headers that have begun have to end in time, those of a connection's later requests too."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._late is None and not self.transport.is_closing():
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected of it any more."""
        self._forget()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._late = self.loop.call_later(HEADERS_WITHIN, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def bounded_protocol(workers: int) -> type[BoundedProtocol]:
    """The same where so many processes share the connections."""
    return type("BoundedProtocol", (BoundedProtocol,), {"workers": workers})
