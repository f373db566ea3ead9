"""The Messages API, as the official client sees it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.conftest import starting
from tests.server.families import QWEN, family
from tests.server.running import Server, Start

from freehold.backends.script import Gate, NotFinite
from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.files.vocabulary import TextAssets
from freehold.serve import reply

WEATHER: Any = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
NOW: Any = {"name": "now", "input_schema": {"type": "object", "properties": {}}}
TOOLS = [WEATHER, NOW]


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


OSLO = call("weather", '{"city": "Oslo", "days": 2}')
THOUGHT = "<think>\nThe user greets me.\n</think>\n\n"


@pytest.fixture(scope="module")
def qwen(text: TextAssets) -> Iterator[Server]:
    """A model that thinks and calls tools."""
    with starting(text) as start:
        yield start(family(text, QWEN, added=("<think>", "</think>")))


_clients: dict[str, anthropic.Anthropic] = {}


def client(server: Server) -> anthropic.Anthropic:
    """The official client; one a server, as making one takes longer than a request."""
    if server.url not in _clients:
        made = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)
        _clients[server.url] = made
    return _clients[server.url]


@pytest.fixture(scope="module", autouse=True)
def close_clients() -> Iterator[None]:
    yield
    for made in _clients.values():
        made.close()
    _clients.clear()


def asked(server: Server, **fields: Any) -> Any:
    return {"model": "test", "max_tokens": 500, "messages": server.messages, **fields}


def create(server: Server, **fields: Any) -> anthropic.types.Message:
    message: anthropic.types.Message = client(server).messages.create(**asked(server, **fields))
    return message


def stream(server: Server, **fields: Any) -> anthropic.types.Message:
    """The message that the client makes of a stream, whose events are well-formed."""
    check_events(list(client(server).messages.create(**asked(server, **fields), stream=True)))
    with client(server).messages.stream(**asked(server, **fields)) as streamed:
        message: anthropic.types.Message = streamed.get_final_message()
    return message


def check_events(raw: list[Any]) -> None:
    assert [raw[0].type, raw[-2].type, raw[-1].type] == ["message_start", "message_delta", "message_stop"]
    start = raw[0].message
    assert (start.content, start.stop_reason, start.role) == ([], None, "assistant")
    assert start.usage.output_tokens == 0
    open_index, num_blocks = None, 0
    for event in raw[1:-2]:
        if event.type == "content_block_start":
            assert (open_index, event.index) == (None, num_blocks)
            open_index, num_blocks = event.index, num_blocks + 1
        elif event.type == "content_block_delta":
            assert event.index == open_index
        else:
            assert (event.type, event.index) == ("content_block_stop", open_index)
            open_index = None
    assert open_index is None


def lasting(message: anthropic.types.Message) -> dict[str, Any]:
    """What doesn't differ between two answers: ids aside, and what was reused of the prompt."""
    dumped = message.model_dump()
    usage = dumped.pop("usage")
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    ids = [block.pop("id") for block in dumped["content"] if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)
    for block in dumped["content"]:
        block.pop("parsed_output", None)
    counts = {"prompt": prompt, "output": usage["output_tokens"], "details": usage["output_tokens_details"]}
    return {**dumped, "id": None, **counts}


def both(server: Server, **fields: Any) -> anthropic.types.Message:
    """An answer that comes out the same streamed and whole."""
    message = create(server, **fields)
    assert lasting(stream(server, **fields)) == lasting(message)
    return message


def test_an_answer(server: Server) -> None:
    ids = server.says("The sky is blue.")
    message = both(server)
    assert (message.type, message.role, message.model) == ("message", "assistant", "test")
    assert [block.model_dump(exclude_none=True) for block in message.content] == [
        {"type": "text", "text": "The sky is blue."}
    ]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens == len(ids)
    assert message._request_id is not None
    assert message._request_id.startswith("req-")


SCENES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("Grüße aus 東京 🦜👩‍👩‍👧", {}),
    "nothing": ("", {}),
    "thought": (THOUGHT + "Hello!", {}),
    "only thought": (THOUGHT, {}),
    "cut thought": (THOUGHT + "Hello!", {"max_tokens": 4}),
    "call": (OSLO, {"tools": TOOLS}),
    "thought, text, call": (THOUGHT + "Let me look. " + OSLO, {"tools": TOOLS}),
    "two calls": (OSLO + "\n" + call("now", "{}"), {"tools": TOOLS}),
    "text between calls": (OSLO + " and " + call("now", "{}"), {"tools": TOOLS}),
    "call of no tool": (call("other", "{}"), {"tools": TOOLS}),
    "call without tools": (OSLO, {}),
    "stop": ("one two three", {"stop_sequences": ["two"]}),
    "stop after a thought": (THOUGHT + "one user two", {"stop_sequences": ["user"]}),
    "stop in a call": (OSLO, {"tools": TOOLS, "stop_sequences": ["Oslo"]}),
}


@pytest.mark.parametrize("scene", SCENES)
def test_streams_are_folds(qwen: Server, scene: str) -> None:
    said, fields = SCENES[scene]
    qwen.says(said)
    both(qwen, **fields)


@pytest.mark.parametrize("scene", ["thought, text, call", "two calls", "text between calls"])
def test_streams_are_folds_wherever_they_are_cut(qwen: Server, scene: str) -> None:
    """Calls that were cut short keep what is complete of their input, as the client's reading of the stream does."""
    said, fields = SCENES[scene]
    for limit in range(1, len(qwen.says(said))):
        message = both(qwen, max_tokens=limit, **fields)
        assert message.stop_reason == "max_tokens"
        assert message.usage.output_tokens == limit


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(
        st.sampled_from([THOUGHT, OSLO, call("now", "{}"), "word ", "<tool_call>", "</think>", "{", "🦜", "\n"]),
        max_size=6,
    ),
    stop=st.lists(st.sampled_from(["word", "<", "🦜", "\n\n"]), max_size=2),
    limit=st.integers(1, 60),
)
def test_streams_are_folds_of_anything(qwen: Server, pieces: list[str], stop: list[str], limit: int) -> None:
    qwen.says(*pieces)
    message = both(qwen, tools=TOOLS, stop_sequences=stop, max_tokens=limit)
    assert message.usage.output_tokens <= limit


def test_thinking_and_calls_are_blocks(qwen: Server) -> None:
    said, fields = SCENES["thought, text, call"]
    qwen.says(said)
    thought, text, used = both(qwen, **fields).content
    assert (thought.type, text.type, used.type) == ("thinking", "text", "tool_use")
    assert thought.thinking == "The user greets me."
    assert thought.signature
    assert text.text == "Let me look."
    assert (used.name, used.input) == ("weather", {"city": "Oslo", "days": 2})


@pytest.mark.parametrize(
    ("said", "fields", "reason", "sequence"),
    [
        ("one two", {}, "end_turn", None),
        ("one two", {"max_tokens": 1}, "max_tokens", None),
        ("one two", {"stop_sequences": [" two"]}, "stop_sequence", " two"),
        (OSLO, {"tools": TOOLS}, "tool_use", None),
        (OSLO, {"tools": TOOLS, "max_tokens": 20}, "max_tokens", None),
    ],
)
def test_why_an_answer_ends(qwen: Server, said: str, fields: dict[str, Any], reason: str, sequence: str | None) -> None:
    qwen.says(said)
    message = both(qwen, **fields)
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)


def test_an_answer_that_fills_the_context(start: Start) -> None:
    server = start(engine={"max_model_len": 64})
    server.says("word", ends=False)
    assert both(server, max_tokens=1000).stop_reason == "model_context_window_exceeded"


def test_tokens_of_thinking_are_told(qwen: Server) -> None:
    ids = qwen.says(THOUGHT + "Hello!")
    usage = both(qwen).usage
    assert usage.output_tokens == len(ids)
    assert usage.output_tokens_details is not None
    assert 5 < usage.output_tokens_details.thinking_tokens < len(ids)


def test_what_was_reused_of_the_prompt_is_told(server: Server) -> None:
    ids = server.says("Well.")
    prompt = [{"role": "user", "content": f"{server.hi} {'again ' * 50}"}]
    first, second = (create(server, messages=prompt).usage for _ in range(2))
    assert first.output_tokens == len(ids)
    assert second.cache_read_input_tokens == first.input_tokens + (first.cache_read_input_tokens or 0) - 1
    assert second.input_tokens == 1, "the last token of a prompt is always computed"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_forced_calls_match_the_schema_whatever_the_model_says(server: Server, choice: Any) -> None:
    server.says("I would rather tell a story about a fox.")
    message = both(server, tools=TOOLS, tool_choice={**choice, "disable_parallel_tool_use": True}, max_tokens=300)
    (used,) = message.content
    assert used.type == "tool_use"
    assert used.name in (["weather"] if choice["type"] == "tool" else ["weather", "now"])
    if message.stop_reason == "tool_use" and used.name == "weather":
        assert isinstance(used.input["city"], str)


def test_an_answer_of_a_schema(server: Server) -> None:
    server.says("No braces from me.")
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    message = both(server, output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=100)
    (block,) = message.content
    assert block.type == "text"
    assert json.loads(block.text)["a"] in ("x", "y")


MARK = {"type": "ephemeral"}


def marked(text: str, **mark: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {**MARK, **mark}}


LONG = "Some long instructions. " * 40


@pytest.mark.parametrize(
    "fields",
    [
        {"system": [marked(LONG)]},
        {"system": [{"type": "text", "text": LONG}, marked("And more."), {"type": "text", "text": "Not this."}]},
        {"tools": [{**WEATHER, "description": LONG}, {**NOW, "cache_control": MARK}]},
        {"before": {"role": "user", "content": [marked(LONG), {"type": "text", "text": "Not this."}]}},
    ],
    ids=["system", "a part of the system", "tools", "a part of the messages"],
)
def test_what_stays_cached_is_told(qwen: Server, fields: dict[str, Any]) -> None:
    """What is computed to be kept is what later prompts of the same beginning read."""
    qwen.says("ok")
    before = [fields["before"], {"role": "assistant", "content": "Yes."}] if "before" in fields else []
    body = {**{name: value for name, value in fields.items() if name != "before"}, "max_tokens": 1}

    def usage(question: str) -> anthropic.types.Usage:
        turns: list[Any] = [*before, {"role": "user", "content": f"{qwen.hi} {question}"}]
        message = create(qwen, messages=turns, **body, extra_body={"seed": 1})
        return message.usage

    first, second = usage("A whale is what?"), usage("Is Bern a town?")
    total = first.input_tokens + (first.cache_creation_input_tokens or 0) + (first.cache_read_input_tokens or 0)
    created = first.cache_creation_input_tokens or 0
    assert 80 < created + (first.cache_read_input_tokens or 0) < total
    assert first.input_tokens > 5
    assert (second.cache_read_input_tokens or 0) >= created - 32, "all but what fills no block"
    assert (second.cache_creation_input_tokens or 0) <= 32


def test_marks_at_the_end_keep_all(qwen: Server) -> None:
    qwen.says("ok")
    turns: list[Any] = [{"role": "user", "content": [marked(f"{qwen.hi} {LONG} one", ttl="1h")]}]
    used = both(qwen, messages=turns).usage
    assert used.input_tokens == 0
    turns = [{"role": "user", "content": f"{qwen.hi} {LONG} two"}]
    assert create(qwen, messages=turns, cache_control=MARK).usage.input_tokens == 0
    assert create(qwen, messages=turns).usage.input_tokens == 1, "without a mark nothing is said to be kept"


def test_a_mark_changes_no_token(qwen: Server) -> None:
    qwen.says("Hello there.")
    plain = create(qwen, system=LONG, messages=qwen.messages)
    kept = create(qwen, system=[marked(LONG)], messages=qwen.messages)
    assert lasting(kept) == lasting(plain)


def test_no_call(qwen: Server) -> None:
    qwen.says(OSLO)
    message = both(qwen, tools=TOOLS, tool_choice={"type": "none"})
    assert [block.type for block in message.content] == ["text"]
    message = both(qwen, tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [block.type for block in message.content] == ["tool_use"]


def test_a_conversation_with_tools_goes_on(qwen: Server) -> None:
    """What the client got is what it sends back."""
    said, fields = SCENES["thought, text, call"]
    qwen.says(said)
    first = create(qwen, **fields)
    used = first.content[-1]
    assert used.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": used.id, "content": [{"type": "text", "text": "Sunny."}]}
    went_on = [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    turns: list[Any] = [*qwen.messages, *went_on]
    qwen.says("It is sunny.")
    answer = both(qwen, messages=turns, **fields)
    assert answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) > first.usage.input_tokens


def test_the_assistants_turn_is_continued(server: Server) -> None:
    server.says("ly sky.")
    turns = [*server.messages, {"role": "assistant", "content": "The love"}]
    assert both(server, messages=turns).content[0].model_dump()["text"] == "ly sky."
    closed = create(server, messages=server.messages).usage.input_tokens
    assert create(server, messages=turns).usage.input_tokens < closed + 20


def test_seeds_are_told_and_taken(server: Server) -> None:
    raw = client(server).messages.with_raw_response.create(**asked(server, extra_body={"seed": 7}))
    assert raw.headers["x-seed"] == "7"
    assert raw.headers["request-id"] == raw.headers["x-request-id"]


def test_thinking_can_be_turned_off_and_bounded(qwen: Server) -> None:
    qwen.says("Hello!")
    thinking = count(qwen, messages=qwen.messages)
    assert count(qwen, messages=qwen.messages, thinking={"type": "disabled"}) > thinking, "the template closes it"
    assert count(qwen, messages=qwen.messages, thinking={"type": "adaptive"}) == thinking
    added = qwen.tokenizer.vocabulary.added
    qwen.says(added["<think>"].token_id, "word " * 50)
    message = both(qwen, thinking={"type": "enabled", "budget_tokens": 10}, max_tokens=30)
    assert message.usage.output_tokens_details is not None
    assert message.usage.output_tokens_details.thinking_tokens == 12, "the tags are counted"
    assert [block.type for block in message.content] == ["thinking", "text"]


def count(server: Server, **fields: Any) -> int:
    num: int = client(server).messages.count_tokens(model="test", **fields).input_tokens
    return num


def test_tokens_are_counted_as_they_are_charged(qwen: Server) -> None:
    qwen.says("ok")
    for fields in (
        {}, {"system": "Be brief."}, {"system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
        {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": {"type": "any"}},
        {"messages": [*qwen.messages, {"role": "assistant", "content": "Well"}]},
    ):  # fmt: skip
        body = {"messages": qwen.messages, **fields}
        usage = create(qwen, **body).usage
        assert count(qwen, **body) == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_a_prompt_that_fits_nowhere_can_be_counted(start: Start) -> None:
    server = start(engine={"max_model_len": 64})
    prompt: Any = [{"role": "user", "content": "word " * 100}]
    assert count(server, messages=prompt) > 100
    with pytest.raises(anthropic.BadRequestError, match="context"):
        create(server, messages=prompt)


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


def test_the_beta_client_and_what_does_nothing(server: Server) -> None:
    server.says("ok")
    message = client(server).beta.messages.create(
        **asked(server), betas=["none-2025-01-01"], metadata={"user_id": "me"}, service_tier="standard_only"
    )
    assert message.content[0].model_dump()["text"] == "ok"


@pytest.fixture(scope="module")
def real(text: TextAssets, smollm2_path: Path) -> Iterator[Server]:
    """SmolLM2 with its weights."""
    config = EngineConfig(model_path=smollm2_path, kv_cache_bytes=64 << 20, max_model_len=1024)
    server = Server(text, config, handle=Engine.start(config))
    yield server
    server.stop()


QUESTION: Any = [{"role": "user", "content": "Name three rivers."}]


@pytest.mark.parametrize(
    "fields",
    [
        {"extra_body": {"temperature": 0}},
        {"extra_body": {"seed": 5}, "system": "Be brief."},
        {"extra_body": {"seed": 6}, "stop_sequences": ["\n", "."]},
        {"extra_body": {"seed": 7}, "tools": TOOLS, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"extra_body": {"seed": 8}, "tools": TOOLS},
        {"messages": [*QUESTION, {"role": "assistant", "content": "The Rhine, the"}], "extra_body": {"seed": 9}},
    ],
    ids=["greedy", "seeded", "stopped", "forced", "free", "continued"],
)
def test_the_real_model(real: Server, fields: dict[str, Any]) -> None:
    asked_for = {"messages": QUESTION, "max_tokens": 40, **fields}
    message = both(real, **asked_for)
    assert message.content
    counted = {
        name: value for name, value in asked_for.items() if name in ("messages", "system", "tools", "tool_choice")
    }
    usage = message.usage
    assert count(real, **counted) == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    if "tool_choice" in fields:
        assert [block.type for block in message.content] == ["tool_use"]
