"""What the Messages API refuses, by whom and in which shape."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from tests.server.anthropic_client import NOW, TOOLS, asked, client, close_clients, stream
from tests.server.running import Server, Start

from freehold.backends.script import Gate, NotFinite
from freehold.serve import reply


@pytest.fixture(scope="module", autouse=True)
def closing() -> Iterator[None]:
    yield
    close_clients()


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
USED = {"type": "tool_use", "id": "1", "name": "now", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "1"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"stop_sequences": [""]}, r"stop_sequences\[0\]"),
        ({"stop_sequences": ["a"] * 5}, "stop_sequences"),
        ({"temperature": -1}, "temperature"),
        ({"wild": 1}, "'wild'"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, r"messages\[0\].role"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, r"messages\[0\].content\[0\].type"),
        ({"messages": [{"role": "user", "content": [USED]}]}, r"messages\[0\].content holds a block 'tool_use'"),
        ({"messages": [{"role": "assistant", "content": [RESULT]}]}, r"messages\[0\].content holds a block"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, r"tools\[0\]"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, r"tools\[0\].name"),
        ({"tools": [NOW, NOW]}, r"tools\[1\].name"),
        ({"tools": [{"name": "x", "input_schema": {"type": "string"}}]}, r"tools\[0\].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 500}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "thinking.budget_tokens is for models that reason"),
        ({"service_tier": "fast"}, "service_tier"),
        ({"cache_control": {"type": "eternal"}}, "cache_control.type"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": 5}}}}, "output_config.format.schema"),
        ({"output_config": {"effort": "high"}}, "output_config.effort is for models that reason"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("streams", [False, True])
def test_wrong_requests_are_refused_by_name(server: Server, fields: Any, named: str, streams: bool) -> None:
    with pytest.raises(anthropic.BadRequestError, match=named) as caught:
        client(server).post("/v1/messages", cast_to=object, body={**asked(server), "stream": streams, **fields})
    check_shape(caught.value, "invalid_request_error")


def check_shape(error: anthropic.APIStatusError, kind: str) -> None:
    body: Any = error.body
    assert set(body) == {"type", "error", "request_id"}
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert set(body["error"]) == {"type", "message"}
    assert error.request_id == body["request_id"] == error.response.headers["x-request-id"]


def test_errors_of_other_kinds(start: Start) -> None:
    server = start(max_body_bytes=2000, api_keys=("sk-right",))
    made = client(server)
    with pytest.raises(anthropic.AuthenticationError) as caught:
        made.messages.create(**asked(server))
    check_shape(caught.value, "authentication_error")
    known = made.with_options(api_key="sk-right")
    assert known.messages.create(**asked(server)).role == "assistant"
    with pytest.raises(anthropic.NotFoundError) as missing:
        known.messages.create(**asked(server, model="other"))
    check_shape(missing.value, "not_found_error")
    with pytest.raises(anthropic.APIStatusError) as large:
        known.messages.create(**asked(server, system="x" * 3000))
    check_shape(large.value, "request_too_large")
    with pytest.raises(anthropic.NotFoundError) as path:
        known.post("/v1/messages/batches", cast_to=object, body={})
    check_shape(path.value, "not_found_error")
    server.service.load.is_draining = True
    with pytest.raises(anthropic.APIStatusError) as down:
        known.messages.create(**asked(server))
    assert down.value.status_code == 503
    check_shape(down.value, "overloaded_error")


def test_an_error_in_a_stream_is_an_event(server: Server) -> None:
    server.says("before", NotFinite(), "never")
    events = client(server).messages.create(**asked(server), stream=True)
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(events)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "api_error")


def test_silence_is_broken_by_pings(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "HEARTBEAT_S", 0.05)
    gate = threading.Event()
    server.says("a", Gate(gate), "b")
    threading.Timer(0.3, gate.set).start()
    with server.http.stream("POST", "/v1/messages", json=asked(server, stream=True)) as response:
        blocks = response.read().decode().split("\n\n")[:-1]
    events = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
    assert all(event["event"] == json.loads(event["data"])["type"] for event in events)
    assert sum(event["event"] == "ping" for event in events) > 1
    assert stream(server).content[0].model_dump()["text"] == "ab"
