"""How much a request may send, and how long it may take to send it: refused while reading, not after."""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych.web.responses import problem
from diptych.web.settings import MEBIBYTE, ServerSettings

JSON_BYTES = MEBIBYTE
# Boundaries, names and form fields around the files.
ROUND_FILES = 64 * 1024
UPLOADS_AT_ONCE = 16
_CLOSE = {"Connection": "close"}


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class LimitBody:
    """Counts the bytes of a body as they come; too many, or too slowly, and the request is over.

    Forms with files may have `max_upload` bytes, everything else a mebibyte; a few uploads are read at a time.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app, self.settings = app, settings
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a body that ends where the limit is."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        upload = headers.get("content-type", "").lower().startswith("multipart/")
        most = self.settings.max_upload + ROUND_FILES if upload else JSON_BYTES
        told = headers.get("content-length", "0")
        if not told.isdecimal() or len(told) > 18 or int(told) > most:
            await problem(413, _too_large(most), _CLOSE)(scope, receive, send)
            return
        if not upload:
            await self._limited(scope, receive, send, most)
        elif self._uploads >= self.settings.share(UPLOADS_AT_ONCE):
            busy = problem(503, "too many uploads at once; try again in a moment", {"Retry-After": "1"} | _CLOSE)
            await busy(scope, receive, send)
        else:
            self._uploads += 1
            try:
                await self._limited(scope, receive, send, most)
            finally:
                self._uploads -= 1

    async def _limited(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        loop = asyncio.get_running_loop()
        read, until, whole = 0, loop.time() + self.settings.timeout, False
        refused: _Refused | None = None
        answered = False

        async def counted() -> Message:
            nonlocal read, whole, refused
            if whole:  # only waits for the client to go away
                return await receive()
            if refused is not None:
                raise refused
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                refused = _Refused(408, f"the request was not sent within {self.settings.timeout:g} seconds")
                raise refused from None
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if read > most:
                    refused = _Refused(413, _too_large(most))
                    raise refused
            return message

        async def once(message: Message) -> None:
            # Whatever the application makes of a body that broke off, the client hears why it did.
            nonlocal answered
            if refused is None or answered:
                answered = True
                await send(message)

        with suppress(_Refused):
            await self.app(scope, counted, once)
        if refused is not None and not answered:
            await problem(refused.status, str(refused), _CLOSE)(scope, receive, send)


def _too_large(most: int) -> str:
    return f"the request is larger than the {most:,} bytes that are taken"
