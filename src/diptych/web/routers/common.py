"""What the routers share: the service behind a request, pictures that were sent, and errors as they are described."""

from typing import Annotated, Any

from fastapi import Depends, File, Request, UploadFile
from PIL import Image

from diptych.web import schemas
from diptych.web.errors import TooLarge
from diptych.web.service.pictures import read_upload
from diptych.web.service.service import Service

SentPicture = Annotated[UploadFile, File(description="A picture: jpeg, png, webp, gif, tiff, bmp, avif, heic, ...")]
_WHAT = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    403: "Asked for by a page of another site, or not allowed here.",
    404: "There is no such entry, upload or picture.",
    408: "The body came too slowly.",
    413: "More bytes or pixels than are taken.",
    421: "The server is not known by this name.",
    422: "Something in the request is wrong; the sentence says what.",
    503: "Too much is waiting; come back after the seconds that Retry-After names.",
}
_ALWAYS = (401, 403, 421, 422, 503)


async def service_of(request: Request) -> Service:
    """The service of the application that a request came to."""
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(service_of)]


def told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of an endpoint, for the OpenAPI document."""
    every = sorted({*_ALWAYS, *statuses})
    return {status: {"model": schemas.ErrorAnswer, "description": _WHAT[status]} for status in every}


async def content(service: Service, file: UploadFile) -> bytes:
    """The bytes of a file that was sent; an error where there are too many."""
    most = service.settings.max_upload
    if file.size is not None and file.size > most:
        raise TooLarge(f"file: {file.size:,} bytes; at most {most:,} are taken")
    return await file.read()


async def received(service: Service, file: UploadFile) -> Image.Image:
    """A picture that was sent, decoded in a thread that is there for it."""
    data = await content(service, file)
    return await service.done(service.begin("uploads", read_upload, data, service.settings.max_pixels))
