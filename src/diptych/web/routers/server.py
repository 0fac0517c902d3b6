"""The server itself: that it is there, and what it counts."""

from fastapi import APIRouter, Response

import diptych
from diptych.web import schemas
from diptych.web.routers.common import Serving, told
from diptych.web.service.metrics import CONTENT_TYPE

router = APIRouter(tags=["server"])


@router.get("/health", responses=told())
async def health() -> schemas.Health:
    """That the server is there."""
    return schemas.Health(status="ok", version=diptych.__version__)


@router.get(
    "/metrics",
    response_class=Response,
    responses=told() | {200: {"content": {"text/plain": {}}, "description": "For Prometheus."}},
)
async def metrics(service: Serving) -> Response:
    """Counters for Prometheus."""
    return Response(await service.done(service.begin("embed", service.metrics.text)), media_type=CONTENT_TYPE)
