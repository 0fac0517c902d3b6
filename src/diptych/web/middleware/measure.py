"""Every request, counted and timed."""

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych.web.service.metrics import Metrics

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"})


class Measure:
    """Counts and times every request, under its route and never its path, so that there are only so many of them."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and note what came of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            route: Any = getattr(scope.get("route"), "path", None) or "other"
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(route, method, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - started)
