"""One HTTP/1.1 connection. The time of each read is taken before anything is parsed."""

import asyncio
from collections.abc import Callable
from time import perf_counter

import httptools

from freehold.loadtest.client.failures import FailedRequestError

MAX_HEAD_BYTES = 1 << 17
"""Of a response: more is no head."""

OnBody = Callable[[bytes, float], None]


class ClosedUnansweredError(FailedRequestError):
    """The connection was closed before a byte of the response came."""


class Response:
    """What came back, as far as the connection knows.

    Attributes:
        status: 0 until it has come.
        headers: by lower-case name.
        sent_s: when the request's first byte was handed over.
        first_byte_s: when the response's first byte arrived.
        ended_s: when its last byte arrived.
    """

    __slots__ = ("ended_s", "first_byte_s", "headers", "sent_s", "status")

    def __init__(self, sent_s: float) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.sent_s = sent_s
        self.first_byte_s: float | None = None
        self.ended_s: float | None = None


class Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self.is_open = False
        self.idle_since_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._now_s = 0.0
        self._response: Response | None = None
        self._on_body: OnBody | None = None
        self._ended: asyncio.Future[Response] | None = None
        self._ends_with_connection = False
        self._head_bytes = 0  # of headers that are whole
        self._num_unended = 0  # bytes of a head that isn't

    async def request(self, data: bytes, on_body: OnBody) -> Response:
        """Send a request and wait for the end of its response.

        Args:
            on_body: called with each part of a successful body and the time at which it arrived. What it raises ends
                the request.

        Raises:
            ClosedUnansweredError: the connection is closed before a byte of the response came.
            FailedRequestError: it breaks later, or what comes is no HTTP.
        """
        assert self._transport is not None
        self._ended = asyncio.get_running_loop().create_future()
        self._on_body = on_body
        self._ends_with_connection = False
        self._head_bytes = self._num_unended = 0
        self._response = Response(perf_counter())
        self._transport.write(data)
        try:
            return await self._ended
        finally:
            if not self._ended.done() or self._ended.cancelled() or self._ended.exception():
                self.close()
            self._response = self._on_body = None
            self.idle_since_s = perf_counter()

    @property
    def status(self) -> int:
        """Of the response that is arriving; 0 if none is."""
        return self._response.status if self._response is not None else 0

    def close(self) -> None:
        """Hang up."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._now_s = perf_counter()
        if self._response is None:  # nothing was asked: a late answer, or a server that talks first
            self.close()
            return
        if self._response.first_byte_s is None:
            self._response.first_byte_s = self._now_s
        try:
            self._parser.feed_data(data)
            if self.status == 0:  # the parser keeps what it has of a header
                self._num_unended += len(data)
                _check_head(self._num_unended)
        except FailedRequestError as error:
            self._fail(error)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, FailedRequestError):
                cause = FailedRequestError("malformed", f"the answer can't be read: {cause!r}")
            self._fail(cause)
        except httptools.HttpParserError as error:
            self._fail(FailedRequestError("malformed", f"that is no HTTP: {error}"))

    def eof_received(self) -> None:
        self._now_s = perf_counter()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._response is None:
            return
        if exc is None and self._ends_with_connection:
            self.on_message_complete()
        elif self._response.first_byte_s is None:
            self._fail(ClosedUnansweredError("dropped", "the connection was closed before anything came"))
        else:
            self._fail(FailedRequestError("dropped", "the connection was closed within the answer"))

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._response is not None
        self._head_bytes += len(name) + len(value)
        _check_head(self._head_bytes)
        self._response.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._response is not None
        self._response.status = self._parser.get_status_code()
        headers = self._response.headers
        self._ends_with_connection = "content-length" not in headers and "transfer-encoding" not in headers

    def on_body(self, body: bytes) -> None:
        if self._on_body is not None:
            self._on_body(body, self._now_s)

    def on_message_complete(self) -> None:
        response = self._response
        if response is None or self._ended is None or self._ended.done():
            return
        if 100 <= response.status < 200:  # the final one follows
            response.headers.clear()
            return
        response.ended_s = self._now_s
        if not self._parser.should_keep_alive():
            self.close()
        self._ended.set_result(response)

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)


def _check_head(num_bytes: int) -> None:
    """
    Raises:
        FailedRequestError: so many are no head.
    """
    if num_bytes > MAX_HEAD_BYTES:
        raise FailedRequestError("malformed", f"a head of more than {MAX_HEAD_BYTES} bytes")
