"""Errors as pages, for people who follow a link or send a form."""

import json

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych.common.pages import render
from diptych.web.page.words import of_status

# What is no page has no errors that are pages.
NO_PAGES = ("/api/", "/static/", "/health", "/ready", "/metrics", "/openapi.json")


class ErrorPages:
    """An error that a browser would show as a line of JSON becomes a page with a sentence and a way back."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look at what comes back."""
        if scope["type"] != "http" or not wants_page(Headers(scope=scope), scope["path"]):
            await self.app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def looked_at(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                kind = Headers(raw=message["headers"]).get("content-type", "")
                if message["status"] >= 400 and kind.startswith("application/json"):
                    start = message
                    return
            elif start is not None:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    page = error_page(start["status"], _sentence(body), Headers(raw=start["headers"]))
                    await page(scope, receive, send)
                return
            await send(message)

        await self.app(scope, receive, looked_at)


def wants_page(headers: Headers, path: str) -> bool:
    """Whether a person sees the answer as it is."""
    if path.startswith(NO_PAGES) and path != "/api/zip":  # which a form of the page asks for
        return False
    # A script that takes a page apart says that it does not navigate.
    return "text/html" in headers.get("accept", "") and headers.get("sec-fetch-mode", "navigate") == "navigate"


def error_page(status: int, sentence: str, headers: Headers | None = None) -> HTMLResponse:
    """A page that tells an error."""
    kept = {name: value for name, value in (headers or {}).items() if name not in ("content-type", "content-length")}
    values = {"title": "Diptych", "said": of_status(status, sentence)}
    return HTMLResponse(render("web/problem.html", values), status, kept)


def _sentence(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return ""
