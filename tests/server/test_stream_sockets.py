"""Streams as sockets see them: stopped and read on, in every version of HTTP, abandoned with requests behind them; and
what failed requests leave in memory."""

import gc
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.running import TIMEOUT_S, Server, Start
from tests.server.test_lifecycle import wait_until
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from freehold.backends.script import FailStep, Item, NotFinite, Pause
from freehold.serve import reply
from freehold.serve.entrance.connection import Connection
from freehold.serve.entrance.record import Record
from freehold.serve.generation import Answers

SMALL = 4096
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def ask(server: Server, version: str = "1.1", **fields: Any) -> socket.socket:
    """Send a completion over a connection that takes little that isn't read."""
    body = json.dumps({"model": "test", "prompt": server.hi, **fields}).encode()
    connection = socket.socket()
    connection.settimeout(TIMEOUT_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    connection.connect(("127.0.0.1", server.port))
    head = f"POST /v1/completions HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    connection.close()
    return data


def unchunked(data: bytes) -> tuple[bytes, bytes]:
    """A body in chunks, each of which must be as long as it says, and what follows it."""
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body, end, data = body + data[:length], data[length : length + 2], data[length + 2 :]
        assert end == b"\r\n"
        if not length:
            return body, data


def told(body: bytes) -> list[tuple[str, list[int], str]]:
    """Text, ids and end of each answer of a stream that is told to its end, once."""
    events = [event for event in body.split(b"\n\n") if not event.startswith(b":")]
    assert events[-2:] == [b"data: [DONE]", b""]
    answers: dict[int, tuple[str, list[int], str]] = {}
    for event in events[:-2]:
        for choice in json.loads(event.removeprefix(b"data: "))["choices"]:
            text, ids, end = answers.get(choice["index"], ("", [], ""))
            assert not end, "nothing follows an answer's end"
            ids = [*ids, *(choice.get("token_ids") or ())]
            answers[choice["index"]] = text + choice["text"], ids, choice["finish_reason"] or ""
    return [answers[index] for index in sorted(answers)]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_who_stops_reading_gets_every_byte_once_he_goes_on(
    start: Start, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(reply, "_SHORTEST_WAIT_S", 0.001)
    server = start(send_buffer_bytes=SMALL)
    server.says(*[f"word{number} " for number in range(80)], "the end, and more")
    asked = {"max_tokens": 3000, "n": 3, "stop": ["end, and"], "return_token_ids": True, "seed": 1}
    plain = server.complete(**asked).json()["choices"]
    connection = ask(server, version, stream=True, **asked)
    connection.sendall(LIVEZ if version == "1.1" else b"")
    received = connection.recv(100)
    wait_until(lambda: server.service.load.num_answers > 0 and server.engine.num_live == 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    received += read_all(connection)
    head, _, data = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    body, behind = unchunked(data) if version == "1.1" else (data, b"")
    assert told(body) == [(choice["text"], choice["token_ids"], "stop") for choice in plain]
    assert behind.startswith(b"HTTP/1.1 200") == (version == "1.1")  # the pipelined request was answered after it


@pytest.mark.parametrize("is_reading", [True, False])
def test_who_leaves_with_a_request_behind_a_stream_ends_both(start: Start, is_reading: bool) -> None:
    server = start(send_buffer_bytes=SMALL)
    server.says(*[Pause(0.001), "word "] * 8000)
    connection = ask(server, stream=True, max_tokens=8000)
    connection.recv(100)
    connection.sendall(LIVEZ)
    if is_reading:
        connection.recv(65536)
    connection.close()
    wait_until(lambda: server.service.load.num_answers == 0)
    wait_until(lambda: server.engine.num_live == 0)
    assert server.engine.ledger().cancelled == 1


@pytest.fixture
def seldom() -> Iterator[None]:
    """No look for cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


KINDS = {Answers, Connection, Record, RequestResponseCycle}


def num_kept() -> int:
    """What requests and connections are made of and still there."""
    return sum(type(item) in KINDS for item in gc.get_objects())


@pytest.mark.parametrize(("stream", "version"), [(False, "1.1"), (True, "1.1"), (True, "1.0")])
@pytest.mark.parametrize("item", [0, FailStep(), NotFinite(), Pause(0.1)], ids=["ends", "fails", "nan", "leaves"])
@pytest.mark.usefixtures("seldom")
def test_a_request_leaves_nothing_that_only_a_collection_finds(
    start: Start, stream: bool, version: str, item: Item
) -> None:
    """Cycles are looked for so seldom that requests with long prompts, held by their errors, would fill the memory."""
    server = start()
    server.http.close()
    server.says("some words ", item, "more")
    before = num_kept()
    for _ in range(3):
        connection = ask(server, version, stream=stream, n=2)
        if isinstance(item, Pause):
            wait_until(lambda: server.engine.num_live > 0)
        else:
            connection.recv(65536)
        connection.close()
        wait_until(lambda: server.service.load.num_answers == server.engine.num_live == 0)
    wait_until(lambda: server.engine.ledger().accepted == 6)
    wait_until(lambda: num_kept() <= before)
