"""One worker process of a server of several: started by the supervisor, and ended by it or with it."""

import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from diptych.common.machine import machine_error
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

    An error of the machine or of what it was given is told as its sentence: to the supervisor, in place of `LOADED`;
    when this process serves already, on its standard error.
    """
    # Read when prometheus_client is loaded, below: from then on its figures are those of all workers.
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(work.shared.metrics)
    from diptych.search.index import Index

    serving = False
    try:
        with Index.open(work.address, device=work.device) as index:
            from diptych.web.run import loaded_app, serve

            app = loaded_app(work.settings, index, work.shared)
            if serving := _may_go(supervisor):
                threading.Thread(target=_end_with, args=[supervisor], name="diptych-supervisor", daemon=True).start()
                serve(app, work.settings, listener, lambda: None)
    except Exception as error:
        sentence = machine_error(error)
        if sentence is None:
            raise
        if serving:
            sys.exit(f"note: worker {os.getpid()}: {sentence}")
        with suppress(OSError):  # the supervisor has gone meanwhile
            supervisor.send(sentence)


def _may_go(supervisor: Connection) -> bool:
    """Say that everything is loaded, and wait to be told to serve; False where the supervisor has gone meanwhile."""
    try:
        supervisor.send(LOADED)
        return bool(supervisor.recv() == GO)
    except (EOFError, OSError):
        return False


def _end_with(supervisor: Connection) -> None:
    """Wait until the supervisor is gone, whatever ended it; nobody would end this process then."""
    try:
        supervisor.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
