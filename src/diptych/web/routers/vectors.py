"""Vectors of sentences and pictures."""

from fastapi import APIRouter

from diptych.web import schemas
from diptych.web.routers.common import SentPicture, Serving, received, told

router = APIRouter(tags=["vectors"])


@router.post("/api/embed", responses=told(400, 408, 413))
async def embed(service: Serving, request: schemas.EmbedRequest) -> schemas.EmbedAnswer:
    """The vectors of sentences."""
    vectors = await service.done(service.begin("embed", service.embed_texts, request.sentences))
    return schemas.EmbedAnswer.model_construct(model=service.holdings.model, vectors=vectors)


@router.post("/api/embed/picture", responses=told(400, 408, 413))
async def embed_picture(service: Serving, file: SentPicture) -> schemas.EmbedAnswer:
    """The vector of a picture."""
    image = await received(service, file)
    vectors = await service.done(service.begin("embed", service.embed_picture, image))
    return schemas.EmbedAnswer.model_construct(model=service.holdings.model, vectors=vectors)
