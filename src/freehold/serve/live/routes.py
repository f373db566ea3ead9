"""``GET /debug/live``."""

import math

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from freehold.errors import RequestError
from freehold.serve.live.answer import live_answer
from freehold.serve.service import Service


async def live(request: Request) -> Response:
    """What the server does now and did in the last hour, and what limits it."""
    service: Service = request.app.state.service
    answer = live_answer(service, _since_s(request))
    return Response(msgspec.json.encode(answer), media_type="application/json", headers={"cache-control": "no-store"})


def _since_s(request: Request) -> float:
    """
    Raises:
        RequestError: it isn't a number.
    """
    given = request.query_params.get("since", "0")
    try:
        since_s = float(given)
    except ValueError:
        since_s = math.nan
    if not math.isfinite(since_s):
        raise RequestError(f"since is {given[:60]!r}; it is the cursor of an earlier answer", param="since")
    return since_s
