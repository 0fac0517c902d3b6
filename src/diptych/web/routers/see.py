"""Seeing: why a pair matches, pictures, and what there is to search."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.responses import FileResponse

from diptych.web import schemas
from diptych.web.routers.common import Serving, told
from diptych.web.routers.files import may_have_originals

Size = Literal["160", "320", "640", "1280", "full"]

router = APIRouter(tags=["see"])


@router.get("/api/explain", responses=told(404))
async def explain(
    service: Serving,
    id: Annotated[schemas.Id, Query()],
    sentence: Annotated[schemas.Text, Query()],
    model: Annotated[Literal["fast", "reranker"], Query(description="Which model to ask.")] = "fast",
) -> schemas.Explained:
    """Why a picture and a sentence match."""
    explained = await service.done(service.begin("explain", service.make_explanation, id, sentence, model))
    return schemas.Explained(**explained)


@router.get(
    "/pictures/{id}",
    response_class=Response,
    responses=told(404) | {200: {"content": {"image/jpeg": {}}, "description": "The picture."}},
)
async def picture(
    service: Serving,
    id: Annotated[schemas.Id, Path()],
    size: Annotated[Size, Query(description="The longer side.")] = "320",
) -> Response:
    """A picture of the index, or an upload, as a JPEG."""
    data = await service.done(service.begin("pictures", service.make_thumbnail, id, size))
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=300"})


@router.get(
    "/media/{id}",
    response_class=FileResponse,
    responses=told(404) | {200: {"content": {"video/*": {}}, "description": "The video, or the range asked for."}},
    dependencies=[Depends(may_have_originals)],
)
async def media(service: Serving, id: Annotated[schemas.Id, Path()]) -> FileResponse:
    """The video that a frame of the index is from, as it is; players ask for ranges of it."""
    path, kind = await service.done(service.begin("pictures", service.entries.media, id))
    return FileResponse(path, media_type=kind, headers={"Cache-Control": "private, max-age=300"})


@router.get("/api/overview", responses=told())
async def overview(service: Serving) -> schemas.Overview:
    """What there is to search."""
    return schemas.Overview(**await service.done(service.begin("embed", service.overview)))
