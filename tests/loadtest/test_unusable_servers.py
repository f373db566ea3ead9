"""Servers that can't be measured: one clear sentence each, before any load, with what to do."""

import asyncio
import json
import re
import socket
from collections.abc import Callable

import pytest
from tests.loadtest.runs import Run

from freehold.errors import ResourceError
from freehold.loadtest.client.http_client import HttpClient
from freehold.loadtest.client.refusals import refusal, remedy
from freehold.loadtest.client.target import read_target
from freehold.loadtest.server_facts import ask_server

PAGE = b"<!DOCTYPE html><html><body>Welcome to nginx!</body></html>"
Against = Callable[..., Run]


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


async def asked(sent: bytes, *, scheme: str = "http", model: str | None = None) -> str:
    """What is said of a server that answers this to everything."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(sent)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        http = HttpClient(read_target(f"{scheme}://127.0.0.1:{port}"), 10.0)
        with pytest.raises(ResourceError) as raised:
            await ask_server(http, model)
        await http.close()
    return str(raised.value)


@pytest.mark.parametrize(
    ("sent", "scheme", "words"),
    [
        (
            answer(401, b'{"error": {"message": "no key"}}'),
            "http",
            "HTTP 401: no key; put the server's key into FREEHOLD",
        ),
        (answer(404, PAGE), "http", "HTTP 404: Not Found; check --base-url"),
        (answer(502, PAGE), "http", "HTTP 502: Bad Gateway"),
        (answer(200, PAGE), "http", "is no OpenAI-compatible server"),
        (answer(200, b"[1]"), "http", "is no OpenAI-compatible server"),
        (answer(200, b'{"data": []}'), "http", "name one with --model"),
        (answer(400, b"HTTP required"), "https", "plain HTTP, write http://"),
        (b"", "http", "write https://"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "http", "write https://"),
    ],
)
def test_what_is_wrong_with_a_server_is_one_sentence(sent: bytes, scheme: str, words: str) -> None:
    said = asyncio.run(asked(sent, scheme=scheme))
    assert words in said
    assert not re.search(r"[<{\n]|SSL|Errno", said), "no page, JSON or library's own words"


def test_a_refused_connection_says_what_to_do() -> None:
    async def said(url: str) -> str:
        with pytest.raises(ResourceError) as raised:
            await ask_server(HttpClient(read_target(url), 10.0), None)
        return str(raised.value)

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert asyncio.run(said(url)) == (
            f"no server answers at {url}: Connection refused; start one with `freehold serve`, or name another with "
            "--base-url"
        )


def test_an_unknown_model_is_told_with_those_that_there_are(against: Against) -> None:
    with pytest.raises(ResourceError, match=r"HTTP 404: told to fail; name one .* --model: stub$"):
        against({"status": 404}, num_warmups=1, model="other")


def test_a_refused_field_is_told_with_its_flag(against: Against) -> None:
    with pytest.raises(ResourceError, match=r"HTTP 400: told to fail; .*--extra-body"):
        against({"status": 400}, num_warmups=1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (json.dumps({"error": {"message": "too long", "code": 7}}).encode(), "HTTP 400: too long"),
        (json.dumps({"detail": "too long"}).encode(), "HTTP 400: too long"),
        (b"too\nlong", "HTTP 400: too long"),
        (json.dumps({"error": "x" * 999}).encode(), f"HTTP 400: {'x' * 200}…"),
        (PAGE, "HTTP 400: Bad Request"),
        (b'{"cut', "HTTP 400: Bad Request"),
        (b"", "HTTP 400: Bad Request"),
        (b"\xff\xfe", "HTTP 400: \ufffd\ufffd"),
    ],
)
def test_a_refusal_is_what_the_server_says_without_its_form(body: bytes, said: str) -> None:
    assert refusal(400, body) == said


def test_no_remedy_is_made_up() -> None:
    assert remedy(500, "m", ("m",), has_fields=True) == ""
    assert remedy(None, "m", ("m",), has_fields=True) == ""
    assert remedy(400, "m", ("m",), has_fields=False) == ""
    assert "FREEHOLD_API_KEY" in remedy(401, "m", (), has_fields=True)
