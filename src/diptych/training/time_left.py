"""How long a whole run will still take: its steps and its evaluations, at the pace so far."""

import time
from collections.abc import Callable
from typing import Literal

Work = Literal["step", "evaluation"]


class TimeLeft:
    """Measures what steps and evaluations take, from one mark to the next.

    The first step is left out: it waits for workers, memory and kernels that later ones find ready.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._seconds = {"step": 0.0, "evaluation": 0.0}
        self._counts = {"step": -1, "evaluation": 0}

    def mark(self, done: Work) -> None:
        """One more is done: it took the time since the last mark."""
        now = self._clock()
        if self._counts[done] >= 0:
            self._seconds[done] += now - self._last
        self._counts[done] += 1
        self._last = now

    def seconds(self, steps: int, evaluations: int) -> float | None:
        """What so many of both will take; None where no step was measured yet, and no evaluation counts as nothing."""
        if self._counts["step"] < 1:
            return None
        each = {work: self._seconds[work] / max(1, count) for work, count in self._counts.items()}
        return steps * each["step"] + evaluations * each["evaluation"]
