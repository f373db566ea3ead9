"""Clients that send without end, too slowly or half, and clients that don't read: each loses its connection alone."""

import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.server.families import TEMPLATES, family
from tests.server.running import TIMEOUT_S, Server, Start
from tests.server.test_lifecycle import raw_request, wait_until

from freehold.files.vocabulary import TextAssets
from freehold.serve import server as lifecycle
from freehold.serve.entrance import connection as limits

POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
SIZED = POST + b"Content-Length: 1000\r\n\r\n"


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) as connection:
        yield connection


def is_cut(connection: socket.socket, more: bytes = b"", pause_s: float = 0.0, num_pieces: int = 10**9) -> bool:
    """Whether the server ends the connection while we send."""
    deadline_s = time.monotonic() + TIMEOUT_S
    connection.settimeout(0.001)
    try:
        while time.monotonic() < deadline_s:
            if more and num_pieces > 0:
                num_pieces -= 1
                connection.sendall(more)
            try:
                if not connection.recv(65536):
                    return True
            except TimeoutError:
                time.sleep(pause_s)
    except TimeoutError:
        return False  # neither reads nor ends it
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (CHUNKED + b"2\r\n{}\r\n0\r\nX: ", b"a" * 1000),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: a\r\n" * 100),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a" * 1000),
        (CHUNKED + b"2;x=", b"a" * 1000),
        (CHUNKED, b"0" * 1000),
        (b"", b"\r\n" * 500),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n" * 500),
    ],
    ids=["trailer", "trailers", "trailer-name", "chunk-extension", "chunk-size", "nothing", "nothing-after-a-request"],
)  # fmt: skip
def test_what_is_no_body_has_an_end(server: Server, start: bytes, more: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(start)
        # Far more than may be kept, far less than forever.
        assert is_cut(connection, more, num_pieces=4 * limits.MAX_HEAD_BYTES // len(more))
    assert server.chat().status_code == 200


@pytest.mark.parametrize("start", [b"", POST, SIZED + b'{"a', CHUNKED + b"1\r\n{", CHUNKED + b"0\r\nX"])
@pytest.mark.parametrize("more", [b"", b"1"])
def test_a_request_that_trickles_has_a_deadline(
    server: Server, start: bytes, more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 0.4)
    monkeypatch.setattr(limits, "BODY_TIMEOUT_S", 0.4)
    with connected(server) as connection:
        connection.sendall(start)
        assert is_cut(connection, more, pause_s=0.05)
    assert server.chat().status_code == 200


def test_trailers_are_accepted_and_change_nothing(server: Server) -> None:
    body = json.dumps({"model": "test", "prompt": server.hi}).encode()
    with connected(server) as connection:
        for _ in range(2):
            connection.sendall(
                CHUNKED + b"%x;name=value\r\n" % len(body) + body + b"\r\n0\r\nHost: evil.example\r\n\r\n"
            )
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")


def test_a_large_body_in_tiny_chunks_is_fine(server: Server) -> None:
    body = json.dumps({"model": "test", "prompt": server.hi, "user": "x" * 50_000}).encode()
    response = server.http.post(
        "/v1/completions",
        content=(body[i : i + 7] for i in range(0, len(body), 7)),
        headers={"content-type": "application/json"},
    )
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("half", "part"),
    [
        (b"POST /v1/comp", "head"),
        (POST, "head"),
        (SIZED, "body"),
        (SIZED + b"{", "body"),
        (CHUNKED + b"1\r\n{", "body"),
    ],
)
def test_a_request_that_comes_too_late_is_told_so(
    server: Server, half: bytes, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(limits, "BODY_TIMEOUT_S", 0.3)
    with connected(server) as connection:
        connection.sendall(half)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == "request_timeout"
    assert f"the {part} of the request" in error["message"]


def test_a_connection_that_says_nothing_is_closed_without_a_word(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 0.2)
    with connected(server) as connection:
        assert connection.recv(65536) == b""


@pytest.mark.parametrize(
    "half", [SIZED + b'{"model"', CHUNKED + b"5\r\n{", CHUNKED + b"zz\r\n", CHUNKED + b"1\r\n{\r\n0\r\nX"]
)
def test_half_a_body_is_one_line_in_the_log(server: Server, half: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with connected(server) as connection:
        connection.sendall(half)
        time.sleep(0.05)
    wait_until(lambda: " 499 " in caplog.text)
    lines = [record for record in caplog.records if record.name.startswith("freehold")]
    assert len(lines) == 1
    assert "outcome=cancelled" in lines[0].getMessage()
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)


LONG = {"stream": True, "max_tokens": 1000, "return_token_ids": True}
SMALL = 4096


def test_clients_that_never_read_give_their_places_back(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_TIMEOUT_S", 2.5)
    server = start(engine={"max_num_seqs": 1, "max_num_queued_reqs": 1}, send_buffer_bytes=SMALL)
    server.says(*["word "] * 1000)
    stalled = [raw_request(server, LONG, window=SMALL) for _ in range(2)]
    wait_until(lambda: server.service.load.num_answers == 2)
    assert server.chat().status_code == 429
    wait_until(lambda: server.service.load.num_answers == 0)
    server.says("fine")
    assert server.chat().json()["choices"][0]["message"]["content"] == "fine"
    for connection in stalled:
        connection.close()


def test_a_client_that_reads_slowly_keeps_its_place(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_TIMEOUT_S", 1.0)
    server = start(send_buffer_bytes=SMALL)
    server.says(*["word "] * 1000)
    connection = raw_request(server, LONG, window=SMALL)
    received = b""
    begun_s = time.monotonic()
    while b"[DONE]" not in received:
        piece = connection.recv(8000)
        assert piece, "it was cut"
        received += piece
        time.sleep(0.2 if time.monotonic() - begun_s < 3 else 0.0)
    connection.close()


WRITE = {
    "type": "function",
    "function": {"name": "write", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},
}
CALLS = {
    "hermes": ('<tool_call>\n{"name": "write", "arguments": {"text": "', '"}}\n</tool_call>'),
    "qwen3_coder": (
        "<tool_call>\n<function=write>\n<parameter=text>\n",
        "\n</parameter>\n</function>\n</tool_call>",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_slow_readers_of_calls_are_as_other_slow_readers(
    start: Start, text: TextAssets, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Who reads nothing loses its place, who reads slowly gets all of the call; the server keeps little for either."""
    monkeypatch.setattr(limits, "WRITE_TIMEOUT_S", 1.5)
    server = start(family(text, TEMPLATES[name]), send_buffer_bytes=SMALL)
    begin, end = CALLS[name]
    server.says(begin, *["word "] * 400, end)
    asked = {**LONG, "tools": [WRITE]}
    stalled, slow = (raw_request(server, asked, window=SMALL) for _ in range(2))
    received = b""
    while b"[DONE]" not in received:
        piece = slow.recv(16000)
        assert piece, "it was cut"
        received += piece
        time.sleep(0.1 if server.service.load.num_answers == 2 else 0.0)
    wait_until(lambda: server.service.load.num_answers == 0)
    assert is_cut(stalled)
    deltas = [
        call["function"]["arguments"]
        for data in re.findall(rb"data: (\{.+)", received)
        for call in json.loads(data)["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert len(json.loads("".join(deltas))["text"].split()) == 400
    for connection in (stalled, slow):
        connection.close()


@pytest.mark.parametrize("half", [b"", POST, SIZED + b"{", CHUNKED + b"1\r\n{"])
def test_half_a_request_holds_no_shutdown_up(
    start: Start, half: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "LAST_WORDS_S", TIMEOUT_S)  # far longer than anything here takes
    server = start()
    with connected(server) as connection:
        connection.sendall(half)
        time.sleep(0.1)
        begun_s = time.monotonic()
        server.send_signal()
        server.join()
        assert time.monotonic() - begun_s < TIMEOUT_S / 2
    assert "Traceback" not in caplog.text
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)


def test_a_client_that_never_reads_ends_a_shutdown_late_but_quietly(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "LAST_WORDS_S", 1)
    server = start(shutdown_timeout_s=0.1, send_buffer_bytes=SMALL)
    server.says(*["word "] * 1000)
    connection = raw_request(server, LONG, window=SMALL)
    wait_until(lambda: server.engine.num_live == 1)
    wait_until(lambda: server.engine.num_live == 0)
    assert server.service.load.num_answers == 1
    server.send_signal()
    server.join()
    connection.close()
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)
