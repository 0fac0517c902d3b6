"""One process that serves, from its start to its end: models first, then the port; a signal ends it cleanly."""

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

import uvicorn
from fastapi import FastAPI

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.connections import BACKLOG, bounded_protocol, most_connections
from diptych.web.listening import bound
from diptych.web.notify import notify
from diptych.web.servers import ReadyServer, SharingServer
from diptych.web.service.shared import Shared
from diptych.web.settings import ServerSettings, cores_each
from diptych.web.tidying import tidy_uploads

# The seconds for which a thread may keep the interpreter while others want it. A model's forward pass asks for it some
# hundred times: at Python's own 5 ms a busy server would spend most of its time waiting.
SWITCH = 0.0005
# After a signal, requests that are under way have this long to end.
GRACE = 10


def run_server(settings: ServerSettings, index: Index, started: Callable[[ServerSettings], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; the index stays the caller's to close.

    started: told the settings, with the port that was taken, when everything is loaded and the port is open
    """

    def ready() -> None:
        started(settings)
        notify("READY=1")

    with bound(settings.host, settings.port) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        app = loaded_app(settings, index)
        tidy_uploads(settings, index)
        serve(app, settings, listener, ready)
        notify("STOPPING=1")


def loaded_app(settings: ServerSettings, index: Index, shared: Shared | None = None) -> FastAPI:
    """The application with its models loaded, in a process that does nothing but serve it."""
    sys.setswitchinterval(SWITCH)
    limit_blas(settings.workers)
    app = create_app(settings, index, shared)
    app.state.service.warm()
    return app


def serve(app: FastAPI, settings: ServerSettings, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Listen and answer until a signal; ready: called when the port is open."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=bounded_protocol(settings.workers),
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE,
    )
    with _quiet_signals():
        if settings.workers == 1:
            ReadyServer(config, ready).run(sockets=[listener])
        else:
            SharingServer(config, ready, listener, most_connections(settings.workers)).run(sockets=[])


def limit_blas(workers: int) -> None:
    """Let NumPy's products use no more threads than the models do; those of several requests would wait for each other.

    Before NumPy is loaded the environment says it (`diptych serve` does that); afterwards only threadpoolctl can.
    """
    if find_spec("threadpoolctl") is not None:
        import_module("threadpoolctl").threadpool_limits(cores_each(workers), "blas")


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
