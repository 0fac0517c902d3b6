"""A connection to a server that keeps vectors: bounded in time, errors in plain words, good again after it was lost."""

import contextlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from diptych.common.errors import DiptychError

T = TypeVar("T")


def parse_server(address: str, schemes: tuple[str, ...], port: int) -> tuple[str, int, str]:
    """scheme://host:port/name as host, port and the store's name; `port` where none is given."""
    expected = f"expected {schemes[0]}://host:port/name"
    try:
        parts = urlsplit(address)
    except ValueError:  # such as half of an IPv6 address
        raise DiptychError(f"{schemes[0]}://…: not an address; {expected}") from None
    if "@" in parts.netloc:
        # Not repeated: it may hold a password.
        raise DiptychError(f"{schemes[0]}://…@…: a user and a password cannot be given; {expected}")
    name = parts.path.strip("/")
    try:
        port = parts.port or port
    except ValueError:
        port = 0
    if parts.scheme not in schemes or not parts.hostname or not port or parts.query:
        raise DiptychError(f"{address}: {expected}")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", name):
        raise DiptychError(f"{address}: {name!r} cannot name a store; expected letters, digits and _")
    return f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname, port, name


class ServerConnection(ABC):
    """Calls on one server. `patience`: seconds after which a call is given up; `server`: what errors call it."""

    server = "server"

    def __init__(self, address: str, patience: float, failures: tuple[type[Exception], ...]) -> None:
        """failures: what calls on the client raise where the server fails."""
        self.address = address
        self.patience = patience
        self._failures: tuple[type[Exception], ...] = (*failures, ConnectionError)
        self._closed = False
        self._client: Any = None

    @property
    def client(self) -> Any:
        """The client, connected."""
        if self._closed:
            raise DiptychError(f"{self.address}: the store is closed")
        if self._client is None:
            self._client = self._connect()
        return self._client

    def attempt(self, action: Callable[[], T]) -> T:
        """What a call gives, its failures in plain words; a client whose server is lost is thrown away."""
        try:
            return action()
        except self._failures as error:
            if self._is_lost(error):
                self._let_go()
                hint = self._hint(error)
                raise DiptychError(f"{self.address}: the {self.server} server cannot be reached{hint}") from error
            raise DiptychError(f"{self.address}: {self._said(error)}") from error

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

    def _said(self, error: Exception) -> str:
        """What to tell of an error that the server answered with."""
        text = str(getattr(error, "message", "") or error)
        return f"the {self.server} server says: {text.splitlines()[0]}"

    def _hint(self, error: Exception) -> str:
        """What else to tell of a server that cannot be reached."""
        return ""

    @abstractmethod
    def _connect(self) -> Any:
        """A new client, with connections of its own: it tries at once, without the back-off of a lost one."""

    @abstractmethod
    def _is_lost(self, error: Exception) -> bool:
        """Whether an error means that the server is not there, rather than that it refused something."""
