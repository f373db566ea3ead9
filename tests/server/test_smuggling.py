"""T14: requests whose end two parsers might see differently. Here one parser decides, and what is doubtful is refused.

Each head below hides a second request from whoever reads it another way. The server may refuse, or answer the first one
alone; the hidden one is never answered, and nothing gets in without a key.
"""

import re
import socket
from collections.abc import Iterator

import pytest
from tests.server.conftest import starting
from tests.server.running import Server, Start

from freehold.files.vocabulary import TextAssets

HIDDEN = b"GET /v1/models/hidden HTTP/1.1\r\nHost: localhost\r\nx-api-key: operators-key\r\n\r\n"
BODY = b"0\r\n\r\n" + HIDDEN
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: wrong\r\n"
SIZE = str(len(BODY)).encode()

AMBIGUOUS = {
    "length and chunked": b"Content-Length: " + SIZE + b"\r\nTransfer-Encoding: chunked\r\n",
    "chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: " + SIZE + b"\r\n",
    "two lengths": b"Content-Length: " + SIZE + b"\r\nContent-Length: 0\r\n",
    "two equal lengths": b"Content-Length: " + SIZE + b"\r\nContent-Length: " + SIZE + b"\r\n",
    "lengths in one": b"Content-Length: 0, " + SIZE + b"\r\n",
    "signed length": b"Content-Length: +" + SIZE + b"\r\n",
    "hexadecimal length": b"Content-Length: 0x" + SIZE + b"\r\n",
    "negative length": b"Content-Length: -1\r\n",
    "huge length": b"Content-Length: 18446744073709551617\r\n",
    "length with a space": b"Content-Length : " + SIZE + b"\r\n",
    "length of words": b"Content-Length: " + SIZE + b" 0\r\n",
    "underscore": b"Content_Length: " + SIZE + b"\r\nContent-Length: 0\r\n",
    "other coding": b"Transfer-Encoding: gzip, chunked\r\nContent-Length: " + SIZE + b"\r\n",
    "chunked first": b"Transfer-Encoding: chunked, identity\r\n",
    "unknown coding": b"Transfer-Encoding: xchunked\r\nContent-Length: " + SIZE + b"\r\n",
    "coding with a tab": b"Transfer-Encoding:\tchunked\r\nContent-Length: " + SIZE + b"\r\n",
    "coding with a space": b"Transfer-Encoding : chunked\r\nContent-Length: " + SIZE + b"\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: " + SIZE + b"\r\n",
    "folded": b"X-Filler: a\r\n Content-Length: " + SIZE + b"\r\nContent-Length: 0\r\n",
    "folded coding": b"Transfer-Encoding:\r\n chunked\r\nContent-Length: " + SIZE + b"\r\n",
    "bare line feed": b"X-Filler: a\nContent-Length: " + SIZE + b"\r\n",
    "bare carriage return": b"X-Filler: a\rContent-Length: " + SIZE + b"\r\n",
    "zero byte": b"X-Filler: a\x00\r\nContent-Length: " + SIZE + b"\r\n",
    "no colon": b"Content-Length\r\n",
    "no name": b": a\r\nContent-Length: " + SIZE + b"\r\n",
}
"""Headers before the hidden request, which all of them hold in their body by one reading and not by another."""


@pytest.fixture(scope="module")
def closed(text: TextAssets) -> Iterator[Server]:
    with starting(text) as start:
        server = start(api_keys=("operators-key",))
        server.says("ok")
        yield server


def exchange(server: Server, content: bytes) -> bytes:
    """All that comes back within a moment, or until the connection ends."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.15) as connection:
        connection.sendall(content)
        answer = b""
        try:
            while piece := connection.recv(65536):
                answer += piece
        except (TimeoutError, ConnectionError):
            pass
        return answer


@pytest.mark.parametrize("kind", AMBIGUOUS)
def test_a_hidden_request_is_not_answered(closed: Server, kind: str) -> None:
    answer = exchange(closed, HEAD + AMBIGUOUS[kind] + b"\r\n" + BODY)
    statuses = re.findall(rb"HTTP/1\.1 (\d+) ", answer)
    assert b"hidden" not in answer, "that is what /v1/models/hidden would be answered with"
    assert all(status in (b"400", b"401") for status in statuses), answer
    assert len(statuses) <= 2
    assert closed.http.get("/livez").status_code == 200


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"DELETE", b"OPTIONS"])
def test_a_body_where_none_is_expected_is_no_request(closed: Server, method: bytes) -> None:
    for headers in (b"Content-Length: " + SIZE + b"\r\n", b"Transfer-Encoding: chunked\r\n"):
        chunk = hex(len(HIDDEN))[2:].encode() + b"\r\n" + HIDDEN + b"\r\n0\r\n\r\n"
        body = BODY if b"Length" in headers else chunk
        answer = exchange(closed, method + b" /livez HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n" + body)
        assert b"hidden" not in answer
        assert len(re.findall(rb"HTTP/1\.1 ", answer)) <= 1


@pytest.mark.parametrize("version", [b"HTTP/0.9", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.2", b"HTTP/9.9", b"http/1.1", b""])
def test_other_versions_get_in_no_better(closed: Server, version: bytes) -> None:
    answer = exchange(closed, b"GET /v1/models " + version + b"\r\nHost: localhost\r\n\r\n")
    assert not re.search(rb" 200 ", answer)


def test_requests_in_a_row_are_each_asked_for_their_key(closed: Server) -> None:
    good = b"GET /v1/models/none HTTP/1.1\r\nHost: localhost\r\nx-api-key: operators-key\r\n\r\n"
    bad = b"GET /v1/models/none HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = exchange(closed, good + bad + good + bad)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", answer) == [b"404", b"401", b"404", b"401"]


def test_a_switch_of_protocols_switches_nothing(closed: Server) -> None:
    for upgrade in (b"websocket", b"h2c", b"TLS/1.0"):
        head = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " + upgrade
        answer = exchange(closed, head + b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n" + HIDDEN)
        assert b" 101 " not in answer
        assert not re.search(rb" 200 ", answer)
        assert b"hidden" not in answer or answer.count(b"HTTP/1.1") == 2


def test_both_ways_of_ending_a_body_are_refused(start: Start) -> None:
    """Length and chunks together, without keys: 400, and the connection ends."""
    server = start()
    answer = exchange(server, HEAD + AMBIGUOUS["length and chunked"] + b"\r\n" + BODY)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert server.engine.ledger().received == 0
