"""One client connection: uvicorn's httptools protocol, with limits on the head of a request.

Uvicorn itself waits for a head forever and keeps all of it.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 32 << 10
HEAD_TIMEOUT_S = 10.0


class HeadTooLargeError(ValueError):
    """Raised inside the parser, which then answers 400 and closes."""


class Connection(HttpToolsProtocol):
    """Closes unless the target and headers of a request arrive within a deadline and a size."""

    _num_head_bytes = 0
    _is_in_head = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # The parser shows a header only once it is complete.
        if self._is_in_head and not self.transport.is_closing():
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        self._num_head_bytes = 0
        self._is_in_head = True
        self._end_deadline()
        self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._end_deadline()
        super().on_headers_complete()

    def _count(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLargeError(f"the head of the request is larger than {MAX_HEAD_BYTES} bytes")

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
