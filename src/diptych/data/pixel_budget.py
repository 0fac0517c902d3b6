"""Large pictures are decoded a few at a time, however many threads decode: the limit of one picture bounds them all."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class PixelBudget:
    """So many pixels of decoded pictures are there at once, over all threads of the process.

    A picture waits until there is room for it, or no other is there; whoever waits longest comes first. Within
    `holding` a thread keeps the room of what it has decoded until the end, which is when it has made it smaller.
    """

    def __init__(self, most: Callable[[], int]) -> None:
        """most: the pixels, asked for anew each time."""
        self._most = most
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)  # the threads of the parent are not there

    def _begin_anew(self) -> None:
        self._changed = threading.Condition()
        self._taken = 0
        self._waiting: deque[object] = deque()
        self._own = threading.local()

    @property
    def taken(self) -> int:
        """Pixels that are there now."""
        return self._taken

    @contextmanager
    def decoding(self, pixels: int) -> Iterator[None]:
        """Room for a picture while it is decoded, and for as long as this thread is holding what it decodes."""
        held: list[int] | None = getattr(self._own, "held", None)
        # A thread that has room already does not wait for more: two that did would wait for each other.
        self._take(pixels, wait=not held)
        if held is not None:
            held.append(pixels)
        try:
            yield
        finally:
            if held is None:
                self._give(pixels)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """What this thread decodes within counts until the end of it."""
        before, self._own.held = getattr(self._own, "held", None), []
        try:
            yield
        finally:
            held: list[int] = self._own.held
            self._own.held = before
            self._give(sum(held))

    def _take(self, pixels: int, wait: bool) -> None:
        with self._changed:
            if wait:
                ticket = object()
                self._waiting.append(ticket)
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._fits(pixels))
                self._waiting.popleft()
            self._taken += pixels
            self._changed.notify_all()

    def _fits(self, pixels: int) -> bool:
        return self._taken == 0 or self._taken + pixels <= self._most()

    def _give(self, pixels: int) -> None:
        with self._changed:
            self._taken -= pixels
            self._changed.notify_all()
