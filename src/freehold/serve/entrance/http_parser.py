"""HTTP/1's parser for connections that change to no other protocol.

A server may ignore a wish to upgrade and answer in HTTP/1.1 (RFC 9110, 7.8). Java's HttpClient wishes for HTTP/2 with
every first request, and curl does with ``--http2``. httptools takes whatever follows such a head, its body first, for
the other protocol.
"""

from typing import Protocol

import httptools

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class Receiver(Protocol):
    """What is told of requests: httptools' callbacks."""

    def on_message_begin(self) -> None: ...
    def on_url(self, url: bytes) -> None: ...
    def on_header(self, name: bytes, value: bytes) -> None: ...
    def on_headers_complete(self) -> None: ...
    def on_body(self, body: bytes) -> None: ...
    def on_message_complete(self) -> None: ...


class HttpParser:
    """An `httptools.HttpRequestParser` to which a head that wishes for an upgrade is like any other.

    A parser that has seen one is done. Another takes its place: it is given the same framing, of which its receiver is
    told nothing, and then the body.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._framing: list[tuple[bytes, bytes]] = []
        self._is_told = True  # what the parser finds is the receiver's to know
        self._parser = self._new_parser()

    def feed_data(self, data: bytes) -> None:
        """Take in what has arrived.

        Raises:
            httptools.HttpParserError: it is no HTTP.
        """
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                (num_taken,) = upgrade.args
                self._begin_again()
                data = data[num_taken:]
            else:
                return

    def close(self) -> None:
        """Let go of httptools' parser, which holds this one. There will be nothing more to read."""
        del self._parser

    def get_http_version(self) -> str:
        """Of the head that was read last, as in ``1.1``."""
        version: str = self._parser.get_http_version()
        return version

    def get_method(self) -> bytes:
        """Of the head that was read last."""
        method: bytes = self._parser.get_method()
        return method

    def should_keep_alive(self) -> bool:
        """Whether the connection may be used again after the request that was read last."""
        return bool(self._parser.should_keep_alive())

    def should_upgrade(self) -> bool:
        """Never."""
        return False

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # What comes behind a request that closes the connection is nobody's matter.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _begin_again(self) -> None:
        """Go on with the body of the request whose head was read."""
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        head = [method, b" / HTTP/", version, b"\r\n"]
        for name, value in self._framing:
            head += [name, b": ", value, b"\r\n"]
        self._parser, self._is_told = self._new_parser(), False
        self._parser.feed_data(b"".join(head) + b"\r\n")

    # ------------------------------------------------------------------ httptools' callbacks

    def on_message_begin(self) -> None:
        self._framing.clear()
        if self._is_told:
            self._receiver.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_told:
            self._receiver.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in _FRAMING:
            self._framing.append((name, value))
        if self._is_told:
            self._receiver.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_told:
            self._receiver.on_headers_complete()
        self._is_told = True

    def on_body(self, body: bytes) -> None:
        self._receiver.on_body(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():
            self._receiver.on_message_complete()
