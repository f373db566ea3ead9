"""``/v1/batches``."""

import re
import sqlite3

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from freehold.errors import RequestError, shown
from freehold.serve import body as bodies
from freehold.serve.batches.file_routes import check_lasts
from freehold.serve.batches.queries import read_limit, read_query
from freehold.serve.batches.schema import BatchRequest
from freehold.serve.entrance.caller import caller_of
from freehold.serve.failure import HttpError
from freehold.serve.service import Service

ENDPOINTS = ("/v1/chat/completions", "/v1/completions")
"""What lines may ask."""

MAX_PAGE, DEFAULT_PAGE = 100, 20
MAX_WINDOW_S = 30 * 86400
MAX_PAIRS, MAX_KEY, MAX_VALUE = 16, 64, 512
"""Of metadata: pairs, characters of a key, characters of a value."""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_decoder = msgspec.json.Decoder(BatchRequest)


async def create_batch(request: Request) -> Response:
    """Accept a batch. It is on disk when this answers."""
    service: Service = request.app.state.service
    lane = service.batch_lane
    body, _ = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _decoder)
    window_s, owner = _check(body), caller_of(request.scope).key_id
    try:
        batch = await lane.state.run(lane.state.batches.create, owner, body, window_s)
    except sqlite3.OperationalError as error:
        raise HttpError(507, f"the server can't write its records: {error}", code="disk_full") from None
    lane.launch(owner, batch.id)
    return _json(batch)


async def list_batches(request: Request) -> Response:
    """A page of the caller's batches, the newest first."""
    state = request.app.state.service.batch_lane.state
    given = read_query(request, ("after", "limit"))
    limit, owner = read_limit(given, MAX_PAGE, DEFAULT_PAGE), caller_of(request.scope).key_id
    return _json(await state.run(lambda: state.batches.page(owner, after=given.get("after"), limit=limit)))


async def get_batch(request: Request) -> Response:
    """How far a batch has come."""
    state = request.app.state.service.batch_lane.state
    return _json(await state.run(state.batches.get, caller_of(request.scope).key_id, request.path_params["batch_id"]))


async def cancel_batch(request: Request) -> Response:
    """Let a batch end early."""
    lane = request.app.state.service.batch_lane
    batch_id = request.path_params["batch_id"]
    batch = await lane.state.run(lane.state.batches.cancel, caller_of(request.scope).key_id, batch_id)
    lane.cancel(batch_id)
    return _json(batch)


def _check(body: BatchRequest) -> int:
    """The completion window, in seconds.

    Raises:
        RequestError: an endpoint that has no batches, or a value out of bounds.
    """
    if body.endpoint not in ENDPOINTS:
        raise RequestError(
            f"endpoint is {shown(body.endpoint)}; batches are for {' and '.join(ENDPOINTS)}", param="endpoint"
        )
    metadata = body.metadata or {}
    if len(metadata) > MAX_PAIRS or any(
        len(key) > MAX_KEY or len(value) > MAX_VALUE for key, value in metadata.items()
    ):
        raise RequestError(
            f"metadata may hold {MAX_PAIRS} pairs, with keys of {MAX_KEY} and values of {MAX_VALUE} characters",
            param="metadata",
        )
    if body.output_expires_after is not None:
        check_lasts(body.output_expires_after.seconds, "output_expires_after")
    match = re.fullmatch(r"([1-9][0-9]{0,7})([smhd])", body.completion_window)
    window_s = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 0 < window_s <= MAX_WINDOW_S:
        raise RequestError(
            f"completion_window is {shown(body.completion_window)}; send a time such as 24h, up to 30d",
            param="completion_window",
        )
    return window_s


def _json(struct: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(struct), media_type="application/json")
