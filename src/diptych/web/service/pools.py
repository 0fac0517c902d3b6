"""Threads for slow work: each kind has its own few, and its own short queue, so that none can stop the others."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from diptych.web.errors import Busy
from diptych.web.service.figures import LaneFigures

R = TypeVar("R")


class Pool:
    """A few threads for one kind of work; when `waiting` pieces wait beside those at work, more are refused.

    ready: called by each thread before its first work
    """

    def __init__(
        self,
        name: str,
        workers: int,
        waiting: int,
        ready: Callable[[], None] | None = None,
        figures: LaneFigures = LaneFigures(),  # noqa: B008
    ) -> None:
        self.name = name
        self.most = workers + waiting
        self._workers = workers
        self._ready, self._figures = ready, figures
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._count = 0

    @property
    def size(self) -> int:
        """How much waits or is at work."""
        return self._count

    def submit(self, work: Callable[[], R]) -> Future[R]:
        """Have it done, or be told to come back later."""
        with self._lock:
            if self._count >= self.most:
                self._figures.refused()
                raise Busy(f"too many requests of this kind ({self.name}) are waiting; try again in a moment")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._workers, f"diptych-{self.name}", self._ready or _nothing)
            self._count += 1
            self._figures.waiting(self._count)
            future = self._executor.submit(work)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: Future[R]) -> None:
        with self._lock:
            self._count -= 1
            self._figures.waiting(self._count)

    def close(self) -> None:
        """Finish what is at work, drop what waits. A later piece of work opens it again."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)


def _nothing() -> None:
    return None
