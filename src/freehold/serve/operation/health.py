"""``/livez``, ``/readyz`` and ``/health``, open to all, and ``/metrics``. None of them waits on the engine."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from freehold.errors import EngineError
from freehold.serve.failure import describe, respond
from freehold.serve.lanes import LONG_BYTES
from freehold.serve.service import Service


async def live(_request: Request) -> Response:
    """The event loop moves: that this is answered shows it."""
    return PlainTextResponse("ok")


async def ready(request: Request) -> Response:
    """The model is loaded and warm, the engine makes progress or is idle, and the server isn't shutting down; else
    503."""
    service: Service = request.app.state.service
    reason = service.not_ready()
    if reason is None and (cold := service.load.why_cold()):
        reason = EngineError(cold, code="warming_up")
    if reason is not None:
        return respond(*describe(reason))
    return PlainTextResponse("ok")


async def metrics(request: Request) -> Response:
    """What the server counts, for Prometheus."""
    from freehold.serve.operation.metrics import (  # takes a moment, which the first scrape can spare better
        MEDIA_TYPE,
        exposition,
        gather,
    )

    service: Service = request.app.state.service
    content = await service.lanes.run(LONG_BYTES, exposition, gather(service))
    return Response(content, headers={"content-type": MEDIA_TYPE})
