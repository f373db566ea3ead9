"""One client connection: uvicorn's httptools protocol, with limits on what a client sends and how fast it reads.

Uvicorn itself waits for a request forever, keeps all of its head and its trailers, and waits forever for a client that
doesn't read. Reading is bounded in time and size here; what a body may hold is `freehold.serve.body`'s matter.
"""

import asyncio
import fcntl
import sys
from typing import Any

import msgspec
from starlette.types import Message, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from freehold.serve.entrance.http_parser import HttpParser
from freehold.serve.entrance.record import UNREAD_KEY, WRITE_KEY
from freehold.serve.schema import Failure, FailureBody

MAX_HEAD_BYTES = 32 << 10
"""Of target and headers; of trailers and whatever else is no body, too."""
HEAD_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0
"""So long may a client take nothing of what waits for it."""


_SIOCOUTQNSD = 0x894B
"""Linux: bytes in a TCP socket that were not sent yet."""

TOO_MANY = "there are too many connections to this server; close idle ones and try again"


class HeadTooLargeError(ValueError):
    """Raised inside the parser, which then answers 400 and closes."""


def _late(part: str) -> bytes:
    """The answer to a request a part of which is missing at its deadline."""
    seconds = HEAD_TIMEOUT_S if part == "head" else BODY_TIMEOUT_S
    message = f"the {part} of the request didn't arrive within {seconds:g} seconds; send it again, and faster"
    return _refusal("408 Request Timeout", message, "invalid_request_error", "request_timeout")


def _refusal(status: str, message: str, kind: str, code: str) -> bytes:
    """An answer to what has not become a request, after which the connection closes."""
    body = msgspec.json.encode(FailureBody(Failure(message, kind, code=code)))
    retry = "retry-after: 1\r\n" if status.startswith("503") else ""
    head = (
        f"HTTP/1.1 {status}\r\nconnection: close\r\n{retry}content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _until_closed(cycle: RequestResponseCycle) -> Send:
    """How HTTP/1.0's clients are answered: they know no chunks, so an answer of unknown length ends with the
    connection."""
    send: Send = cycle.send  # type: ignore[assignment]

    has_length = True

    async def send_plain(message: Message) -> None:
        nonlocal has_length
        if message["type"] == "http.response.start":
            has_length = any(name.lower() == b"content-length" for name, _ in message["headers"])
            cycle.chunked_encoding = None if has_length else False
        elif not has_length:
            cycle.expected_content_length = len(message.get("body", b""))  # of this piece, for uvicorn to compare
        await send(message)

    return send_plain


class Connection(HttpToolsProtocol):
    """Closes unless a request arrives within its deadlines and sizes, and its answer is taken."""

    _num_head_bytes = 0
    _num_idle_bytes = 0  # since the parser last told of anything
    _is_in_head = True
    _has_moved = False
    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = None  # it is answered; `cycle` came last and may wait behind it

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.parser = HttpParser(self)  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            transport.write(_refusal("503 Service Unavailable", TOO_MANY, "server_error", "too_many_connections"))
            transport.close()
            return
        self._set_deadline(HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        self._end_write_deadline()
        parser, running = self.parser, self._running
        super().connection_lost(exc)  # tells the newest request
        if running is not None:
            running.disconnected = not running.response_complete
            running.message_event.set()
            vars(running).pop("send", None)
        # All of them hold this connection: what it holds would stay until someone looks for cycles.
        parser.close()  # type: ignore[attr-defined]
        self.pipeline.clear()
        self.cycle = self.scope = self._running = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._has_moved = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        # The parser shows a header, and a trailer, only once it is complete.
        if self._is_in_head:
            self._num_head_bytes += len(data)
        self._num_idle_bytes = 0 if self._has_moved else self._num_idle_bytes + len(data)
        if max(self._num_head_bytes, self._num_idle_bytes) > MAX_HEAD_BYTES:
            self.send_400_response("The head or the trailers of the request are too large.")

    def on_message_begin(self) -> None:
        self._num_head_bytes = 0
        self._is_in_head = self._has_moved = True
        self._set_deadline(HEAD_TIMEOUT_S)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if self._is_in_head:  # a trailer is nothing that anybody here waits for
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._set_deadline(BODY_TIMEOUT_S)
        super().on_headers_complete()
        self.scope[UNREAD_KEY] = self.count_unread  # type: ignore[literal-required]
        self.scope[WRITE_KEY] = self.write_now  # type: ignore[literal-required]
        if self.scope["http_version"] == "1.0":
            self.cycle.send = _until_closed(self.cycle)  # type: ignore[method-assign, assignment]

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._has_moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_moved = True
        self._end_deadline()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._end_write_deadline()
        super().resume_writing()

    def close_unless_answering(self) -> None:
        """Close if a request is still arriving: nothing has begun that it could wait for."""
        if self._deadline is not None and not self._is_answering:
            self.transport.close()

    def write_now(self, data: bytes) -> bool:
        """Write a part of the body of the answer that has begun. False if that must go the long way: it has to wait for
        the client, or isn't sent in chunks."""
        cycle = self._running
        if cycle is None or self.flow.write_paused or not cycle.chunked_encoding or cycle.response_complete:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def count_unread(self) -> int:
        """Bytes of the answer that the client's side has no room for: they wait here, or in the system unsent. What is
        on its way isn't among them."""
        num_bytes = self.transport.get_write_buffer_size()
        socket = self.transport.get_extra_info("socket")
        if socket is None or self.transport.is_closing():
            return num_bytes
        try:
            answer = fcntl.ioctl(socket.fileno(), _SIOCOUTQNSD, bytes(4))
        except OSError:  # not TCP
            return num_bytes
        return num_bytes + int.from_bytes(answer, sys.byteorder)

    @property
    def _is_answering(self) -> bool:
        cycle = self._running
        return cycle is not None and cycle.response_started and not cycle.response_complete

    def send_400_response(self, msg: str) -> None:
        """Refuse what has arrived and close; without a word where an earlier request's answer is what comes next."""
        has_earlier = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if not (self._is_answering or self.pipeline or has_earlier):
            self.transport.write(_refusal("400 Bad Request", msg, "invalid_request_error", "invalid_http"))
        self.transport.close()

    def _miss_deadline(self) -> None:
        """The request didn't arrive in time. One that waits behind another isn't read meanwhile."""
        if self.pipeline:
            self._set_deadline(BODY_TIMEOUT_S)
            return
        has_begun = self._num_head_bytes > 0 or not self._is_in_head
        if has_begun and not self._is_answering:
            self.transport.write(_late("head" if self._is_in_head else "body"))
        self.transport.close()

    def _watch_writing(self, num_waiting_bytes: int) -> None:
        self._end_write_deadline()
        self._write_deadline = self.loop.call_later(WRITE_TIMEOUT_S, self._check_writing, num_waiting_bytes)

    def _check_writing(self, num_waiting_bytes: int) -> None:
        """Cut the connection if the client has taken nothing since there were so many bytes for it."""
        num_left_bytes = self.transport.get_write_buffer_size()
        if num_left_bytes < num_waiting_bytes:
            self._watch_writing(num_left_bytes)
        else:
            self.transport.abort()

    def _count(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLargeError(f"the head of the request is larger than {MAX_HEAD_BYTES} bytes")

    def _set_deadline(self, seconds: float) -> None:
        self._end_deadline()
        self._deadline = self.loop.call_later(seconds, self._miss_deadline)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None
