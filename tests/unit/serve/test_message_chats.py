"""What a body of the Messages API means as a chat."""

from typing import Any

import msgspec
import pytest

from freehold.errors import RequestError
from freehold.serve.messages.breakpoints import breakpoint_of
from freehold.serve.messages.chats import chat_of, renamed
from freehold.serve.messages.schema import CountTokensRequest, MessagesRequest
from freehold.serve.schema import ChatRequest

MARK = {"type": "ephemeral"}
USED = {"type": "tool_use", "id": "c1", "name": "now", "input": {"a": [1]}}


def result(content: Any = None, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "c1", "content": content, **fields}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def turn(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": content[0] if isinstance(content[0], str) else list(content)}


def chat(**fields: Any) -> ChatRequest:
    return chat_of(msgspec.convert({"max_tokens": 5, "messages": [turn("user", "Hi")], **fields}, MessagesRequest))


def messages(*turns: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    built: list[dict[str, Any]] = msgspec.to_builtins(chat(messages=turns, **fields).messages)
    return built


CALLS = [{"id": "c1", "type": "function", "function": {"name": "now", "arguments": '{"a":[1]}'}}]


@pytest.mark.parametrize(
    ("turns", "meant"),
    [
        ([turn("user", "Hi")], [{"role": "user", "content": "Hi"}]),
        ([turn("user", text("a"), text("b"))], [{"role": "user", "content": [text("a"), text("b")]}]),
        ([turn("user", "a"), turn("user", "b")], [{"role": "user", "content": [text("a"), text("b")]}]),
        (
            [turn("system", "S"), turn("user", "a")],
            [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}],
        ),
        (
            [turn("assistant", text("See"), text(" now: "), USED)],
            [{"role": "assistant", "content": "See now: ", "tool_calls": CALLS}],
        ),
        (
            [turn("assistant", {"type": "thinking", "thinking": "Hm.", "signature": "x"}, text("A"))],
            [{"role": "assistant", "content": "A", "reasoning_content": "Hm."}],
        ),
        ([turn("assistant", "a"), turn("assistant", text("b"))], [{"role": "assistant", "content": "ab"}]),
        (
            [turn("user", result("12"), text("So?"))],
            [
                {"role": "tool", "content": "12", "tool_call_id": "c1"},
                {"role": "user", "content": [text("So?")]},
            ],
        ),
        (
            [turn("user", text("a"), result([text("x"), text("y")]), result(is_error=True))],
            [
                {"role": "user", "content": [text("a")]},
                {"role": "tool", "content": "x\ny", "tool_call_id": "c1"},
                {"role": "tool", "content": "Error: ", "tool_call_id": "c1"},
            ],
        ),
    ],
)  # fmt: skip
def test_turns(turns: list[dict[str, Any]], meant: list[dict[str, Any]]) -> None:
    assert messages(*turns) == meant


def test_the_systems_text_comes_first() -> None:
    assert messages(turn("user", "Hi"), system="Be brief.")[0] == {"role": "system", "content": "Be brief."}
    assert messages(turn("user", "Hi"), system=[text("a")])[0] == {"role": "system", "content": [text("a")]}
    assert len(messages(turn("user", "Hi"), system="")) == 1


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"stop_sequences": ["x"], "stream": True, "top_k": 3, "top_p": 0.5, "temperature": 0.1, "seed": 4},
         {"stop": ["x"], "stream": True, "top_k": 3, "top_p": 0.5, "temperature": 0.1, "seed": 4, "max_tokens": 5}),
        ({"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
         {"tool_choice": "required", "parallel_tool_calls": False}),
        ({"tool_choice": {"type": "auto"}}, {"tool_choice": "auto", "parallel_tool_calls": None}),
        ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 4}}, {"thinking_token_budget": 4, "reasoning_effort": None}),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, {"reasoning_effort": "none"}),
        ({"output_config": {"effort": "max"}}, {"reasoning_effort": "xhigh"}),
        ({"service_tier": "standard_only"}, {"service_tier": "default"}),
        ({"service_tier": "flex"}, {"service_tier": "flex"}),
    ],
)  # fmt: skip
def test_fields(fields: dict[str, Any], meant: dict[str, Any]) -> None:
    made = chat(**fields)
    assert {name: getattr(made, name) for name in meant} == meant


@pytest.mark.parametrize(
    ("message", "param", "named"),
    [
        ("stop[0] is empty", "stop", ("stop_sequences[0] is empty", "stop_sequences")),
        ("tools[1].function.parameters has", "tools", ("tools[1].input_schema has", "tools")),
        ("tools[1].function.name is 'a'", "tools[1].function.name", ("tools[1].name is 'a'", "tools[1].name")),
        ("messages[3].tool_calls has", "messages[3].tool_calls", ("messages has", "messages")),
        ("temperature is 5", "temperature", ("temperature is 5", "temperature")),
        ("nothing to stop here", None, ("nothing to stop here", None)),
    ],
)  # fmt: skip
def test_errors_name_the_bodys_fields(message: str, param: str | None, named: tuple[str, str | None]) -> None:
    error = renamed(RequestError(message, param=param, code="x"))
    assert (str(error), error.param, error.code) == (*named, "x")


def beginning(**fields: Any) -> Any:
    body = msgspec.convert({"messages": [turn("user", "Hi")], **fields}, CountTokensRequest)
    found = breakpoint_of(body)
    assert found is not None
    return found


def test_the_last_mark_counts() -> None:
    marked = {**text("a"), "cache_control": MARK}
    assert breakpoint_of(msgspec.convert({"messages": [turn("user", text("a"))]}, CountTokensRequest)) is None
    assert beginning(cache_control=MARK).beginning is None
    assert beginning(messages=[turn("user", text("b"), marked)]).beginning is None
    cut = beginning(system=[marked, text("z")], messages=[turn("user", marked, text("b")), turn("user", "c")]).beginning
    assert msgspec.to_builtins(cut.messages)[0]["content"][0]["text"] == "a"
    assert [len(one.content) for one in cut.messages] == [1]
    assert len(cut.system) == 2, "what comes before is whole"
    assert len(beginning(system=[marked, text("z")]).beginning.system) == 1


def test_the_longest_time_counts() -> None:
    short, long = ({**text("a"), "cache_control": {**MARK, **ttl}} for ttl in ({}, {"ttl": "1h"}))
    assert beginning(system=[short]).ttl == "5m"
    assert beginning(system=[long], messages=[turn("user", short)]).ttl == "1h"
