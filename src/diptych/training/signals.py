"""Being asked to stop."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """Whether Ctrl-C or SIGTERM came, or the time is over: the run ends after the step under way, with a checkpoint.

    until: when the time is over, on the clock of `time.monotonic`
    """

    def __init__(self, until: float | None = None) -> None:
        self.asked = False
        self.until = until

    def look(self) -> bool:
        """Whether to stop by now."""
        self.asked = self.asked or (self.until is not None and time.monotonic() >= self.until)
        return self.asked

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the two signals; a second Ctrl-C ends the run at once.

        A second SIGTERM does not: timeout(1) and batch systems send one to a process and one to its group.
        """
        interrupted = False

        def ask(number: int, frame: Any) -> None:
            nonlocal interrupted
            if number == signal.SIGINT:
                if interrupted:
                    raise KeyboardInterrupt
                interrupted = True
            self.asked = True

        try:
            before = [(s, signal.signal(s, ask)) for s in (signal.SIGINT, signal.SIGTERM)]
        except ValueError:  # not in the main thread: signals are not ours to take
            before = []
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)


def leave_signals_to_the_trainer(worker: int) -> None:
    """A data worker ignores the two signals, which come to the whole group of processes: the trainer ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
