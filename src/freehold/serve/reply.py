"""Replies that notice when their client leaves, streamed (server-sent events) and plain alike."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, closing
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from freehold.errors import FreeholdError
from freehold.serve.entrance.record import CLIENT_LEFT, WRITE_KEY, record_of
from freehold.serve.failure import describe
from freehold.serve.framing import Framing

T = TypeVar("T")

Tell = Callable[[Callable[[msgspec.Struct], None]], Awaitable[None]]
"""Tells events, one after the other, and returns when there are no more."""

HEARTBEAT_S = 15.0
"""So long may a stream be silent before it says that it is still there. Proxies cut what is silent for a minute."""
_SHORTEST_WAIT_S = 0.1

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
    task = asyncio.current_task()
    assert task is not None
    num_cancelling = task.cancelling()
    watcher = asyncio.ensure_future(_left(receive))
    has_left = is_over = False

    def leave(watcher: "asyncio.Future[None]") -> None:
        nonlocal has_left
        if not watcher.cancelled() and not is_over:
            has_left = True
            task.cancel()

    watcher.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if has_left and task.uncancel() <= num_cancelling:  # else it was also cancelled from elsewhere
            raise ClientLeftError("the client closed the connection") from None
        raise
    finally:
        is_over = True  # the callback may be due already, and must cancel nothing that follows
        watcher.remove_done_callback(leave)
        watcher.cancel()


async def handle_left(request: Request, _error: Exception) -> Response:
    """Starlette's hook for `ClientLeftError`. Nobody gets this answer; the access log has its status."""
    record_of(request.scope).note_left()
    return Response(status_code=CLIENT_LEFT)


class EventStream:
    """A response of server-sent events, written as its surface does.

    An error after the first byte becomes an event of its own before the end; a stream never just ends.
    """

    def __init__(
        self, tell: Tell, framing: Framing, headers: Mapping[str, str], held: AbstractContextManager[object]
    ) -> None:
        """
        Args:
            tell: calls what it is given with each event, and returns after the last one.
            held: left once the stream has ended, however it ends.
        """
        self._tell = tell
        self._framing = framing
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
        framing = self._framing
        with closing(_Writer(send, scope.get(WRITE_KEY, _never), framing.heartbeat)) as writer:
            try:
                await self._tell(lambda event: writer.write(framing.event(event)))
            except Exception as error:
                status, failure = describe(error)
                record = record_of(scope)
                record.failure = failure.code or "internal"
                if not isinstance(error, FreeholdError):
                    _log.exception("request %s failed", record.request_id)
                writer.write(framing.failure(status, failure, record.request_id))
            await writer.drain()
        await send({"type": "http.response.body", "body": framing.end, "more_body": False})


class _Writer:
    """Writes a stream's body: at once while its client reads, and else as soon as it does again. Breaks silence."""

    def __init__(self, send: Send, write_now: Callable[[bytes], bool], heartbeat: bytes) -> None:
        """
        Args:
            write_now: writes a part of the body, unless that must wait; tells whether it did.
        """
        self._send = send
        self._write_now = write_now
        self._heartbeat = heartbeat
        self._waiting: list[bytes] = []
        self._sending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._wrote_s = self._loop.time()
        self._beat = self._loop.call_later(HEARTBEAT_S, self._break_silence)

    def write(self, data: bytes) -> None:
        """Write a part, after all that were written before."""
        self._wrote_s = self._loop.time()
        if self._sending is None and self._write_now(data):
            return
        self._waiting.append(data)
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_waiting())

    async def drain(self) -> None:
        """Wait until all is written."""
        if self._sending is not None:
            await self._sending

    def close(self) -> None:
        """Drop what isn't written."""
        self._beat.cancel()
        if self._sending is not None:
            self._sending.cancel()

    async def _send_waiting(self) -> None:
        while self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            await self._send(_body(data))
        self._sending = None

    def _break_silence(self) -> None:
        silent_s = self._loop.time() - self._wrote_s
        if silent_s >= HEARTBEAT_S and self._sending is None:
            self.write(self._heartbeat)
            silent_s = 0.0
        self._beat = self._loop.call_later(max(HEARTBEAT_S - silent_s, _SHORTEST_WAIT_S), self._break_silence)


def _never(_data: bytes) -> bool:
    """For connections that can't tell whether a part must wait."""
    return False


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
