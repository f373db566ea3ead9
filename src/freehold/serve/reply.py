"""Replies that notice when their client leaves, streamed (server-sent events) and plain alike."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AbstractContextManager, aclosing
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from freehold.errors import FreeholdError
from freehold.serve.failure import describe
from freehold.serve.schema import FailureBody

T = TypeVar("T")

RECORD_KEY = "freehold.record"
"""Where a request's scope has its record."""

CLIENT_LEFT = 499
"""Status in the log of a request whose client left, as nginx writes it."""

_DONE = b"data: [DONE]\n\n"
EVENT_STREAM = "text/event-stream"
_HEADERS = [
    (b"content-type", f"{EVENT_STREAM}; charset=utf-8".encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]

_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()


class ClientLeftError(FreeholdError):
    """The connection closed before the reply was complete; nobody reads on."""


class Record:
    """One request's line in the access log, filled in as it is served.

    Attributes:
        started_s: when it arrived; seconds of the monotonic clock, as `first_s`.
        first_s: when the first token of any answer came.
        refusal: code and field of an error that the client can put right.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.started_s = time.monotonic()
        self.first_s: float | None = None
        self.status = 0
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self.outcome = ""
        self.refusal = ""

    def note_left(self) -> None:
        """The client left before the reply was complete."""
        self.status, self.outcome = CLIENT_LEFT, "cancelled"


def record_of(scope: Scope) -> Record:
    """The record that the guard made for a request."""
    record: Record = scope[RECORD_KEY]
    return record


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work unless the client leaves first; then cancel it.

    Raises:
        ClientLeftError: the client left.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientLeftError("the client closed the connection")
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def handle_left(request: Request, _error: Exception) -> Response:
    """Starlette's hook for `ClientLeftError`. Nobody gets this answer; the access log has its status."""
    record_of(request.scope).note_left()
    return Response(status_code=CLIENT_LEFT)


class EventStream:
    """A response of server-sent events: each struct as one, then ``[DONE]``.

    An error after the first byte becomes an event of its own before ``[DONE]``; a stream never just ends.
    """

    def __init__(
        self,
        events: AsyncGenerator[msgspec.Struct, None],
        headers: Mapping[str, str],
        held: AbstractContextManager[object],
    ) -> None:
        """
        Args:
            held: left once the stream has ended, however it ends. A generator can't see to that itself: one that was
                closed before its first step runs nothing.
        """
        self._events = events
        self._held = held
        self._headers = [*_HEADERS, *((name.encode(), value.encode()) for name, value in headers.items())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            try:
                await while_connected(receive, self._send(scope, send))
            except ClientLeftError:
                record_of(scope).note_left()

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        try:
            async with aclosing(self._events):
                async for event in self._events:
                    await send(_body(b"data: " + _encoder.encode(event) + b"\n\n"))
        except Exception as error:
            _, failure = describe(error)
            record = record_of(scope)
            record.outcome = f"failed:{failure.code}"
            if not isinstance(error, FreeholdError):
                _log.exception("request %s failed", record.request_id)
            await send(_body(b"data: " + _encoder.encode(FailureBody(failure)) + b"\n\n"))
        await send(_body(_DONE))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
