"""Answers that are made while they are sent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from diptych.web.errors import Busy


class Places:
    """So many at a time; more are told to come back."""

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self._taken = 0

    def take(self) -> Callable[[], None]:
        """Take a place; what is given frees it, once."""
        if self._taken >= self._most:
            raise Busy(f"{self._most} {self._what} are being made already; try again when they are done", 10)
        self._taken += 1
        held = True

        def free() -> None:
            nonlocal held
            self._taken -= held
            held = False

        return free


class PatientStream(StreamingResponse):
    """A stream that is given up where nothing of it is taken for `patience` seconds.

    done: called at the end, however it ended
    """

    def __init__(
        self, content: AsyncIterator[bytes], *, patience: float, done: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(content, **options)
        self._patience, self._done = patience, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._done()

    async def stream_response(self, send: Send) -> None:
        """As usual, but no piece may take too long."""

        async def patient(message: Message) -> None:
            async with asyncio.timeout(self._patience):
                await send(message)

        await super().stream_response(patient)


async def in_threads(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Pieces that threads make, one at a time."""
    limiter = CapacityLimiter(1)
    while (piece := await run_sync(next, pieces, None, limiter=limiter)) is not None:
        if piece:
            yield piece
