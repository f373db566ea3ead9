"""Hundreds of wrong requests: each is refused as the client's mistake, by the field's name, and harms nobody."""

import itertools
import json
import logging
import socket
import time
from typing import Any

import pytest
from tests.server.running import Server, Start

from freehold.serve.endpoints import ENDPOINTS

HUGE = 2**63
WRONG_KIND: dict[str, list[Any]] = {
    "number": [True, "1", [], {}, "NaN"],
    "integer": [True, "1", [], {}, 1.5],
    "boolean": [0, 1, "true", [], {}],
    "text": [1, True, [], {}],
}
BOUNDS: dict[str, tuple[str, list[Any]]] = {
    "temperature": ("number", [-1, -1e-9, 100.1, 1e30]),
    "top_p": ("number", [-0.1, 1.1, 2]),
    "min_p": ("number", [-0.1, 1.1]),
    "top_k": ("integer", [-2, HUGE, 10**30]),
    "n": ("integer", [0, -1, 17, HUGE, 10**30]),
    "seed": ("integer", [-1, 2**64, 10**30]),
    "max_tokens": ("integer", [-1, HUGE, 10**30]),
    "min_tokens": ("integer", [-1, HUGE, 10**30]),
    "presence_penalty": ("number", [-2.1, 2.1, 1e30]),
    "frequency_penalty": ("number", [-2.1, 2.1, -1e30]),
    "repetition_penalty": ("number", [0, -1, 0.001, 100.1, 1e30]),
    "prompt_logprobs": ("integer", [-1, 21, HUGE, 10**30]),
    "logit_bias": (
        "text",
        [
            *({"x": 1}, {"": 1}, {"-1": 1}, {"1.0": 1}, {"1" * 30: 1}, {str(49152 + 65536): 1}, {"1": 101}),
            *({"1": -101}, {"1": "5"}, {"1": None}, {"1": True}, {"1": 1, "01": 2}, {str(i): 1 for i in range(1025)}),
        ],
    ),
    "allowed_token_ids": ("text", [5, [-1], [49152 + 65536], [1.5], ["1"], [True], [None], [0] * 65537]),
    "ignore_eos": ("boolean", []),
    "stream": ("boolean", []),
    "return_token_ids": ("boolean", []),
    "model": ("text", []),
    "cache_salt": ("text", ["", "x" * 257]),
    "service_tier": ("text", ["", "fast", "Flex", "scale"]),
    "priority": ("integer", [-101, 101, HUGE, 10**30]),
    "stop": ("integer", [1, "", ["a", ""], ["a"] * 5, ["x" * 257], "é" * 129, [1], [None], [["a"]]]),
    "stop_token_ids": ("text", [5, [-1], [49152 + 65536], [1.5], ["1"], [True], [None], [1] * 257]),
    "stream_options": ("text", ["x", {"include_usage": 1}, {"include_obfuscation": True}, {"what": 1}]),
}
BOTH = [
    (field, value)
    for field, (kind, values) in BOUNDS.items()
    for value in [*(v for v in WRONG_KIND[kind] if not (field == "stop" and v in ("1", []))), *values]
    if not (field in {"stop_token_ids"} and value == [])
    if not (field in {"stream_options", "logit_bias"} and value == {})
]
UNSUPPORTED = {
    "audio": {"voice": "x"},
    "best_of": 2,
    "function_call": "auto",
    "functions": [{}],
    "modalities": ["audio"],
    "prediction": {},
    "reasoning_effort": "high",
    "store": True,
    "suffix": "x",
    "tool_choice": "required",
    "tools": [{"type": "function"}],
    "web_search_options": {},
    "verbosity": "high",
    "thinking_token_budget": 5,
}
CHAT_ONLY: list[tuple[str, Any]] = [
    *(("max_completion_tokens", value) for value in [*WRONG_KIND["integer"], 0, -1, HUGE]),
    *(("add_generation_prompt", value) for value in WRONG_KIND["boolean"]),
    *(("continue_final_message", value) for value in WRONG_KIND["boolean"]),
    *(("chat_template_kwargs", value) for value in [1, "x", [], True]),
    *(("max_tokens", value) for value in [0]),
    *(("logprobs", value) for value in WRONG_KIND["boolean"]),
    *(("top_logprobs", value) for value in [*WRONG_KIND["integer"], -1, 21, HUGE, 1]),
    *(("echo", value) for value in [True, "x"]),
    *(("prompt", value) for value in ["x", [1]]),
]
TEXT_ONLY: list[tuple[str, Any]] = [
    *(("logprobs", value) for value in [*WRONG_KIND["integer"], -1, 6, HUGE]),
    *(("top_logprobs", value) for value in [1, 5, True]),
    *(("echo", value) for value in WRONG_KIND["boolean"]),
    *(("messages", value) for value in [[], [{"role": "user", "content": "Hi"}]]),
]
MESSAGES: list[Any] = [
    None, [], {}, "Hi", 1, True, [None], ["Hi"], [1], [[]], [{}],
    [{"content": "Hi"}], [{"role": None, "content": "Hi"}], [{"role": "king", "content": "Hi"}], [{"role": 1}],
    [{"role": "user", "content": 1}], [{"role": "user", "content": {}}], [{"role": "user", "content": True}],
    [{"role": "user", "content": [1]}], [{"role": "user", "content": [None]}], [{"role": "user", "content": [{}]}],
    [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "text", "text": 1}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
    [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
    [{"role": "user", "content": "Hi", "wild": 1}], [{"role": "user", "content": "Hi", "name": 1}],
    [{"role": "assistant", "tool_calls": 1}, {"role": "user", "content": "x"}],
    [{"role": "assistant", "tool_calls": [{}]}, {"role": "user", "content": "x"}],
    [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}, {"role": "user", "content": "x"}],
    [{"role": "assistant", "tool_calls": [{"id": "1", "type": "magic", "function": {}}]}],
    [{"role": "assistant", "function_call": {"name": "x"}}, {"role": "user", "content": "x"}],
    [{"role": "user", "content": "Hi"}, 5],
]  # fmt: skip


def check_refused(server: Server, response: Any, field: str) -> None:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(field), error
    assert field in error["message"]
    assert response.elapsed.total_seconds() < 20
    assert "retry-after" not in response.headers


def send(server: Server, surface: str, **fields: Any) -> Any:
    return server.chat(**fields) if surface == "chat" else server.complete(**fields)


@pytest.fixture(autouse=True)
def next_good_request_is_fine(server: Server) -> Any:
    yield
    assert server.chat().json()["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize("surface", ["chat", "completions"])
@pytest.mark.parametrize(("field", "value"), BOTH, ids=lambda value: ascii(value)[:30])
def test_fields_of_both_surfaces(server: Server, surface: str, field: str, value: Any) -> None:
    check_refused(server, send(server, surface, **{field: value}), field)


@pytest.mark.parametrize("field", [*BOUNDS, "max_completion_tokens", "add_generation_prompt", "chat_template_kwargs"])
def test_null_is_absent(server: Server, field: str) -> None:
    assert server.chat(**{field: None}).json()["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize("surface", ["chat", "completions"])
@pytest.mark.parametrize(("field", "value"), UNSUPPORTED.items())
def test_unsupported_fields_are_refused_unless_neutral(server: Server, surface: str, field: str, value: Any) -> None:
    check_refused(server, send(server, surface, **{field: value}), field)
    assert send(server, surface, **{field: None}).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user", "me"), ("metadata", {"a": "b"}), ("safety_identifier", "x"), ("prompt_cache_key", "k"),
        ("presence_penalty", 0), ("presence_penalty", 0.0), ("repetition_penalty", 1.0), ("logit_bias", {}),
        ("tools", []), ("tool_choice", "auto"), ("tool_choice", "none"), ("parallel_tool_calls", True),
        ("response_format", {"type": "text"}), ("store", False), ("logprobs", False), ("top_logprobs", 0),
        ("n", 1), ("min_tokens", 0), ("frequency_penalty", 0), ("repetition_penalty", 1),
        ("service_tier", "auto"), ("never_heard_of", None), ("stream_options", None),
    ],
)  # fmt: skip
def test_neutral_and_ignored_fields_are_accepted(server: Server, field: str, value: Any) -> None:
    assert server.chat(**{field: value}).status_code == 200


@pytest.mark.parametrize("surface", ["chat", "completions"])
@pytest.mark.parametrize("name", ["wild", "Temperature", "max-tokens", "a" * 1000, "é", "logprob\n"])
def test_unknown_fields_are_refused(server: Server, surface: str, name: str) -> None:
    response = send(server, surface, **{name: 1})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "unknown_field"
    assert response.json()["error"]["param"] == name[:60]


@pytest.mark.parametrize(("field", "value"), CHAT_ONLY, ids=lambda value: ascii(value)[:30])
def test_chat_fields(server: Server, field: str, value: Any) -> None:
    check_refused(server, server.chat(**{field: value}), field)


@pytest.mark.parametrize(("field", "value"), TEXT_ONLY, ids=lambda value: ascii(value)[:30])
def test_completions_fields(server: Server, field: str, value: Any) -> None:
    check_refused(server, server.complete(**{field: value}), field)


@pytest.mark.parametrize("messages", MESSAGES, ids=lambda value: ascii(value)[:40])
@pytest.mark.parametrize("stream", [False, True])
def test_messages(server: Server, messages: Any, stream: bool) -> None:
    check_refused(server, server.chat(messages=messages, stream=stream), "messages")


@pytest.mark.parametrize(("path", "field"), [("/v1/chat/completions", "messages"), ("/v1/completions", "prompt")])
def test_missing_required_field(server: Server, path: str, field: str) -> None:
    check_refused(server, server.post(path), field)


def test_stream_options_without_stream(server: Server) -> None:
    check_refused(server, server.chat(stream_options={"include_usage": True}), "stream_options")


def test_forms_that_no_allowed_token_has(server: Server) -> None:
    """It shows only when the answer is generated, and is the request's contradiction all the same."""
    fields = {"response_format": {"type": "json_object"}, "allowed_token_ids": [1]}
    response = server.chat(**fields)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (400, "mask_empty", "invalid_request_error")
    assert "allowed_token_ids" in error["message"]
    assert '"code":"mask_empty"' in server.chat(stream=True, **fields).text


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"}", b"nil", b"null", b"[]", b"1", b'"x"', b"{'a': 1}", b'{"a": 1,}', b"\xff\xfe", b"\x00",
        b"\xef\xbb\xbf{}", b'{"model": "\xff"}', b'{"model": "\\ud800"}', b'{"temperature": NaN}',
        b'{"temperature": Infinity}', b'{"temperature": 1e999, "messages": []}', b'{"a": "' + b"x" * 100_000,
        b"[" * 100_000, b'{"a":' * 50_000, b'{"messages": ' + b"[" * 65 + b"]" * 65 + b"}",
    ],
    ids=lambda body: ascii(body[:24]),
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_bodies_that_are_no_request(server: Server, path: str, body: bytes) -> None:
    response = server.http.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_brackets_in_strings_are_not_nesting(server: Server) -> None:
    server.says("ok")
    assert server.chat(user="[{" * 500 + '"\\"[' * 100).status_code == 200


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('{"prompt": "a", "temperature": %s}', "temperature"),
        ('{"seed":%s,"prompt":"NaN: Infinity"}', "seed"),
        ('{"prompt": "a", "logit_bias": {"5": 1, "6": %s}}', None),
        ('{"prompt": "a", "stop_token_ids": [1, %s]}', None),
        ("%s", None),
    ],
)
def test_numbers_that_json_has_no_word_for_are_named(server: Server, body: str, param: str | None, word: str) -> None:
    """Some encoders write them, Python's among them."""
    response = server.http.post("/v1/completions", content=body % word, headers={"content-type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_json", param)
    assert f"is {word.lstrip('-')}, which is no number in JSON" in error["message"]
    assert (param or "the body at byte") in error["message"]


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "a" * 500]
)
def test_content_type(server: Server, kind: str) -> None:
    content = json.dumps({"model": "test", "messages": server.messages}).encode()
    response = server.http.post("/v1/chat/completions", content=content, headers={"content-type": kind})
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")
    with_charset = {"content-type": "Application/JSON; charset=utf-8"}
    assert server.http.post("/v1/chat/completions", content=content, headers=with_charset).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("content-type", "application/json; charset=utf-16")], 415),
        ([("content-type", 'application/json; charset="latin-1"')], 415),
        ([("content-type", "application/json"), ("content-encoding", "gzip")], 415),
        ([("content-type", "application/json"), ("content-encoding", "br, gzip")], 415),
        ([("content-type", "application/json"), ("content-type", "application/json")], 400),
        ([("content-type", "application/json"), ("content-type", "text/plain")], 400),
        ([("content-type", 'application/json; charset="UTF-8"'), ("content-encoding", "identity")], 200),
    ],
)
def test_headers_that_contradict_the_body_or_each_other(
    server: Server, headers: list[tuple[str, str]], status: int
) -> None:
    content = json.dumps({"model": "test", "messages": server.messages}).encode()
    response = server.http.post("/v1/chat/completions", content=content, headers=headers)
    assert response.status_code == status
    if status != 200:
        assert response.json()["error"]["code"] in {"unsupported_media_type", "invalid_header"}


@pytest.mark.parametrize("chunked", [False, True])
def test_body_larger_than_allowed(start: Start, chunked: bool) -> None:
    server = start(max_body_bytes=1000)
    body = b'{"user": "' + b"x" * 1000 + b'"}'
    content: Any = iter([body[:600], body[600:]]) if chunked else body
    response = server.http.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
    assert "1000" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/none", 404), ("POST", "/v1", 404), ("GET", "/v1/models/none", 404), ("GET", "/v1/models/a/b", 404),
        ("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/models", 405), ("POST", "/livez", 405),
        ("GET", "//v1/models", 404), ("GET", "/v1/%2e%2e/%2e%2e/etc/passwd", 404), ("GET", "/%00%0a%1b[31m", 404),
    ],
)  # fmt: skip
def test_paths_and_methods(server: Server, method: str, path: str, status: int) -> None:
    response = server.http.request(method, path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]


def test_unknown_paths_are_told_the_known_ones_and_wrong_methods_the_right_ones(server: Server) -> None:
    message = server.http.get("/v1/nothing").json()["error"]["message"]
    told = message.partition("this server has ")[2].split(", ")
    assert told == [f"{endpoint.method} {endpoint.template}" for endpoint in ENDPOINTS]
    assert {"GET /v1/files", "POST /v1/files", "GET /v1/models/{model}"} <= set(told)
    message = server.http.put("/v1/files").json()["error"]["message"]
    assert set(message.partition("it takes ")[2].split(", ")) == {"GET", "HEAD", "POST"}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::2]", "10.0.0.1"]
)
def test_foreign_host_names_do_no_work(server: Server, host: str) -> None:
    body = {"model": "test", "messages": server.messages}
    response = server.http.post("/v1/chat/completions", json=body, headers={"host": host})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8000"])
def test_own_host_names(server: Server, host: str) -> None:
    assert server.http.get("/v1/models", headers={"host": host}).status_code == 200


def exchange(server: Server, *parts: bytes) -> bytes:
    """What a raw connection answers before it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        received = b""
        try:
            for part in parts:
                connection.sendall(part)
            while piece := connection.recv(65536):
                received += piece
        except ConnectionError:
            pass  # closed while we were still sending
        return received


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(8000)) + b"\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"BREW /pot HTCPCP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    ],
)
def test_heads_that_are_no_request(server: Server, head: bytes) -> None:
    answer = exchange(server, head)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    cut = [head[start : start + 3000] for start in range(0, len(head), 3000)]
    answer = exchange(server, *cut)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("second", [b"localhost", b"evil.example", b""])
def test_two_host_headers(server: Server, second: bytes) -> None:
    head = b"GET /v1/models HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nHost: " + second + b"\r\n\r\n"
    answer = exchange(server, head)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"invalid_header" in answer


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"temperature": "secret"}, "refused=invalid_type field=temperature "),
        ({"messages": [{"role": "user", "content": "secret " * 20000}]}, "refused=context_length_exceeded"),
        ({"secret\n": 1}, "refused=unknown_field field="),
        ({"model": "secret"}, "refused=model_not_found"),
    ],
)
def test_the_log_says_why_a_request_was_refused(
    server: Server, caplog: pytest.LogCaptureFixture, change: dict[str, Any], reason: str
) -> None:
    caplog.set_level(logging.INFO)
    body = {"messages": [{"role": "user", "content": "Hi"}], **change}
    response = server.http.post("/v1/chat/completions", json=body)
    assert response.status_code in {400, 404}
    line = access_line(caplog, response.headers["x-request-id"])
    assert reason in line
    assert "\n" not in line
    assert ("secret" in line) == ("secret\n" in change), "values stay out"


def access_line(caplog: pytest.LogCaptureFixture, request_id: str) -> str:
    """The one line of a request in the access log. It is written when the answer has been sent."""
    deadline_s = time.monotonic() + 10
    while True:
        messages = (record.getMessage() for record in caplog.records if record.name == "freehold.access")
        lines = [message for message in messages if message.startswith(request_id)]
        if lines or time.monotonic() > deadline_s:
            (line,) = lines
            return line
        time.sleep(0.001)


def test_errors_name_the_way_out(server: Server) -> None:
    message = server.http.get("/none").json()["error"]["message"]
    assert "/v1/chat/completions" in message
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    message = server.http.post("/v1/chat/completions", json={"messages": image}).json()["error"]["message"]
    assert "text parts only" in message
    message = server.http.get("/v1/models", headers={"host": "evil.example"}).json()["error"]["message"]
    assert "evil.example" in message
    assert "--host" in message


def test_table_is_large() -> None:
    num_cases = 2 * len(BOTH) + 2 * len(UNSUPPORTED) + len(CHAT_ONLY) + len(TEXT_ONLY) + 2 * len(MESSAGES)
    assert num_cases > 300
    assert len(set(itertools.chain(BOUNDS, UNSUPPORTED))) > 35
