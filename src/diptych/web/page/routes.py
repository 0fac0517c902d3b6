"""The page: plain HTML made on the server, which a small script makes livelier."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from diptych.common.errors import DiptychError
from diptych.common.pages import page_environment
from diptych.explain.why import view_of
from diptych.search.asking.results import MATCHES
from diptych.web.errors import Busy, NotFound, TooLarge
from diptych.web.page.nothing import why_nothing
from diptych.web.page.state import OPERATORS, ORDERS, PageState, read_state
from diptych.web.page.view import (
    RERANKED,
    cards_of,
    chips_of,
    columns_of,
    end_of,
    facts_of,
    picture_names,
    sample_of,
    status_of,
    title_of,
    weights_of,
)
from diptych.web.page.words import in_own_words, of_field
from diptych.web.responses import without_folders
from diptych.web.schemas import MOST_IDS, SearchRequest
from diptych.web.service.pictures import read_upload
from diptych.web.service.uploads import is_upload

if TYPE_CHECKING:
    from diptych.web.service.service import Service

Items = list[tuple[str, str]]
# Sides in pixels of the pictures in a grid and in an explanation.
THUMB, LARGE = 320, 1280


def page_router(service: "Service") -> APIRouter:
    """GET / shows results, POST / takes a picture to search with, GET /why explains one result.

    All that an address can say is in `PageState`; the script asks for the same addresses and takes parts of them.
    """
    router = APIRouter(include_in_schema=False)

    # Threads of its own for what is slow: those that everything else shares are few.
    slow, quick = CapacityLimiter(96), CapacityLimiter(256)

    @router.get("/")
    async def show(request: Request) -> Response:
        limiter = slow if request.query_params.get("rerank") else quick
        return await run_sync(results_page, service, request.query_params.multi_items(), limiter=limiter)

    @router.post("/")
    async def take(request: Request) -> Response:
        async with request.form(max_files=1, max_fields=1) as form:
            sent = form.get("file")
            data = await sent.read() if isinstance(sent, UploadFile) else b""
        return await run_sync(take_picture, service, request.query_params.multi_items(), data, limiter=quick)

    @router.get("/why")
    async def why(request: Request) -> Response:
        return await run_sync(why_page, service, request.query_params.multi_items(), limiter=slow)

    return router


def results_page(service: "Service", given: Items) -> Response:
    """The start page, or the results of a search."""
    overview = service.overview()
    state, answer, nothing, problem = PageState(), None, None, None
    try:
        state = read_state(given)
        if overview["sentences"] and not overview["pictures"]:
            state = replace(state, kind="sentence")
        if state.asks and overview["entries"]:
            request = _request(state, overview)
            answer = service.search(request)
            if not answer.results:
                nothing = why_nothing(service, state, request, answer)
    except (DiptychError, Busy) as error:
        problem = error
    reranked = bool(answer and state.rerank and state.can_rerank and overview["reranker"])
    home = not state.asks and problem is None
    return _rendered(
        "page.html",
        service,
        state,
        overview,
        problem,
        view="home" if home else "found",
        title=title_of(state),
        answer=answer,
        nothing=nothing,
        cards=cards_of(state, answer) if answer else [],
        reranked=reranked,
        end=end_of(state, answer, reranked) if answer else "",
        sample=sample_of(service) if home and overview["pictures"] else [],
        status=status_of(state, answer) if answer else "",
    )


def take_picture(service: "Service", given: Items, data: bytes) -> Response:
    """Keep a picture that was sent, and lead to the search for it; filters stay as they are."""
    state = PageState()
    try:
        state = read_state(given)
        if not data:
            raise DiptychError("there was no picture; choose one, and send it again")
        image = service.wait(service.begin("uploads", read_upload, data, service.settings.max_pixels))
        id = service.uploads.keep(image)
    except (DiptychError, Busy) as error:
        return _rendered(
            "page.html",
            service,
            state,
            service.overview(),
            error,
            view="found",
            title="Diptych",
            answer=None,
            nothing=None,
            cards=[],
            status="",
        )
    return RedirectResponse(state.only(id, kind=state.kind).url(), 303)


def why_page(service: "Service", given: Items) -> Response:
    """Why a picture and a sentence have their score, and where to go from the picture."""
    overview = service.overview()
    asked = dict(given)
    id, sentence, model = asked.get("id", ""), asked.get("sentence", "").strip(), asked.get("model", "fast")
    state, about, told, problem = PageState(), None, None, None
    try:
        state = read_state(given)
        about = _about(service, id)
        if sentence:
            told = service.explain(id, sentence, model)
    except (DiptychError, Busy) as error:
        problem = error
    name = (about or {}).get("path", "A picture")
    second = service.entries.second(id) if about is not None and _may_play(service, id) else None
    media = None if second is None else f"/media/{quote(id)}#t={second:g}"
    return _rendered(
        "why.html",
        service,
        state,
        overview,
        problem,
        view="whole",
        title=f"{sentence or name} · Diptych",
        id=id,
        known=about is not None,
        can_show=service.entries.may_show(id),
        uploaded=is_upload(id),
        name=name,
        media=media,
        about=about,
        sentence=sentence,
        model=model,
        explained=view_of(told) if told is not None else None,
    )


def _request(state: PageState, overview: Mapping[str, Any]) -> SearchRequest:
    asked = state.request()
    if not overview["reranker"]:
        asked["rerank"] = False
    try:
        return SearchRequest.model_validate(asked)
    except ValidationError as error:
        raise DiptychError(of_field(error.errors()[0])) from None


def _about(service: "Service", id: str) -> dict[str, str]:
    """Facts about a picture: its path, its date and its columns."""
    if is_upload(id):
        service.uploads.get(id)  # an error where it is not kept any more
        return {"path": "your picture"}
    entry = service.entries.get(id)
    if entry.kind != "picture":
        raise NotFound("this is a sentence; expected a picture")
    facts = {"path": service.folders.shown(entry.key)}
    if entry.stamp.changed:
        facts["changed"] = datetime.fromtimestamp(entry.stamp.changed / 1e9).strftime("%Y-%m-%d %H:%M")
    if entry.stamp.size:
        facts["size"] = f"{entry.stamp.size / 1e6:.2f} MB"
    return facts | {name: str(value) for name, value in entry.metadata.items() if name not in facts}


def _may_play(service: "Service", id: str) -> bool:
    return service.settings.originals and service.entries.may_show(id)


def _rendered(
    template: str,
    service: "Service",
    state: PageState,
    overview: Mapping[str, Any],
    problem: Exception | None,
    **values: object,
) -> HTMLResponse:
    status, headers = 200, {"Vary": "Cookie"}
    if isinstance(problem, Busy):
        status, headers = 503, headers | {"Retry-After": str(problem.retry_after)}
    elif problem is not None:
        status = 404 if isinstance(problem, NotFound) else 413 if isinstance(problem, TooLarge) else 422
    text = (
        _environment()
        .get_template(f"web/{template}")
        .render(
            state=state,
            overview=overview,
            facts=facts_of(overview),
            columns=columns_of(overview),
            shown_filters=chips_of(state),
            names=picture_names(service, state),
            error=None if problem is None else without_folders(in_own_words(problem)),
            may_open=service.desktop.can_open,
            originals=service.settings.originals,
            on_this_machine=service.settings.loopback,
            **values,
        )
    )
    return HTMLResponse(text.encode("utf-8", "replace"), status, headers)


@cache
def _environment() -> Environment:
    environment = page_environment()
    environment.globals.update(
        operators=OPERATORS, orders=ORDERS, weights=weights_of, matches_from=MATCHES, thumb=THUMB, large=LARGE,
        most_reranked=RERANKED, most_ids=MOST_IDS,
    )  # fmt: skip
    return environment
