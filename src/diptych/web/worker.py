"""One worker process of a server of several: started by the supervisor, and ended by it or with it."""

import os
import signal
import socket
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection

from diptych.common.errors import DiptychError
from diptych.web.service.shared import Shared
from diptych.web.settings import ServerSettings

# What a worker says when it could answer, and hears when it may.
LOADED, GO = "loaded", "go"


@dataclass(frozen=True)
class Work:
    """What a worker needs to know.

    address: of the index; device: where its model runs
    """

    settings: ServerSettings
    address: str
    device: str
    shared: Shared


def work(work: Work, listener: socket.socket, supervisor: Connection) -> None:
    """Load everything, say so, and serve from when it is told to until SIGTERM, or until the supervisor is gone.

    An error is told to the supervisor as its sentence, in place of `LOADED`.
    """
    # Read when prometheus_client is loaded, below: from then on its figures are those of all workers.
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(work.shared.metrics)
    from diptych.search.index import Index

    try:
        with Index.open(work.address, device=work.device) as index:
            from diptych.web.run import loaded_app, serve

            app = loaded_app(work.settings, index, work.shared)
            supervisor.send(LOADED)
            if supervisor.recv() == GO:
                threading.Thread(target=_end_with, args=[supervisor], name="diptych-supervisor", daemon=True).start()
                serve(app, work.settings, listener, lambda: None)
    except DiptychError as error:
        supervisor.send(str(error))
    except EOFError:  # the supervisor has gone meanwhile
        pass


def _end_with(supervisor: Connection) -> None:
    """Wait until the supervisor is gone, whatever ended it; nobody would end this process then."""
    try:
        supervisor.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
