"""What a service manager is told: systemd, or whatever else listens at $NOTIFY_SOCKET."""

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Say `READY=1` or `STOPPING=1` to whoever started this and wants to know; nothing where nobody does."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as teller, suppress(OSError):
        # A name that begins with @ is in no folder.
        teller.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
