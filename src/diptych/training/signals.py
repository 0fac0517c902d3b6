"""Being asked to stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """Whether Ctrl-C or SIGTERM came: the run ends after the step under way, with a checkpoint."""

    def __init__(self) -> None:
        self.asked = False

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
