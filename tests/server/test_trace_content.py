"""What was said, where the owner wants it in traces; the two forms of it; and what Langfuse is told."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from tests.server.anthropic_client import client as anthropic_client
from tests.server.conftest import starting
from tests.server.families import QWEN, family
from tests.server.running import Start
from tests.server.test_tools import OSLO, WEATHER
from tests.server.traced import Traced, receiving_at_once

from freehold.config import TracingConfig
from freehold.files.vocabulary import TextAssets
from freehold.serve.tracing import spans

CALL = f'<tool_call>\n{{"name": "weather", "arguments": {OSLO}}}\n</tool_call>'
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]},
    {
        "role": "assistant", "content": "I look.", "reasoning_content": "Hm.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": OSLO}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
]  # fmt: skip
ARGUMENTS = {"city": "Oslo", "days": 2}
TOLD = [
    {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
    {"role": "user", "parts": [{"type": "text", "content": "Hi"}, {"type": "text", "content": "there"}]},
    {
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "content": "Hm."},
            {"type": "text", "content": "I look."},
            {"type": "tool_call", "id": "call_1", "name": "weather", "arguments": ARGUMENTS},
        ],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "rain"}]},
]


def starting_with_content(text: TextAssets, start: Start, url: str, **settings: Any) -> Any:
    model = family(text, QWEN, added=("<think>", "</think>"))
    return start(model, tracing=TracingConfig(endpoint=url, with_content=True, **settings))


@pytest.fixture(scope="module")
def traced(text: TextAssets) -> Iterator[Traced]:
    with receiving_at_once() as receiver, starting(text) as start:
        yield Traced(starting_with_content(text, start, receiver.url), receiver)


@pytest.mark.parametrize(("convention", "stream"), [("released", True), ("latest", False)])
def test_messages_and_tools_in_both_forms(text: TextAssets, start: Start, convention: str, stream: bool) -> None:
    """As text that is JSON, or structured; Langfuse has text either way."""
    with receiving_at_once() as receiver:
        server = starting_with_content(text, start, receiver.url, convention=convention)
        server.says("<think>", "Rain, then.", "</think>", "Look: ", CALL)
        messages = [*ASKED, *server.messages]
        Traced(server, receiver).chat("all", messages=messages, tools=[WEATHER], stream=stream)
        say = receiver.request("all")[0].attributes
    read = json.loads if convention == "released" else lambda value: value
    told = [*TOLD, {"role": "user", "parts": [{"type": "text", "content": server.hi}]}]
    assert read(say["gen_ai.input.messages"]) == told
    assert read(say["gen_ai.tool.definitions"]) == [{"type": "function", **WEATHER["function"]}]  # type: ignore[dict-item]
    (said,) = read(say["gen_ai.output.messages"])
    assert (said["role"], said["finish_reason"]) == ("assistant", "tool_call")
    thought, words, call = said["parts"]
    assert thought == {"type": "reasoning", "content": "Rain, then."}
    assert (words["type"], words["content"].strip()) == ("text", "Look:")
    assert call["id"].startswith("call_")
    assert call == {"type": "tool_call", "id": call["id"], "name": "weather", "arguments": ARGUMENTS}
    assert json.loads(say["langfuse.observation.input"]) == told
    assert json.loads(say["langfuse.observation.output"]) == read(say["gen_ai.output.messages"])


def test_what_the_system_says_apart_stands_apart(traced: Traced) -> None:
    traced.server.says("ok")
    messages: Any = traced.server.messages
    anthropic_client(traced.server).messages.create(
        model="test", max_tokens=9, messages=messages, system="Be brief.", extra_headers={"x-request-id": "apart"}
    )
    say = traced.request("apart")[0].attributes
    assert json.loads(say["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert [message["role"] for message in json.loads(say["gen_ai.input.messages"])] == ["user"]


def test_each_answer_and_each_prompt_of_a_completion(traced: Traced) -> None:
    traced.server.says("ok")
    traced.complete("several", prompt=[traced.server.hi, "Hi #0"], n=2, max_tokens=1)
    say = traced.request("several")[0].attributes
    (told,) = json.loads(say["gen_ai.input.messages"])
    assert [part["content"] for part in told["parts"]] == [traced.server.hi, "Hi #0"]
    said = json.loads(say["gen_ai.output.messages"])
    assert [(message["parts"][0]["content"], message["finish_reason"]) for message in said[:2]] == [
        ("ok", "length")
    ] * 2
    assert len(said) == 4
    traced.complete("ids", prompt=[1, 2, 3], max_tokens=1)
    assert "gen_ai.input.messages" not in traced.request("ids")[0].attributes


@pytest.mark.parametrize("convention", ["released", "latest"])
def test_what_otlp_cannot_hold_is_told_as_text(text: TextAssets, start: Start, convention: str) -> None:
    """Nothing that a client sends takes its span away, or those of others that go out with it."""
    deep, large = "[" * 5000 + "]" * 5000, '{"large": [1' + "0" * 30 + ", -18446744073709551616, 7]}"
    with receiving_at_once() as receiver:
        server = starting_with_content(text, start, receiver.url, convention=convention)
        server.says("ok")
        for name, arguments in (("deep", f'{{"x": {deep}}}'), ("large", large), ("broken", '{"x": "\\ud800"}')):
            call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": arguments}}
            messages = [{"role": "assistant", "tool_calls": [call]}, *server.messages]
            Traced(server, receiver).chat(name, messages=messages, seed=2**64 - 1)
            say = receiver.request(name)[0].attributes
            assert "gen_ai.request.seed" not in say
            told = say.get("gen_ai.input.messages")
            told = json.loads(told) if isinstance(told, str) else told
            taken = told[0]["parts"][0]["arguments"]
            if name == "large":
                assert taken == {"large": ["1" + "0" * 30, "-18446744073709551616", 7]}
            else:
                assert taken == arguments


def test_what_is_too_long_is_left_out_whole(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MAX_CONTENT_BYTES", 500)
    traced.server.says("ok")
    messages = [{"role": "system", "content": "x" * 400}, *traced.server.messages]
    traced.chat("long", messages=messages)
    say = traced.request("long")[0].attributes
    assert say["freehold.content_omitted"] == ["gen_ai.input.messages"]
    assert not {"gen_ai.input.messages", "langfuse.observation.input"} & say.keys()
    assert json.loads(say["gen_ai.output.messages"])[0]["parts"] == [{"type": "text", "content": "ok"}]


def test_langfuse_is_told_in_its_own_words(start: Start) -> None:
    """Its documentation of OpenTelemetry has the names; whom and what a request is for stands on each span."""
    with receiving_at_once() as receiver:
        resource = (("deployment.environment.name", "staging"), ("service.name", "mine"))
        config = TracingConfig(endpoint=receiver.url, headers=(("Authorization", "Basic eA=="),), resource=resource)
        traced = Traced(start(tracing=config), receiver)
        traced.server.says("ok")
        metadata = {"langfuse_session_id": "talk 7", "langfuse_user_id": "someone", "langfuse_tags": ["a", "b"]}
        traced.chat("told", metadata=metadata, prompt_cache_key="k", temperature=0.5, max_tokens=3, stream=True)
        span, within = receiver.request("told")
        assert receiver.headers[0]["authorization"] == "Basic eA=="
        assert receiver.headers[0]["content-type"] == "application/x-protobuf"
        assert receiver.paths[0] == "/v1/traces"
    say = span.attributes
    assert (span.resource["service.name"], say["gen_ai.conversation.id"]) == ("mine", "talk 7")
    assert say["langfuse.observation.type"] == "generation"
    assert json.loads(say["langfuse.observation.model.parameters"]) == {"max_tokens": 3, "temperature": 0.5}
    began = datetime.fromisoformat(say["langfuse.observation.completion_start_time"])
    assert began.timestamp() - span.begun_s == pytest.approx(say["gen_ai.latency.time_to_first_token"], abs=1e-4)
    shared = {
        "user.id": "someone", "session.id": "talk 7", "langfuse.trace.tags": ["a", "b"],
        "deployment.environment.name": "staging",
    }  # fmt: skip
    for one in (span, *within):
        assert shared.items() <= one.attributes.items()


@pytest.mark.parametrize("strange", [7, None, [], {"user_id": 5}, "x" * 10_000, {"user_id": "y" * 10_000}, [1e999]])
def test_strange_users_and_metadata_do_no_harm(traced: Traced, strange: Any) -> None:
    traced.server.says("ok")
    name = f"strange-{abs(hash(repr(strange)))}"
    body = json.dumps({"model": "test", "messages": traced.server.messages, "user": strange, "metadata": strange})
    headers = {"content-type": "application/json", "x-request-id": name}
    content = body.replace("Infinity", "1e999")
    assert traced.server.http.post("/v1/chat/completions", content=content, headers=headers).status_code == 200
    assert len(traced.request(name)[0].attributes.get("user.id", "")) <= 200
