"""Connections that say nothing, or are too many, are closed; those that ask are answered."""

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from diptych.web import connections
from diptych.web.connections import BoundedProtocol, most_connections
from diptych.web.servers import SharingServer

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving() -> Any:
    config, state = uvicorn.Config(app, log_level="critical"), ServerState()
    config.load()
    server = await asyncio.get_running_loop().create_server(lambda: BoundedProtocol(config, state, {}), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield lambda: asyncio.open_connection("127.0.0.1", port)


Open = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 30) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHos"])
def test_a_request_that_does_not_come_ends_the_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_WITHIN", 0.05)

    async def run() -> None:
        async with serving() as open_connection:
            reader, writer = await open_connection()
            writer.write(sent)
            assert await closed(reader)
            writer.close()

    asyncio.run(run())


def test_a_later_request_that_does_not_end_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_WITHIN", 0.2)

    async def run() -> None:
        async with serving() as open_connection:
            reader, writer = await open_connection()
            for _ in range(2):
                writer.write(REQUEST)
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            writer.write(b"GET / HTTP")
            assert await closed(reader)
            writer.close()

    asyncio.run(run())


def test_one_too_many_is_closed_and_there_is_room_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda _: 2)

    async def run() -> None:
        async with serving() as open_connection:
            held = [await open_connection() for _ in range(2)]
            for reader, writer in held:
                writer.write(REQUEST)
                await reader.readuntil(b"ok")
            reader, writer = await open_connection()
            assert await closed(reader)
            writer.close()
            held[0][1].close()
            await held[0][1].wait_closed()
            while True:  # until the server has noticed
                reader, writer = await open_connection()
                writer.write(REQUEST)
                try:
                    answer = await reader.read(12)
                except ConnectionResetError:
                    answer = b""
                writer.close()
                if answer:
                    break
            assert answer == b"HTTP/1.1 200"
            held[1][1].close()

    asyncio.run(run())


def test_there_are_fewer_connections_than_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, wanted in ((1024, 832), (100_000, 1000), (256, 64), (64, 8), (resource.RLIM_INFINITY, 1000)):
        monkeypatch.setattr("resource.getrlimit", lambda _, files=files: (files, files))
        assert most_connections() == wanted
        assert most_connections(2) == min(wanted, 500)


def test_a_full_process_leaves_connections_to_those_that_share_its_port() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            config = uvicorn.Config(app, log_level="critical", lifespan="off", http=BoundedProtocol)
            full = SharingServer(config, lambda: None, listener.dup(), 2)
            running = asyncio.create_task(full._serve([]))
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for reader, writer in held:
                writer.write(REQUEST)
                await reader.readuntil(b"ok")
            third, writer = await asyncio.open_connection("127.0.0.1", port)
            listener.setblocking(False)
            await asyncio.sleep(0.1)  # in which the full one would take it
            # As another process does, which would wait in vain if the full one had taken it.
            taken, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(listener), 10)
            taken.sendall(b"hello")
            assert await third.readexactly(5) == b"hello"
            taken.close()
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)  # which waits until there is room
            writer.write(REQUEST)
            held[0][1].close()
            assert (await asyncio.wait_for(reader.readuntil(b"ok"), 30)).startswith(b"HTTP/1.1 200")
            writer.close()
            held[1][1].close()
            full.should_exit = True
            await running

    asyncio.run(run())
