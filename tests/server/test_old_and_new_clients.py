"""Clients that speak less than HTTP/1.1, or would rather speak HTTP/2, and what is no HTTP at all."""

import json
import re
import socket
from typing import Any

import pytest
from tests.server.running import Server

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n"
"""As Java's HttpClient sends it with its first request."""


def body(**fields: Any) -> bytes:
    return json.dumps({"prompt": "a", "max_tokens": 2, **fields}).encode()


def request(content: bytes, *, version: bytes = b"1.1", more: bytes = b"", chunked: bool = False) -> bytes:
    head = b"POST /v1/completions HTTP/" + version + b"\r\n" + HEAD + more
    if chunked:
        return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(content), content)


def exchange(server: Server, *pieces: bytes) -> bytes:
    """All that comes back until the server closes the connection, whose last request asks for that."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def statuses(answer: bytes) -> list[bytes]:
    return re.findall(rb"HTTP/1\.1 (\d+) ", answer)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_wish_to_upgrade_is_ignored(server: Server, stream: bool, chunked: bool) -> None:
    wish = request(body(stream=stream), more=UPGRADE, chunked=chunked)
    last = b"GET /livez HTTP/1.1\r\n" + HEAD + UPGRADE.replace(b": Upgrade", b": close, Upgrade") + b"\r\n"
    answer = exchange(server, wish + request(body()) + wish + last)
    assert statuses(answer) == [b"200"] * 4
    assert answer.count(b'"text":"') >= 3


def test_a_wish_to_upgrade_is_ignored_wherever_it_is_cut(server: Server) -> None:
    wish = request(body(), more=UPGRADE) + b"GET /livez HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n"
    for place in range(wish.index(b"HTTP2-Settings: "), len(wish), 7):
        assert statuses(exchange(server, wish[:place], wish[place:])) == [b"200", b"200"]
    assert statuses(exchange(server, *(wish[place : place + 1] for place in range(len(wish))))) == [b"200", b"200"]


def test_the_body_behind_a_wish_to_upgrade_is_no_request(server: Server) -> None:
    hidden = b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n"
    last = b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n"
    assert statuses(exchange(server, request(hidden, more=UPGRADE) + last)) == [b"400", b"200"]


@pytest.mark.parametrize("fields", [{"max_tokens": 1}, {"max_tokens": 40}, {"max_tokens": -1}])
@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0_gets_the_same_without_chunks(server: Server, stream: bool, fields: dict[str, Any]) -> None:
    content = body(stream=stream, **fields)
    head, _, answer = exchange(server, request(content, version=b"1.0")).partition(b"\r\n\r\n")
    newer = server.http.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert b"transfer-encoding" not in head.lower()
    assert texts(answer) == texts(newer.content)
    assert answer.endswith(b"data: [DONE]\n\n") == newer.content.endswith(b"data: [DONE]\n\n")


def texts(answer: bytes) -> list[bytes]:
    return re.findall(rb'"(?:text|message)":"[^"]*"', answer)


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"HELLO\r\n\r\n", b"CONNECT a:443 HTTP/1.1\r\n" + HEAD + b"\r\n"],
)
def test_what_is_no_http_is_told_so_in_json(server: Server, garbage: bytes) -> None:
    head, _, answer = exchange(server, garbage).partition(b"\r\n\r\n")
    assert statuses(head) == [b"400"]
    assert json.loads(answer)["error"]["code"] == "invalid_http"


def test_nothing_is_written_into_the_answer_that_an_earlier_request_waits_for(server: Server) -> None:
    for stream in (True, False):
        answer = exchange(server, request(body(stream=stream, max_tokens=200)), b"HELLO\r\n\r\n")
        assert b"invalid_http" not in answer


@pytest.mark.parametrize("path", ["/v1/completions/", "/livez/", "/v1/chat/completions//"])
def test_no_path_leads_elsewhere(server: Server, path: str) -> None:
    for answer in (server.http.post(path, content=body()), server.http.get(path)):
        assert answer.status_code == 404
        assert "location" not in answer.headers
