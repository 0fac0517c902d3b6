"""Requests that arrive at about the same time go through the model together."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from diptych.web.errors import Busy
from diptych.web.service.figures import LaneFigures

J = TypeVar("J")
A = TypeVar("A")


@dataclass
class _Waiting(Generic[J, A]):
    job: J
    future: Future[A] = field(default_factory=Future)


class Batcher(Generic[J, A]):
    """One thread that takes jobs as they come, up to `most` at a time, and answers them together.

    work: answers jobs in their order; an answer may be an exception, which only its own caller gets
    most: most jobs of a batch; 1 answers them one by one
    wait: seconds in which more are gathered after the first has come; none are waited for while others were waiting
    queue: most jobs that wait; more are refused
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[J]], Sequence[A | Exception]],
        *,
        most: int = 32,
        wait: float = 0.003,
        queue: int = 256,
        ready: Callable[[], None] | None = None,
        figures: LaneFigures = LaneFigures(),  # noqa: B008
    ) -> None:
        self.name = name
        self.most, self.wait, self.queue = most, wait, queue
        self._work = work
        self._ready, self._figures = ready, figures
        self._jobs: deque[_Waiting[J, A]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    @property
    def size(self) -> int:
        """How many wait."""
        return len(self._jobs)

    def submit(self, job: J) -> Future[A]:
        """Have a job answered, or be told to come back later."""
        waiting: _Waiting[J, A] = _Waiting(job)
        with self._changed:
            if len(self._jobs) >= self.queue:
                self._figures.refused()
                raise Busy(f"too many requests of this kind ({self.name}) are waiting; try again in a moment")
            if self._thread is None:
                self._closing = False
                self._thread = threading.Thread(target=self._run, name=f"diptych-{self.name}", daemon=True)
                self._thread.start()
            self._jobs.append(waiting)
            self._figures.waiting(len(self._jobs))
            self._changed.notify()
        return waiting.future

    def close(self) -> None:
        """Answer what is at work, drop what waits. A later job opens it again."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._closing = True
            for waiting in self._jobs:
                waiting.future.cancel()
            self._jobs.clear()
            self._figures.waiting(0)
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        if self._ready is not None:
            self._ready()
        idle = True
        while (batch := self._gather(idle)) is not None:
            idle = False
            # A job whose caller gave up is not worked at.
            batch = [waiting for waiting in batch if waiting.future.set_running_or_notify_cancel()]
            if batch:
                self._answer(batch)

    def _gather(self, idle: bool) -> list[_Waiting[J, A]] | None:
        """The next batch, none at the end; `idle`: nothing has been worked at just now."""
        with self._changed:
            idle = idle or not self._jobs
            while not self._jobs and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            if idle and self.wait and self.most > 1:
                until = time.monotonic() + self.wait
                while len(self._jobs) < self.most and not self._closing:
                    left = until - time.monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        break
            batch = [self._jobs.popleft() for _ in range(min(self.most, len(self._jobs)))]
            self._figures.waiting(len(self._jobs))
            return batch

    def _answer(self, batch: list[_Waiting[J, A]]) -> None:
        self._figures.batch(len(batch))
        answers: Sequence[A | Exception]
        try:
            answers = self._work([waiting.job for waiting in batch])
        except Exception as error:  # whatever it is, the callers must hear of it and the thread go on
            answers = [error] * len(batch)
        for waiting, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                waiting.future.set_exception(answer)
            else:
                waiting.future.set_result(answer)
