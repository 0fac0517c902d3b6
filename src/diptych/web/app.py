"""The server: the API, the page, and what stands before them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

import diptych
from diptych.common.errors import DiptychError
from diptych.search.index import Index
from diptych.search.stores.store import StoreReplaced
from diptych.web.errors import Busy, Forbidden, NotFound, TooLarge, Unauthorised
from diptych.web.middleware.limits import LimitBody
from diptych.web.middleware.measure import Measure
from diptych.web.middleware.pages import ErrorPages, error_page, wants_page
from diptych.web.middleware.security import HEADERS, Guard
from diptych.web.middleware.tallies import MemoryTally, SharedTally
from diptych.web.page.routes import page_router
from diptych.web.responses import problem, unauthorised
from diptych.web.routers import change, files, search, see, server, vectors
from diptych.web.service.service import Service
from diptych.web.service.shared import Shared
from diptych.web.settings import ServerSettings

# Styles and scripts of the page, and those that it shares with pages in files.
STATIC: list[str | tuple[str, str]] = [(f"diptych.{room}", "static") for room in ("web", "explain", "common")]
_PLAIN = {404: "there is nothing at this address", 405: "this address does not take that method"}


def create_app(settings: ServerSettings, index: Index, shared: Shared | None = None) -> FastAPI:
    """The application over an open index, which stays the caller's to close. Its `state.service` does the work.

    shared: what it shares with the other worker processes of the server, where there are any
    """
    service = Service(settings, index, shared)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    # The pages that FastAPI makes of its document load scripts from elsewhere; the document itself is at /openapi.json.
    app = FastAPI(
        title="Diptych",
        version=diptych.__version__,
        description="Pictures and sentences: search, re-rank, explain, embed, add and delete.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    _tell_errors(app)
    for tag in (search, see, files, vectors, change, server):
        app.include_router(tag.router)
    app.include_router(page_router(service))
    app.mount("/static", StaticFiles(packages=STATIC), name="static")
    # The last that is added stands first.
    app.add_middleware(LimitBody, settings=settings)
    tally = MemoryTally() if shared is None else SharedTally(shared.wrong_tokens)
    app.add_middleware(Guard, settings=settings, tally=tally)
    app.add_middleware(ErrorPages)
    app.add_middleware(Measure, metrics=service.metrics)
    return app


def _tell_errors(app: FastAPI) -> None:
    """Every error is {"error": one sentence}."""

    @app.exception_handler(DiptychError)
    async def _(_: Request, error: DiptychError) -> Response:
        statuses = {Forbidden: 403, NotFound: 404, TooLarge: 413, StoreReplaced: 503}
        status = next((number for kind, number in statuses.items() if isinstance(error, kind)), 422)
        return problem(status, str(error))

    @app.exception_handler(Busy)
    async def _(_: Request, error: Busy) -> Response:
        return problem(503, str(error), {"Retry-After": str(error.retry_after)})

    @app.exception_handler(Unauthorised)
    async def _(_: Request, error: Unauthorised) -> Response:
        return unauthorised()

    @app.exception_handler(RequestValidationError)
    async def _(_: Request, error: RequestValidationError) -> Response:
        return problem(422, _sentence(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def _(_: Request, error: HTTPException) -> Response:
        sentence = _PLAIN.get(error.status_code, str(error.detail))
        return problem(error.status_code, sentence, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        # The guard, which gives all others their headers, is within.
        said = "something went wrong in the server; its log says what"
        if wants_page(request.headers, request.url.path):
            return error_page(500, said, Headers(HEADERS))
        return problem(500, said, HEADERS)


def _sentence(error: dict[str, Any]) -> str:
    """One fault of a request, with the place of it."""
    place = ".".join(str(part) for part in error["loc"][1:]) or str(error["loc"][0])
    reason = error.get("ctx", {}).get("error", "")
    return f"{place}: {error['msg']}" + (f" ({reason})" if isinstance(reason, str) and reason else "")
