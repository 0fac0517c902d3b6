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
        """Take the two signals; a second one ends the run at once."""

        def ask(number: int, frame: Any) -> None:
            if self.asked:
                raise KeyboardInterrupt
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
