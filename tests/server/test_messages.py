"""The Messages API, as the official client sees it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.anthropic_client import OSLO, THOUGHT, TOOLS, asked, both, call, client, close_clients, count, create
from tests.server.families import QWEN_CODER, family
from tests.server.running import Server, Start

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.files.vocabulary import TextAssets


@pytest.fixture(scope="module", autouse=True)
def closing() -> Iterator[None]:
    yield
    close_clients()


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


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scene", ["thought, text, call", "two calls", "text between calls"])
def test_streams_are_folds_wherever_they_are_cut(qwen: Server, scene: str, step: int) -> None:
    """Calls that were cut short keep what is complete of their input, as the client's reading of the stream does."""
    said, fields = SCENES[scene]
    for limit in range(1, len(qwen.says(said)), step):
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


CODER_CALL = """Let me look.
<tool_call>
<function=weather>
<parameter=city>
Oslo, "Norge"
</parameter>
<parameter=days>
2
</parameter>
</function>
</tool_call>"""


def test_calls_between_tags_are_blocks_wherever_they_are_cut(start: Start, text: TextAssets) -> None:
    server = start(family(text, QWEN_CODER))
    ids = server.says(CODER_CALL)
    used = both(server, tools=TOOLS).content[-1]
    assert used.type == "tool_use"
    assert used.input == {"city": 'Oslo, "Norge"', "days": 2}
    for limit in range(len(ids) // 3, len(ids), 7):
        message = both(server, tools=TOOLS, max_tokens=limit)
        assert message.stop_reason == "max_tokens"
        assert [block.type for block in message.content][:1] == ["text"]
    server.says("It is sunny.")
    result = {"type": "tool_result", "tool_use_id": used.id, "content": "Sunny."}
    turns: list[Any] = [{"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    assert both(server, messages=[*server.messages, *turns], tools=TOOLS).stop_reason == "end_turn"


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
