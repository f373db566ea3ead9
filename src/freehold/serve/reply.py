"""Replies that notice when their client leaves, streamed (server-sent events) and plain alike."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AbstractContextManager, aclosing
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from freehold.errors import FreeholdError
from freehold.serve.entrance.record import CLIENT_LEFT, record_of
from freehold.serve.failure import describe
from freehold.serve.framing import Framing

T = TypeVar("T")

HEARTBEAT_S = 15.0
"""So long may a stream be silent before it says that it is still there. Proxies cut what is silent for a minute."""

EVENT_STREAM = "text/event-stream"
_HEADERS = [
    (b"content-type", f"{EVENT_STREAM}; charset=utf-8".encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]

_log = logging.getLogger(__name__)


class ClientLeftError(FreeholdError):
    """The connection closed before the reply was complete; nobody reads on."""


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
    """A response of server-sent events, written as its surface does.

    An error after the first byte becomes an event of its own before the end; a stream never just ends.
    """

    def __init__(
        self,
        events: AsyncGenerator[msgspec.Struct, None],
        framing: Framing,
        headers: Mapping[str, str],
        held: AbstractContextManager[object],
    ) -> None:
        """
        Args:
            held: left once the stream has ended, however it ends. A generator can't see to that itself: one that was
                closed before its first step runs nothing.
        """
        self._events = events
        self._framing = framing
        self._held = held
        self._headers = [*_HEADERS, *((name.encode(), value.encode()) for name, value in headers.items())]
        self._sent_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            try:
                await while_connected(receive, self._send(scope, send))
            except ClientLeftError:
                record_of(scope).note_left()

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        framing, clock = self._framing, asyncio.get_running_loop().time
        self._sent_s = clock()
        beating = asyncio.ensure_future(self._beat(send))
        try:
            async with aclosing(self._events):
                async for event in self._events:
                    await send(_body(framing.event(event)))
                    self._sent_s = clock()
        except Exception as error:
            status, failure = describe(error)
            record = record_of(scope)
            record.failure = failure.code or "internal"
            if not isinstance(error, FreeholdError):
                _log.exception("request %s failed", record.request_id)
            await send(_body(framing.failure(status, failure, record.request_id)))
        finally:
            beating.cancel()
        await send({"type": "http.response.body", "body": framing.end, "more_body": False})

    async def _beat(self, send: Send) -> None:
        """Break silence."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(max(0.0, self._sent_s + HEARTBEAT_S - clock()))
            if clock() - self._sent_s >= HEARTBEAT_S:
                await send(_body(self._framing.heartbeat))
                self._sent_s = clock()


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
