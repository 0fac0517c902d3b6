"""The JSON interface: what comes in is checked, what goes out is described, what is slow has threads of its own."""

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, File, Form, Path, Query, Request, Response, Security, UploadFile
from fastapi.security import HTTPBearer
from PIL import Image
from pydantic import Field

import diptych
from diptych.common.errors import DiptychError
from diptych.scoring.fusion import Fusion
from diptych.search.stores.store import Value
from diptych.web import schemas
from diptych.web.errors import TooLarge
from diptych.web.finding import terms_of_line
from diptych.web.metrics import CONTENT_TYPE
from diptych.web.pictures import read_upload
from diptych.web.security import AUTHORISED, NEEDS_TOKEN
from diptych.web.service import Service, closing, late

R = TypeVar("R")
Size = Literal["160", "320", "640", "1280", "full"]
PictureFile = Annotated[UploadFile, File(description="A picture: jpeg, png, webp, gif, tiff, bmp, avif, heic, ...")]
MOST_FILES, MOST_METADATA = 32, 4000


class Unauthorised(Exception):  # noqa: N818 (what it is, not that it is wrong)
    """The token is missing or wrong."""


def told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of an endpoint, for the OpenAPI document."""
    what = {
        400: "The body cannot be read.",
        401: "The token is missing or wrong.",
        403: "Asked for by a page of another site.",
        404: "There is no such entry, upload or picture.",
        408: "The body came too slowly.",
        413: "More bytes or pixels than are taken.",
        421: "The server is not known by this name.",
        422: "Something in the request is wrong; the sentence says what.",
        503: "Too much is waiting; come back after the seconds that Retry-After names.",
    }
    always = (401, 403, 421, 422, 503)
    return {status: {"model": schemas.Problem, "description": what[status]} for status in sorted({*always, *statuses})}


def picture_options(
    kind: Annotated[schemas.Kind, Form()] = "picture",
    top: Annotated[int, Form(ge=1, le=schemas.MOST_TOP)] = 24,
    where: Annotated[list[Annotated[str, Field(min_length=1, max_length=300)]], Form(max_length=16)] = [],  # noqa: B006
    path: Annotated[str | None, Form(max_length=300)] = None,
    threshold: Annotated[float | None, Form(allow_inf_nan=False)] = None,
    least_confidence: Annotated[float | None, Form(ge=0, le=1)] = None,
    rerank: Annotated[bool, Form()] = False,
    depth: Annotated[int, Form(ge=1, le=schemas.MOST_DEPTH)] = 100,
    fusion: Annotated[Fusion, Form()] = "sum",
    group: Annotated[float | None, Form(gt=0, le=1)] = None,
) -> schemas.SearchRequest:
    """The options of a search as fields of a form."""
    return schemas.SearchRequest.model_construct(
        kind=kind, top=top, where=where, path=path, threshold=threshold, least_confidence=least_confidence,
        rerank=rerank, depth=depth, fusion=fusion, group=group, terms=[],
    )  # fmt: skip


def api_router(service: Service) -> APIRouter:
    """Everything under /api, the pictures, health and metrics."""
    router = APIRouter()
    settings = service.settings

    async def done(future: Future[R]) -> R:
        """Wait for a thread's work without being one; what nobody waits for any more is not begun."""
        try:
            async with asyncio.timeout(settings.timeout):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise late() from None
        except asyncio.CancelledError:
            if future.cancelled() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise closing() from None
            raise

    async def received(file: UploadFile) -> Image.Image:
        data = await content(file)
        return await done(service.begin("uploads", read_upload, data, settings.max_pixels))

    async def content(file: UploadFile) -> bytes:
        if file.size is not None and file.size > settings.max_upload:
            raise TooLarge(f"file: {file.size:,} bytes; at most {settings.max_upload:,} are taken")
        return await file.read()

    async def may_change(
        request: Request,
        _: Annotated[Any, Security(HTTPBearer(auto_error=False, scheme_name="token", description=NEEDS_TOKEN))],
    ) -> None:
        if not request.scope.get(AUTHORISED):
            raise Unauthorised

    # Searching.

    @router.post("/api/search", tags=["search"], responses=told(400, 404, 408, 413))
    async def search(request: schemas.SearchRequest) -> schemas.SearchAnswer:
        """Search with one or several sentences, entries and uploads."""
        return await done(service.begin_search(request))

    @router.get("/api/search", tags=["search"], responses=told(404))
    async def search_line(line: Annotated[schemas.LineRequest, Query()]) -> schemas.SearchAnswer:
        """Search with a line as people type it: a sentence, or terms with + and -."""
        options = {name: value for name, value in line if name != "q"}
        request = schemas.SearchRequest.model_construct(terms=terms_of_line(line.q), **options)
        return await done(service.begin_search(request))

    @router.post("/api/search/picture", tags=["search"], responses=told(400, 408, 413))
    async def search_picture(
        file: PictureFile, options: Annotated[schemas.SearchRequest, Depends(picture_options)]
    ) -> schemas.SearchAnswer:
        """Search with a picture."""
        return await done(service.begin_search(options, await received(file)))

    @router.post("/api/uploads", tags=["search"], responses=told(400, 408, 413))
    async def upload(file: PictureFile) -> schemas.Upload:
        """Keep a picture in memory for a while; its id can stand in queries."""
        image = await received(file)
        return schemas.Upload(id=service.keep_upload(image), width=image.width, height=image.height)

    @router.post("/api/rerank", tags=["search"], responses=told(400, 404, 408, 413))
    async def rerank(request: schemas.RerankRequest) -> schemas.RerankAnswer:
        """Score entries with the re-ranking model."""
        scores = await done(service.begin_rerank(request))
        results = [schemas.Scored(id=id, score=score) for id, score in scores]
        return schemas.RerankAnswer(model=service.shown_name("reranker"), results=results)

    # Seeing.

    @router.get("/api/explain", tags=["see"], responses=told(404))
    async def explain(
        id: Annotated[schemas.Id, Query()],
        sentence: Annotated[schemas.Text, Query()],
        model: Annotated[Literal["fast", "reranker"], Query(description="Which model to ask.")] = "fast",
    ) -> schemas.Explained:
        """Why a picture and a sentence match."""
        found = await done(service.begin("explain", service.make_explanation, id, sentence, model))
        return schemas.Explained(**found)

    @router.get(
        "/pictures/{id}",
        tags=["see"],
        response_class=Response,
        responses=told(404) | {200: {"content": {"image/jpeg": {}}, "description": "The picture."}},
    )
    async def picture(
        id: Annotated[schemas.Id, Path()], size: Annotated[Size, Query(description="The longer side.")] = "320"
    ) -> Response:
        """A picture of the index, or an upload, as a JPEG."""
        data = await done(service.begin("pictures", service.make_thumbnail, id, size))
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=300"})

    @router.get("/api/overview", tags=["see"], responses=told())
    async def overview() -> schemas.Overview:
        """What there is to search."""
        return schemas.Overview(**await done(service.begin("embed", service.overview)))

    # Vectors.

    @router.post("/api/embed", tags=["vectors"], responses=told(400, 408, 413))
    async def embed(request: schemas.EmbedRequest) -> schemas.Embedded:
        """The vectors of sentences."""
        vectors = await done(service.begin("embed", service.embed_texts, request.sentences))
        return schemas.Embedded.model_construct(model=service.shown_name("model"), vectors=vectors)

    @router.post("/api/embed/picture", tags=["vectors"], responses=told(400, 408, 413))
    async def embed_picture(file: PictureFile) -> schemas.Embedded:
        """The vector of a picture."""
        image = await received(file)
        vectors = await done(service.begin("embed", service.embed_picture, image))
        return schemas.Embedded.model_construct(model=service.shown_name("model"), vectors=vectors)

    # Changing.

    def added(ids: Sequence[str]) -> schemas.Added:
        entries = [schemas.AddedEntry(id=id, path=service.shown_path(id)) for id in ids]
        return schemas.Added(added=entries, entries=len(service.index))

    @router.post(
        "/api/add",
        tags=["change"],
        dependencies=[Depends(may_change)],
        responses=told(400, 408, 413),
    )
    async def add(
        file: Annotated[list[UploadFile], File(min_length=1, max_length=MOST_FILES, description="Pictures.")],
        metadata: Annotated[
            str | None, Form(max_length=MOST_METADATA, description="Columns for all of them, as a JSON object.")
        ] = None,
    ) -> schemas.Added:
        """Add pictures; needs the token. Each is kept under the hash of its content: twice the same is once."""
        columns = _columns(metadata)
        files = [(_name(one.filename), await content(one)) for one in file]
        return await done(service.begin("changes", lambda: added(service.add_pictures(files, columns))))

    @router.post(
        "/api/add/sentences",
        tags=["change"],
        dependencies=[Depends(may_change)],
        responses=told(400, 408, 413),
    )
    async def add_sentences(request: schemas.AddSentences) -> schemas.Added:
        """Add sentences under names of your own; needs the token. The same name again replaces its sentence."""
        return await done(service.begin("changes", lambda: added(service.add_sentences(request.sentences))))

    @router.delete("/api/entries/{id}", tags=["change"], dependencies=[Depends(may_change)], responses=told(404))
    async def delete(id: Annotated[schemas.Id, Path()]) -> schemas.Deleted:
        """Take an entry out of the index; needs the token. Files that were not added here stay where they are."""

        def work() -> schemas.Deleted:
            return schemas.Deleted(deleted=service.delete(id), entries=len(service.index))

        return await done(service.begin("changes", work))

    # The server itself.

    @router.get("/health", tags=["server"], responses=told())
    async def health() -> schemas.Health:
        """That the server is there."""
        return schemas.Health(status="ok", version=diptych.__version__)

    @router.get(
        "/metrics",
        tags=["server"],
        response_class=Response,
        responses=told() | {200: {"content": {"text/plain": {}}, "description": "For Prometheus."}},
    )
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(await done(service.begin("embed", service.metrics.text)), media_type=CONTENT_TYPE)

    return router


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
