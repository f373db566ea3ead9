"""What operators set: names of the model, unknown fields, deadlines, logs, the number of connections."""

import json
import logging
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.server.running import Server, Start
from tests.server.test_lifecycle import SLOW, wait_until

from freehold.logs import JsonFormatter, PrettyFormatter
from freehold.serve import server as lifecycle


def test_a_model_answers_to_each_of_its_names(start: Start) -> None:
    server = start(served_model_name="first", model_aliases=("second", "org/third"))
    server.says("ok")
    listed = server.http.get("/v1/models").json()["data"]
    assert [card["id"] for card in listed] == ["first", "second", "org/third"]
    for name in ("first", "second", "org/third"):
        answer = server.http.post("/v1/completions", json={"model": name, "prompt": server.hi})
        assert answer.json()["model"] == "first"
        assert server.http.get(f"/v1/models/{name}").json()["id"] == name
    refused = server.http.post("/v1/completions", json={"model": "fourth", "prompt": "x"})
    assert refused.status_code == 404
    assert "'first' and 'second' and 'org/third'" in refused.json()["error"]["message"]


STRANGE: dict[str, Any] = {"nobody_knows": 1, "best_of": 7, "bad\r\nname\u00e9: x": {"deep": [1]}, "x" * 500: None}


@pytest.mark.parametrize("filler", [0, 100_000])
def test_unknown_fields_are_refused_or_told(start: Start, filler: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = start(unknown_fields="warn")
    server.says("ok")
    answer = server.complete(**STRANGE, metadata={"filler": "x" * filler})
    assert answer.status_code == 200
    assert answer.headers["x-ignored-fields"] == "bad??name??x, best_of, nobody_knows".replace("??x", "???x")
    wait_until(lambda: "ignored=" in caplog.text)
    assert "x-ignored-fields" not in server.complete().headers
    assert server.complete(temperature="hot", nobody_knows=1).status_code == 400
    strict = start()
    for name in ("nobody_knows", "best_of", "bad\r\nname\u00e9: x"):
        assert strict.complete(**{name: STRANGE[name]}).status_code == 400


def test_many_unknown_fields_make_a_short_header(start: Start) -> None:
    server = start(unknown_fields="warn")
    server.says("ok")
    answer = server.complete(**{f"field_{number}_{'x' * 100}": 1 for number in range(1000)})
    assert answer.status_code == 200
    assert len(answer.headers["x-ignored-fields"]) < 2000
    assert answer.headers["x-ignored-fields"].endswith(", ...")


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long_ends(start: Start, stream: bool) -> None:
    server = start(request_timeout_s=0.3)
    server.says(*[SLOW, 40] * 4000, ends=False)
    began_s = time.monotonic()
    answer = server.chat(max_tokens=4000, stream=stream)
    assert 0.25 < time.monotonic() - began_s < 10
    assert "deadline_exceeded" in answer.text
    assert answer.status_code == (200 if stream else 503)
    server.says(SLOW, SLOW, *[40] * 4, *[SLOW] * 20, "late")
    assert server.chat(service_tier="batch").status_code == 200, "nobody waits for it"


def test_only_set_timeouts_end_a_request(start: Start) -> None:  # op-16
    """op-16: without a setting nothing but the client ends a request that takes its time."""
    server = start()
    server.says(*[SLOW, 40] * 60, ends=False)
    assert server.chat(max_tokens=60).status_code == 200


def test_beyond_the_most_connections_newcomers_are_told_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """T24: descriptors are kept for those who are inside."""
    monkeypatch.setattr(lifecycle, "max_connections", lambda: 20)
    server = start()
    server.says("ok")
    assert server.chat().status_code == 200
    inside = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(19)]
    wait_until(lambda: server.http.get("/livez").status_code == 200)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as outside:
        answer = b""
        while piece := outside.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_many_connections"
    assert server.chat().json()["choices"][0]["message"]["content"] == "ok", "who is inside is served"
    for connection in inside:
        connection.close()

    def is_let_in() -> bool:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as newcomer:
            newcomer.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return newcomer.recv(100).startswith(b"HTTP/1.1 200")

    wait_until(is_let_in)


FORGED = "x\r\n2026-11-30 00:00:00 ERROR forged\x1b[31m\u2028\u0085\x00"


def render(formatter: logging.Formatter, caplog: pytest.LogCaptureFixture) -> list[str]:
    return [formatter.format(record) for record in caplog.records]


@pytest.mark.parametrize("formatter", [PrettyFormatter(), JsonFormatter()], ids=["pretty", "json"])
def test_no_client_can_forge_a_line(
    server: Server, formatter: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    """T20: whatever a client controls that gets into the log stays within its line, and no terminal obeys it."""
    caplog.set_level(logging.DEBUG)
    quoted = "".join(f"%{byte:02x}" for byte in FORGED.encode())
    for method, path in (("GET", f"/{quoted}"), ("POST", f"/v1/{quoted}?{quoted}"), ("GET", f"/v1/models/{quoted}")):
        server.http.request(method, path, headers={"x-request-id": "abc\tdef"})
    server.complete(**{FORGED: 1})
    server.complete(model=FORGED)
    server.complete(temperature=FORGED)
    server.complete(service_tier=FORGED)
    logging.getLogger("freehold").error("an error of %s", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("freehold").exception("it said %s", FORGED)
    lines = [line for text in render(formatter, caplog) for line in text.split("\n")]
    assert len(lines) > 8
    for line in lines:
        assert line.isprintable(), line
        assert re.match(r"    |\{|[0-9-]{10} [0-9:,]{12} [A-Z]+ ", line), line
        assert not line.startswith("2026-11-30 00:00:00 ERROR forged")


def test_json_lines_have_the_fields_of_a_request(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server.says("a few words")
    answer = server.http.post(
        "/v1/completions", json={"model": "test", "prompt": server.hi}, headers={"x-request-id": "mine-1"}
    )
    wait_until(lambda: "mine-1" in caplog.text)
    (line,) = [json.loads(text) for text in render(JsonFormatter(), caplog) if "mine-1" in text]
    usage = answer.json()["usage"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line.pop("total_s") >= line.pop("first_s") > 0
    assert "mine-1 POST /v1/completions 200" in line.pop("message")
    assert line == {
        "level": "info", "logger": "freehold.access", "request_id": "mine-1", "method": "POST",
        "path": "/v1/completions", "status": 200, "prompt_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"], "reasoning_tokens": 0, "outcome": "stop",
    }  # fmt: skip


def test_a_clients_request_id_is_taken_if_it_is_harmless(server: Server) -> None:
    for given, is_taken in (("my-id_1.2", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("é", False)):
        answer = server.http.get("/v1/models", headers={"x-request-id": given.encode()})
        assert (answer.headers["x-request-id"] == given) == is_taken
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", answer.headers["x-request-id"])


CANARY = "kanarienvogel"


def test_prompts_answers_and_keys_are_in_no_log_metric_or_error(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """T20, N8: grep for canaries in all that leaves the server besides answers."""
    caplog.set_level(logging.DEBUG)
    secret = f"operators-{CANARY}-key"
    server = start(api_keys=(secret,))
    server.says(f"{CANARY} said")
    headers = {"x-api-key": secret}
    messages = [*server.messages, {"role": "user", "content": CANARY}, *server.messages]
    errors = []
    for path, body in (
        ("/v1/chat/completions", {"messages": messages}),
        ("/v1/chat/completions", {"messages": messages, "stream": True}),
        ("/v1/chat/completions", {"messages": messages, "temperature": -1}),
        ("/v1/completions", {"prompt": f"{CANARY} {server.hi}"}),
        ("/v1/completions", {"prompt": CANARY * 100_000}),
        ("/v1/completions", {"prompt": CANARY, "n": 0}),
        ("/v1/completions", {"prompt": [CANARY, 7]}),
        ("/tokenize", {"prompt": CANARY, "messages": messages}),
    ):
        answer = server.http.post(path, headers=headers, json={"model": "test", **body})
        if answer.status_code != 200:
            errors.append(answer.text)
    errors += [server.http.get("/v1/models", headers={"x-api-key": f"{secret}x"}).text]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: server.http.get("/v1/models", headers={"Authorization": secret}), range(4)))
    assert len(errors) >= 5
    metrics = server.http.get("/metrics", headers=headers).text
    logged = "\n".join(render(JsonFormatter(), caplog) + render(PrettyFormatter(), caplog))
    assert "/v1/chat/completions" in logged
    assert "freehold:requests_total" in metrics
    for text in (*errors, metrics, logged):
        assert CANARY not in text
