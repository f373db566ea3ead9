"""T15: web pages of strangers can't use the server, and those that may can read what it says."""

from typing import Any

import pytest
from tests.server.running import Server, Start

PAGE = "https://page.example"


def headers_of(server: Server, origin: str, **more: str) -> dict[str, str]:
    return {"Origin": origin.replace("PORT", str(server.port)), **more}


FOREIGN = [
    "https://evil.example",
    "null",
    "http://localhost",
    "http://127.0.0.1:1",
    "file://",
    "http://[",
    PAGE + ".evil",
]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("allowed", [(), (PAGE,)])
def test_a_strangers_page_is_refused_and_nothing_is_done(start: Start, origin: str, allowed: tuple[str, ...]) -> None:
    server = start(allowed_origins=allowed)
    headers = headers_of(server, origin)
    body = {"model": "test", "messages": server.messages}
    for answer in (
        server.http.post("/v1/chat/completions", json=body, headers=headers),
        server.http.get("/v1/models", headers=headers),
        server.http.options("/v1/models", headers={**headers, "Access-Control-Request-Method": "POST"}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert server.engine.ledger().received == 0


@pytest.mark.parametrize("origin", ["http://127.0.0.1:PORT", "https://127.0.0.1:PORT"])
def test_the_servers_own_pages_may(server: Server, origin: str) -> None:
    assert server.http.get("/v1/models", headers=headers_of(server, origin)).status_code == 200


def test_what_a_page_can_send_without_asking_is_no_request(server: Server) -> None:
    """A form, or text: a browser sends these to any server without a preflight."""
    content = b'{"model": "test", "prompt": "x"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answer = server.http.post("/v1/completions", content=content, headers={"Content-Type": kind} if kind else {})
        assert answer.status_code == 415


@pytest.mark.parametrize("allowed", [(PAGE,), ("*",), ("https://other.example", PAGE.upper())])
def test_a_page_that_may_can_read_everything(start: Start, allowed: tuple[str, ...]) -> None:
    server = start(allowed_origins=allowed, api_keys=("operators-key",))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    preflight = server.http.options("/v1/chat/completions", headers=headers_of(server, PAGE, **asked))
    assert preflight.status_code == 204
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
    answers: list[Any] = [
        preflight,
        server.http.get("/v1/models", headers=headers_of(server, PAGE)),
        server.http.get("/v1/models", headers=headers_of(server, PAGE, Authorization="Bearer operators-key")),
        server.http.options("/v1/models", headers=headers_of(server, PAGE)),
    ]
    assert [answer.status_code for answer in answers] == [204, 401, 200, 401]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "access-control-allow-credentials" not in answer.headers
        assert answer.headers["vary"] == "Origin"
    assert "x-request-id" in answers[1].headers["access-control-expose-headers"]


def test_several_origins_are_one_too_many(start: Start) -> None:
    server = start(allowed_origins=("*",))
    answer = server.http.get("/v1/models", headers=[("Origin", PAGE), ("Origin", PAGE)])
    assert answer.status_code == 403
