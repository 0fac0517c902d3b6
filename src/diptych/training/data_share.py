"""How much of the time of steps goes by in waiting for their data."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


class DataShare:
    """Measures the time that `take` waits, from where it began.

    It is this process's own time. A GPU works on behind it, and while a batch is waited for it may be busy with the
    steps before: the share is then the most that waiting can have cost. It tells the truth of time that ends with all
    work done, as after a loss was read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._since, self._waited = self._clock(), 0.0

    def take(self, batches: Iterator[T]) -> T:
        """The next batch, once it is there."""
        asked = self._clock()
        batch = next(batches)
        self._waited += self._clock() - asked
        return batch

    def share(self) -> float:
        """The share that waiting has of the time so far, from 0 to 1."""
        whole = self._clock() - self._since
        return self._waited / whole if whole > 0 else 0.0
