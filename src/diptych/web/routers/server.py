"""The server itself: that it is there, whether it can answer, and what it counts."""

import asyncio

from fastapi import APIRouter, Response

import diptych
from diptych.web import schemas
from diptych.web.errors import Busy
from diptych.web.routers.common import Serving, told
from diptych.web.service.metrics import CONTENT_TYPE
from diptych.web.service.readiness import LATE, LOOK_WITHIN

router = APIRouter(tags=["server"])


@router.get("/health", responses=told())
async def health() -> schemas.Health:
    """That the server is there, however busy it is."""
    return schemas.Health(status="ok", version=diptych.__version__)


@router.get("/ready", responses=told())
async def ready(service: Serving) -> schemas.Ready:
    """That the server can answer: 503 where its index cannot be searched, or no further search may wait."""
    try:
        async with asyncio.timeout(LOOK_WITHIN):
            problem = await service.done(service.begin_look())
    except TimeoutError:
        problem = LATE
    if problem is not None:
        raise Busy(problem)
    return schemas.Ready(status="ready", version=diptych.__version__)


@router.get(
    "/metrics",
    response_class=Response,
    responses=told() | {200: {"content": {"text/plain": {}}, "description": "For Prometheus."}},
)
async def metrics(service: Serving) -> Response:
    """Counters for Prometheus."""
    return Response(await service.done(service.begin("embed", service.metrics.text)), media_type=CONTENT_TYPE)
