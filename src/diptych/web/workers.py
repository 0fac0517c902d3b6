"""Several worker processes at one port: started, kept at their number, and ended together."""

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.search.index import Index
from diptych.web.connections import BACKLOG
from diptych.web.listening import bound
from diptych.web.notify import notify
from diptych.web.service.ids import secret_of
from diptych.web.service.shared import Shared
from diptych.web.settings import ServerSettings
from diptych.web.tidying import tidy_uploads
from diptych.web.worker import GO, LOADED, Work, work

# A worker that has to be started again soon after it began waits, twice as long each time, up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
# Who served for so long did not end because of how it began.
SETTLED = 60.0
# After a signal a worker ends its requests, which takes it 10 seconds at most, and its threads.
END_WITHIN = 20.0


def run_workers(settings: ServerSettings, index: Index, device: str, started: Callable[[ServerSettings], None]) -> None:
    """Serve with `settings.workers` processes until SIGTERM or Ctrl-C; the index stays the caller's to close.

    The processes are started afresh, each with its own models: a process that has run torch cannot safely be forked.

    device: where the models run
    started: told the settings, with the port that was taken, when all workers are loaded and the port is open
    """
    with (
        bound(settings.host, settings.port) as listener,
        tempfile.TemporaryDirectory(prefix="diptych-serve-") as folder,
        _signals() as signals,
    ):
        settings = replace(settings, port=listener.getsockname()[1])
        shared = Shared(Path(folder), secret_of(index))
        shared.make()
        crew = Crew(Work(settings, index.store.address, device, shared), listener, signals)
        with crew:
            if not crew.load():
                return
            tidy_uploads(settings, index)
            crew.go()
            started(settings)
            notify("READY=1")
            crew.keep()
            notify("STOPPING=1")


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    began: float = field(default_factory=time.monotonic)
    serving: bool = False

    @property
    def ended(self) -> str:
        """How it ended, in words."""
        code = self.process.exitcode or 0
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"


class Signals:
    """Signals to stop that have come, and a file that can be read when one has."""

    def __init__(self) -> None:
        self.count = 0
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def note(self, *_: object) -> None:
        """One more."""
        self.count += 1
        with suppress(BlockingIOError):
            os.write(self._writer, b".")

    def seen(self) -> None:
        """Those that came were heard."""
        os.read(self.reader, 4096)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.reader)
        os.close(self._writer)


class Crew:
    """The worker processes of one server, as many as it is to have."""

    def __init__(self, work: Work, listener: socket.socket, signals: Signals) -> None:
        self._work, self._listener, self._signals = work, listener, signals
        self._workers: list[_Worker] = []
        # When the missing ones are started, and how long the next pause is.
        self._due: list[float] = []
        self._pause = 0.0

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def load(self) -> bool:
        """Start all of them and wait until each could answer; False where a signal came before that.

        The first that cannot load what it needs is an error, with its own sentence.
        """
        self._workers = [self._started() for _ in range(self._work.settings.workers)]
        loading = list(self._workers)
        while loading:
            ready = wait([*(worker.pipe for worker in loading), self._signals.reader])
            if self._signals.count:
                return False
            for worker in [worker for worker in loading if worker.pipe in ready]:
                said = _said(worker)
                if said != LOADED:
                    raise DiptychError(said)
                loading.remove(worker)
        return True

    def go(self) -> None:
        """Open the port, and let all answer; what comes before they do waits for them."""
        self._listener.listen(BACKLOG)
        for worker in self._workers:
            _let_go(worker)

    def keep(self) -> None:
        """Start another for each that ends, until a signal comes."""
        while not self._signals.count:
            loading = {worker.pipe: worker for worker in self._workers if not worker.serving}
            ends = {worker.process.sentinel: worker for worker in self._workers}
            pause = max(0.0, min(self._due) - time.monotonic()) if self._due else None
            for ready in wait([*loading, *ends, self._signals.reader], pause):
                if ready in loading:
                    self._greet(loading[ready])
                elif ready in ends and ends[ready] in self._workers:
                    self._replace(ends[ready])
            now = time.monotonic()
            for due in [due for due in self._due if due <= now]:
                self._due.remove(due)
                self._workers.append(self._started())

    def _greet(self, worker: _Worker) -> None:
        """One that was started again is loaded, or says why it cannot be."""
        said = _said(worker)
        if said == LOADED:
            _let_go(worker)
        elif worker in self._workers:
            self._replace(worker, f"could not start: {said}")

    def _replace(self, worker: _Worker, how: str | None = None) -> None:
        """Have another started in the place of one that has ended, or is about to."""
        from prometheus_client.multiprocess import mark_process_dead

        worker.process.join(END_WITHIN)
        settled = worker.serving and time.monotonic() - worker.began > SETTLED
        pause = 0.0 if settled else self._pause
        self._pause = 0.0 if settled else min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
        when = f"in {pause:g} seconds" if pause else "now"
        print(
            f"note: worker {worker.process.pid} {how or worker.ended}; another is started {when}",
            file=sys.stderr,
            flush=True,
        )
        self._workers.remove(worker)
        worker.pipe.close()
        mark_process_dead(worker.process.pid, str(self._work.shared.metrics))  # type: ignore[no-untyped-call]
        self._due.append(time.monotonic() + pause)

    def _started(self) -> _Worker:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(self._work, self._listener, theirs), daemon=True)
        # Ctrl-C reaches every process of a terminal. Workers never see it: the supervisor ends them in good order.
        resource_tracker.ensure_running()  # which starting a process does too, and lets Ctrl-C through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return _Worker(process, ours)

    def _end(self) -> None:
        """End all of them: those that do not end in time, or at a second signal, are killed. The port closes."""
        self._listener.close()  # else whoever comes from now on would wait for nobody
        asked, until = self._signals.count, time.monotonic() + END_WITHIN
        for worker in self._workers:
            worker.process.terminate()
        left = list(self._workers)
        while left and self._signals.count <= max(1, asked) and time.monotonic() < until:
            if self._signals.reader in wait([*(w.process.sentinel for w in left), self._signals.reader], 0.5):
                self._signals.seen()
            left = [worker for worker in left if worker.process.is_alive()]
        for worker in left:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()


def _said(worker: _Worker) -> str:
    """What a worker that was loading says; how it ended, where it can say nothing."""
    try:
        return str(worker.pipe.recv())
    except (EOFError, OSError):
        worker.process.join(END_WITHIN)
        return f"a worker {worker.ended} while it was loading"


def _let_go(worker: _Worker) -> None:
    worker.serving = True
    with suppress(OSError):  # it has ended; its end is noticed by itself
        worker.pipe.send(GO)


@contextmanager
def _signals() -> Iterator[Signals]:
    """SIGTERM and Ctrl-C noted from here on, and nothing else done about them."""
    signals = Signals()
    former = {name: signal.signal(name, signals.note) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for name, handler in former.items():
            signal.signal(name, handler)
        signals.close()
