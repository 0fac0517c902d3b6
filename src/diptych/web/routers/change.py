"""Changing: pictures and sentences that are added, and entries that are taken out; all of it needs the token."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, Path, Request, Security, UploadFile
from fastapi.security import HTTPBearer

from diptych.common.errors import DiptychError
from diptych.search.stores.store import Value
from diptych.web import schemas
from diptych.web.errors import Unauthorised
from diptych.web.middleware.security import AUTHORISED
from diptych.web.responses import NEEDS_TOKEN
from diptych.web.routers.common import Serving, content, told
from diptych.web.service.service import Service

MOST_FILES, MOST_METADATA = 32, 4000


async def may_change(
    request: Request,
    _: Annotated[Any, Security(HTTPBearer(auto_error=False, scheme_name="token", description=NEEDS_TOKEN))],
) -> None:
    """Refuse who has no token: the guard has looked at it, this says so in the OpenAPI document."""
    if not request.scope.get(AUTHORISED):
        raise Unauthorised


router = APIRouter(tags=["change"], dependencies=[Depends(may_change)])


@router.post("/api/add", responses=told(400, 408, 413))
async def add(
    service: Serving,
    file: Annotated[list[UploadFile], File(min_length=1, max_length=MOST_FILES, description="Pictures.")],
    metadata: Annotated[
        str | None, Form(max_length=MOST_METADATA, description="Columns for all of them, as a JSON object.")
    ] = None,
) -> schemas.Added:
    """Add pictures; needs the token. Each is kept under the hash of its content: twice the same is once."""
    columns = _columns(metadata)
    files = [(_name(one.filename), await content(service, one)) for one in file]

    def work() -> schemas.Added:
        return _added(service, service.add_pictures(files, columns))

    return await service.done(service.begin("changes", work))


@router.post("/api/add/sentences", responses=told(400, 408, 413))
async def add_sentences(service: Serving, request: schemas.AddSentences) -> schemas.Added:
    """Add sentences under names of your own; needs the token. The same name again replaces its sentence."""

    def work() -> schemas.Added:
        return _added(service, service.add_sentences(request.sentences))

    return await service.done(service.begin("changes", work))


@router.delete("/api/entries/{id}", responses=told(404))
async def delete(service: Serving, id: Annotated[schemas.Id, Path()]) -> schemas.Deleted:
    """Take an entry out of the index; needs the token. Files that were not added here stay where they are."""

    def work() -> schemas.Deleted:
        return schemas.Deleted(deleted=service.delete(id), entries=len(service.index))

    return await service.done(service.begin("changes", work))


def _added(service: Service, ids: Sequence[str]) -> schemas.Added:
    entries = [schemas.AddedEntry(id=id, path=service.entries.shown_path(id) or "") for id in ids]
    return schemas.Added(added=entries, entries=len(service.index))


def _columns(metadata: str | None) -> dict[str, Value]:
    if metadata is None or not metadata.strip():
        return {}
    try:
        columns = json.loads(metadata)
    except (ValueError, RecursionError):
        raise DiptychError("metadata: not valid JSON; expected an object of texts and numbers") from None
    fit = isinstance(columns, dict) and all(
        isinstance(value, str | int | float) and not isinstance(value, bool) for value in columns.values()
    )
    if not fit:
        raise DiptychError("metadata: expected a JSON object of texts and numbers")
    return columns


def _name(name: str | None) -> str:
    """A file's name as a column: what comes after the last slash, without control characters."""
    last = (name or "").replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[:200]
