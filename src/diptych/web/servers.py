"""uvicorn's server, told when the port is open; and one that shares a port with other processes."""

import asyncio
import socket
import sys
from collections.abc import Callable

import uvicorn

# After each connection a process leaves the next to the others for so many seconds.
PAUSE = 0.002
# Where a connection cannot be taken, as without free files, the next is tried after so many seconds.
PAUSE_AFTER_ERROR = 1.0
# With as many connections as it may have, a process looks after so many seconds whether one has ended.
PAUSE_WHILE_FULL = 0.05


class ReadyServer(uvicorn.Server):
    """Says when the port is open."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()


class SharingServer(ReadyServer):
    """Takes connections from a socket that other processes take them from too, and that listens already.

    asyncio takes as many as there are in one go: the first process to wake would have them all, and keep them for as
    long as browsers and proxies keep connections. Here each takes one, and the next after a moment.

    most: connections at once; while it has them it leaves further ones to the others
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], listener: socket.socket, most: int) -> None:
        super().__init__(config, ready)
        self._listener, self._most = listener, most
        self._taking: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        self._listener.setblocking(False)
        await super().startup(sockets)
        if self.started:
            self._taking = asyncio.create_task(self._take())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Leave further connections to the others, and end those that there are."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait([self._taking])
        self._listener.close()
        await super().shutdown(sockets)

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while len(self.server_state.connections) >= self._most:
                await asyncio.sleep(PAUSE_WHILE_FULL)
            try:
                connection, _ = await loop.sock_accept(self._listener)
                await loop.connect_accepted_socket(self._protocol, connection)
                await asyncio.sleep(PAUSE)
            except ConnectionError:  # its client has gone already
                continue
            except OSError as error:
                print(f"note: a connection cannot be taken: {error.strerror}", file=sys.stderr, flush=True)
                await asyncio.sleep(PAUSE_AFTER_ERROR)

    def _protocol(self) -> asyncio.Protocol:
        """As uvicorn makes one for each connection."""
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
