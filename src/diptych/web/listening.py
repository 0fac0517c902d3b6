"""The port: held before anything is loaded, listened at when everything is."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from diptych.common.errors import DiptychError


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that holds the port and does not listen yet; one sentence where it cannot be had."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise DiptychError(f"--host {host}: not an address of this machine: {error.strerror}") from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise DiptychError(
                f"{host}:{port} cannot be opened: {error.strerror}; choose another with --port"
            ) from None
        yield listener
