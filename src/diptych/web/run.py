"""The server from its start to its end: models first, then the port; a signal ends it with the index whole."""

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

import uvicorn

from diptych.common.errors import DiptychError
from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.connections import BACKLOG, BoundedProtocol
from diptych.web.service.left_over import ASIDE, UploadsFolder
from diptych.web.settings import ServerSettings, cores_each

# The seconds for which a thread may keep the interpreter while others want it. A model's forward pass asks for it some
# hundred times: at Python's own 5 ms a busy server would spend most of its time waiting.
SWITCH = 0.0005
# After a signal, requests that are under way have this long to end.
GRACE = 10


def run_server(settings: ServerSettings, index: Index, started: Callable[[ServerSettings], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; the index stays the caller's to close.

    started: told the settings, with the port that was taken, when everything is loaded and the port is open
    """
    sys.setswitchinterval(SWITCH)
    limit_blas()
    with bound(settings.host, settings.port) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        app = create_app(settings, index)
        app.state.service.warm()
        _tidy(app.state.service.changes.uploads)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            http=BoundedProtocol,
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE,
        )
        server = _Server(config, lambda: started(settings))
        with _quiet_signals():
            server.run(sockets=[listener])


def _tidy(uploads: UploadsFolder) -> None:
    """Put uploads aside that no entry speaks of; a folder that cannot be tidied is no reason not to serve."""
    try:
        count = uploads.tidy()
    except (DiptychError, OSError) as error:
        print(f"note: {uploads.folder} could not be tidied: {error}", file=sys.stderr)
        return
    if count:
        files = "1 upload" if count == 1 else f"{count:,} uploads"
        place = uploads.folder / ASIDE
        print(f"note: {files} without an entry put aside in {place}, for a month", file=sys.stderr)


def limit_blas() -> None:
    """Let NumPy's products use no more threads than the models do; those of several requests would wait for each other.

    Before NumPy is loaded the environment says it (`diptych serve` does that); afterwards only threadpoolctl can.
    """
    if find_spec("threadpoolctl") is not None:
        import_module("threadpoolctl").threadpool_limits(cores_each(), "blas")


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


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """uvicorn stops at the first signal and then sends it once more; that one has nothing left to do."""
    names = (signal.SIGINT, signal.SIGTERM)
    former = {name: signal.signal(name, lambda *_: None) for name in names}
    try:
        yield
    finally:
        for name, handler in former.items():
            signal.signal(name, handler)
