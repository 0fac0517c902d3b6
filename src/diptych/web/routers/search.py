"""Searching: with sentences, entries and pictures; and scores by the re-ranking model."""

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Query
from pydantic import Field

from diptych.scoring.fusion import Fusion
from diptych.search.stores.store import Kind
from diptych.web import schemas
from diptych.web.routers.common import SentPicture, Serving, received, told
from diptych.web.service.finding import terms_of_line

router = APIRouter(tags=["search"])


def picture_options(
    kind: Annotated[Kind, Form()] = "picture",
    top: Annotated[int, Form(ge=1, le=schemas.MOST_TOP)] = 24,
    offset: Annotated[int, Form(ge=0, le=schemas.MOST_PLACES - 1)] = 0,
    where: Annotated[list[Annotated[str, Field(min_length=1, max_length=300)]], Form(max_length=16)] = [],  # noqa: B006
    path: Annotated[str | None, Form(max_length=300)] = None,
    threshold: Annotated[float | None, Form(allow_inf_nan=False)] = None,
    least_confidence: Annotated[float | None, Form(ge=0, le=1)] = None,
    rerank: Annotated[bool, Form()] = False,
    depth: Annotated[int, Form(ge=1, le=schemas.MOST_DEPTH)] = 100,
    fusion: Annotated[Fusion, Form()] = "sum",
    group: Annotated[float | None, Form(gt=0, le=1)] = None,
    sort: Annotated[str | None, Form(min_length=1, max_length=100)] = None,
) -> schemas.SearchRequest:
    """The options of a search as fields of a form."""
    return schemas.SearchRequest.model_construct(
        kind=kind, top=top, offset=offset, where=where, path=path, threshold=threshold,
        least_confidence=least_confidence, rerank=rerank, depth=depth, fusion=fusion, group=group, sort=sort, terms=[],
    )  # fmt: skip


@router.post("/api/search", responses=told(400, 404, 408, 413))
async def search(service: Serving, request: schemas.SearchRequest) -> schemas.SearchAnswer:
    """Search with one or several sentences, entries and uploads."""
    return await service.found(request)


@router.get("/api/search", responses=told(404))
async def search_line(service: Serving, line: Annotated[schemas.LineRequest, Query()]) -> schemas.SearchAnswer:
    """Search with a line as people type it: a sentence, or terms with + and - between them."""
    options = {name: value for name, value in line if name != "q"}
    request = schemas.SearchRequest.model_construct(terms=terms_of_line(line.q), **options)
    return await service.found(request)


@router.post("/api/search/picture", responses=told(400, 408, 413))
async def search_picture(
    service: Serving, file: SentPicture, options: Annotated[schemas.SearchRequest, Depends(picture_options)]
) -> schemas.SearchAnswer:
    """Search with a picture."""
    return await service.found(options, await received(service, file))


@router.post("/api/uploads", responses=told(400, 408, 413))
async def upload(service: Serving, file: SentPicture) -> schemas.Upload:
    """Keep a picture for a while; its id can stand in queries."""
    image = await received(service, file)
    id = await service.done(service.begin("uploads", service.uploads.keep, image))
    return schemas.Upload(id=id, width=image.width, height=image.height)


@router.post("/api/rerank", responses=told(400, 404, 408, 413))
async def rerank(service: Serving, request: schemas.RerankRequest) -> schemas.RerankAnswer:
    """Score entries with the re-ranking model."""
    scores = await service.done(service.begin_rerank(request))
    results = [schemas.Scored(id=id, score=score) for id, score in scores]
    return schemas.RerankAnswer(model=service.holdings.reranker or "", results=results)
