"""Answers of odd servers: harmless forms are taken, and what can't be read is that request's failure alone."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from freehold.loadtest.client.answer import Answer
from freehold.loadtest.client.connection import Connection
from freehold.loadtest.client.failures import FailedRequestError
from freehold.loadtest.client.refusals import error_message, message_in
from freehold.loadtest.client.usage import TokenCounts

END = {"choices": [{"text": "word", "finish_reason": "stop"}]}


def streamed(*events: dict[str, Any]) -> Answer:
    answer = Answer(is_stream=True, keeps_text=True)
    for event in events:
        answer.take(b"data: " + json.dumps(event).encode() + b"\n\n", 1.0)
    answer.finish(2.0)
    return answer


@pytest.mark.parametrize("depth", [900, 5_000, 200_000])
@pytest.mark.parametrize("field", ["error", "usage"])
def test_an_event_nested_too_deeply_is_that_requests_failure(depth: int, field: str) -> None:
    answer = Answer(is_stream=True, keeps_text=False)
    event = b'data: {"%b":' % field.encode() + b"[" * depth + b"]" * depth + b"}\n\n"
    with pytest.raises(FailedRequestError) as raised:
        answer.take(event, 1.0)
    assert raised.value.code in {"malformed", "error_event"}


def test_a_whole_answer_nested_too_deeply_is_malformed() -> None:
    answer = Answer(is_stream=False, keeps_text=False)
    answer.take(b'{"error":' + b"[" * 5_000 + b"]" * 5_000 + b"}", 1.0)
    with pytest.raises(FailedRequestError) as raised:
        answer.finish(2.0)
    assert raised.value.code == "malformed"


def test_a_refusal_nested_too_deeply_has_no_message() -> None:
    assert message_in(b'{"error":' + b"[" * 30_000 + b"]" * 30_000 + b"}") == ""
    deep: list[Any] = []
    for _ in range(30_000):
        deep = [deep]
    assert "too deeply" in error_message(deep)


@pytest.mark.parametrize("wrong", [RecursionError("too deep"), ValueError("no"), KeyError("x")])
def test_what_a_body_raises_ends_that_request_alone(wrong: Exception) -> None:
    def refuse(_part: bytes, _now_s: float) -> None:
        raise wrong

    with pytest.raises(FailedRequestError) as raised:
        asyncio.run(_answered(refuse))
    assert raised.value.code == "malformed"


class _Wire(asyncio.Transport):
    """Loses what is written."""

    def write(self, data: object) -> None:
        pass

    def abort(self) -> None:
        pass


async def _answered(on_body: Callable[[bytes, float], None]) -> None:
    connection = Connection()
    connection.connection_made(_Wire())
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nword"
    asyncio.get_running_loop().call_soon(connection.data_received, answer)
    await connection.request(b"GET / HTTP/1.1\r\n\r\n", on_body)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": None, "usage": {"completion_tokens": 3.0, "prompt_tokens": 5}},
        {"choices": [], "usage": {"completion_tokens": 3}, "error": {}},
        {"choices": [], "usage": {"completion_tokens": 3}, "error": ""},
        {"choices": [], "usage": {"completion_tokens": 3}, "__verbose": {"tokens": None}},
    ],
)
def test_harmless_forms_of_the_last_chunk_are_taken(event: dict[str, Any]) -> None:
    answer = streamed(END, event)
    assert answer.num_tokens(None) == (3, "usage")
    assert type(answer.num_tokens(None)[0]) is int


def test_calls_without_numbers_are_told_apart_by_their_ids() -> None:
    def part(arguments: str, name: str | None = None) -> dict[str, Any]:
        call = {"index": None, "id": name, "function": {"name": name, "arguments": arguments}}
        return {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]}

    answer = streamed(part("{", "a"), part("}"), part("[", "b"), part("]"), END)
    assert [(call["id"], call["function"]["arguments"]) for call in answer.tool_calls] == [("a", "{}"), ("b", "[]")]


@pytest.mark.parametrize("told", [-5, 10**30, 2**40 + 1, 2.5, 1e300])
def test_counts_that_cant_be_count_as_not_told(told: float) -> None:
    usage = {
        "prompt_tokens": told,
        "completion_tokens": told,
        "prompt_tokens_details": {"cached_tokens": told},
        "completion_tokens_details": {"reasoning_tokens": told},
    }
    answer = streamed(END, {"choices": [], "usage": usage})
    assert answer.counts == TokenCounts(num_refused=4)
    assert answer.num_tokens(None) == (None, "unknown")


@pytest.mark.parametrize(("cached", "taken", "num_refused"), [(500, None, 1), (5, 5, 0), (0, 0, 0), (None, None, 0)])
def test_no_more_is_cached_than_was_asked(cached: int | None, taken: int | None, num_refused: int) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
    assert streamed(END, {"choices": [], "usage": usage}).counts == TokenCounts(5, 1, taken, None, num_refused)
