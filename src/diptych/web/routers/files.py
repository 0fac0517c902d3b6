"""Files as they are: downloads, several at once, and what only the page on this machine itself may ask for."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Path, Request, Response
from fastapi.responses import FileResponse

from diptych.web import schemas
from diptych.web.errors import Forbidden
from diptych.web.routers.common import Serving, told
from diptych.web.service.originals import zipped
from diptych.web.service.service import Service
from diptych.web.settings import is_loopback
from diptych.web.streaming import PatientStream, in_threads

# Whatever it is, a browser keeps it as a file and shows nothing of it.
AS_FILE = "application/octet-stream"
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


async def may_have_originals(service: Serving) -> None:
    """Refuse where the server was told to keep originals to itself."""
    if not service.settings.originals:
        raise Forbidden("this server does not give original files away")


async def from_here(service: Serving, request: Request) -> None:
    """Refuse whoever is not the page of this server, on its own machine: the guard has compared origin and host."""
    by_page = "origin" in request.headers or request.headers.get("sec-fetch-site") == "same-origin"
    if not (service.settings.loopback and is_loopback(request.url.hostname or "") and by_page):
        raise Forbidden("only the page of this server, on its own machine, may ask for this")


router = APIRouter(tags=["files"])


@router.get(
    "/pictures/{id}/original",
    response_class=Response,
    responses=told(404) | {200: {"content": {AS_FILE: _BYTES}, "description": "The file."}},
    dependencies=[Depends(may_have_originals)],
)
async def original(service: Serving, id: Annotated[schemas.Id, Path()]) -> Response:
    """The file of a picture as it was indexed, with all that is written in it."""
    found = await service.done(service.begin("pictures", service.originals.get, id))
    if found.path is not None:
        return FileResponse(found.path, media_type=AS_FILE, filename=found.filename)
    with found.open() as source:
        data = source.read()
    return Response(data, media_type=AS_FILE, headers={"Content-Disposition": _attached(found.filename)})


@router.post(
    "/api/zip",
    response_class=Response,
    responses=told(400, 404, 408, 413) | {200: {"content": {"application/zip": _BYTES}, "description": "The zip."}},
    dependencies=[Depends(may_have_originals)],
)
async def zip_files(
    service: Serving, id: Annotated[list[schemas.Id], Form(min_length=1, max_length=schemas.MOST_IDS)]
) -> Response:
    """The files of several pictures in one zip, which is made while it is sent."""
    chosen = await service.done(service.begin("pictures", service.originals.several, id))
    free = service.zips.take()
    return PatientStream(
        in_threads(zipped(chosen)),
        patience=service.settings.timeout,
        done=free,
        media_type="application/zip",
        headers={"Content-Disposition": 'attachment; filename="diptych.zip"'},
    )


@router.post("/api/paths", responses=told(400, 404, 408), dependencies=[Depends(from_here)])
async def paths(service: Serving, chosen: schemas.Chosen) -> schemas.Paths:
    """Where files are on this machine; only for the page of this server, on its own machine."""
    return schemas.Paths(paths=await _each(service, service.originals.path, chosen.ids))


@router.post("/api/open-folder", responses=told(400, 404, 408), dependencies=[Depends(from_here)])
async def open_folder(service: Serving, entry: schemas.OneEntry) -> schemas.Opened:
    """Open the folder of a file on this machine's desktop; only for the page of this server, on its own machine."""
    return schemas.Opened(folder=await service.done(service.begin("pictures", service.open_folder, entry.id)))


async def _each(service: Service, work: Callable[[str], str], ids: list[str]) -> list[str]:
    return await service.done(service.begin("pictures", lambda: [work(id) for id in ids]))


def _attached(filename: str) -> str:
    # As Starlette has it for files.
    return FileResponse("", filename=filename).headers["content-disposition"]
