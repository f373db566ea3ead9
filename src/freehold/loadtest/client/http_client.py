"""Requests to one server over connections that are kept open and reused."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

from freehold.loadtest.client.connection import ClosedUnansweredError, Connection, OnBody, Response
from freehold.loadtest.client.events import MAX_EVENT_BYTES
from freehold.loadtest.client.failures import FailedRequestError
from freehold.loadtest.client.refusals import refusal
from freehold.loadtest.client.target import Target

MAX_IDLE_S = 3.0
"""Servers close connections that were idle for five seconds or more; one that was idle as long isn't used again, or
requests would meet its end."""

_MAX_ERROR_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Fetched:
    """A body, and headers by lower-case name."""

    body: bytes
    headers: Mapping[str, str]


class HttpClient:
    """A client of one server."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        """
        Args:
            timeout_s: for a whole request, its connection included.
        """
        self.target = target
        self._timeout_s = timeout_s
        self._idle: list[Connection] = []  # the one used last at the end
        self._reuses = True

    async def post(self, path: str, body: bytes, request_id: str, on_body: OnBody) -> Response:
        """Send a request; a successful answer's body goes to `on_body` as it arrives.

        Raises:
            FailedRequestError: no answer, a status other than 200, or what `on_body` raises.
        """
        head = self.target.head("POST", path, len(body), f"x-request-id: {request_id}\r\n")
        return await self._request(head + body, on_body)

    async def fetch(self, path: str) -> Fetched:
        """What is at a path, whole.

        Raises:
            FailedRequestError: as for `post`.
        """
        parts: list[bytes] = []
        num_bytes = 0

        def take(part: bytes, _now_s: float) -> None:
            nonlocal num_bytes
            num_bytes += len(part)
            if num_bytes > MAX_EVENT_BYTES:
                raise FailedRequestError("malformed", f"{path} gives more than {MAX_EVENT_BYTES} bytes")
            parts.append(part)

        response = await self._request(self.target.head("GET", path, 0), take)
        return Fetched(b"".join(parts), response.headers)

    async def close(self) -> None:
        """Hang up."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # sockets are closed by the event loop's next turn

    async def _request(self, data: bytes, on_body: OnBody) -> Response:
        began_s = perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(data, on_body)
        except TimeoutError:
            raise FailedRequestError("timeout", f"no end after {perf_counter() - began_s:.1f} s") from None

    async def _exchange(self, data: bytes, on_body: OnBody) -> Response:
        """Send a request over a connection that is open, or else over a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and perf_counter() - connection.idle_since_s < MAX_IDLE_S:
                try:
                    return await self._exchange_over(connection, data, on_body)
                except ClosedUnansweredError:
                    # Some servers (llama.cpp's after a stream) close connections that they had said to keep. They
                    # haven't seen the request; nor is there any sense in trying that again and again.
                    self._reuses = False
                    break
            connection.close()
        return await self._exchange_over(await self._connect(), data, on_body)

    async def _exchange_over(self, connection: Connection, data: bytes, on_body: OnBody) -> Response:
        refused: list[bytes] = []

        def take(part: bytes, now_s: float) -> None:
            if connection.status == 200:
                on_body(part, now_s)
            elif sum(map(len, refused)) < _MAX_ERROR_BYTES:
                refused.append(part)

        response = await connection.request(data, take)
        if connection.is_open and self._reuses:
            self._idle.append(connection)
        else:
            connection.close()
        if response.status != 200:
            text = refusal(response.status, b"".join(refused), response.headers)
            raise FailedRequestError("http_error", text, status=response.status)
        return response

    async def _connect(self) -> Connection:
        target = self.target
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, target.host, target.port, ssl=target.tls
            )
        except OSError as error:
            raise FailedRequestError("connect", _unreachable(target.url, error)) from None
        return connection


def _unreachable(url: str, error: OSError) -> str:
    """Why there is no connection, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {url} isn't trusted ({error.verify_message}); --insecure takes it unchecked"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection to {url} came about; if the server speaks plain HTTP, write http://"
    reason = error.strerror if isinstance(error, socket.gaierror) else error.errno and os.strerror(error.errno)
    reached = f"no server answers at {url}" + (f": {reason}" if reason else "")
    return f"{reached}; start one with `freehold serve`, or name another with --base-url"
