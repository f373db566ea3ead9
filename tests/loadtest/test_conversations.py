"""Turns that follow each other: their prompts, pauses and times."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.loadtest.runs import Run, Silent, StubServer, stored

from freehold.errors import ConfigError
from freehold.loadtest.client.target import read_target
from freehold.loadtest.options import ENDPOINTS, BenchOptions
from freehold.loadtest.results import Load
from freehold.loadtest.run import Tools, run
from freehold.loadtest.server_facts import ServerFacts
from freehold.loadtest.store import RunStore
from freehold.loadtest.workloads.base import Conversation, Turn

CLOSED = Load(kind="closed", concurrency=1)


class Given:
    """A workload of given conversations."""

    name = "given"
    shares_prefixes = False

    def __init__(self, *conversations: Conversation) -> None:
        self._conversations = conversations

    def conversations(self, num: int, seed: int) -> tuple[Conversation, ...]:
        return self._conversations[:num]


def asked(
    stub: StubServer,
    folder: Path,
    *conversations: Conversation,
    load: Load = CLOSED,
    backend: Any = "openai",
    how: Any = None,
) -> Run:
    stub.truth()
    options = BenchOptions(
        base_url=stub.url, backend=backend, endpoint=ENDPOINTS[backend], loads=[load], seed=1, num_warmups=0,
        fields={"stub": how or {}},
    )  # fmt: skip
    store = RunStore(folder / "run.sqlite", options)
    tools = Tools(read_target(stub.url), Given(*conversations), store, Silent())
    try:
        result = asyncio.run(run(options, ServerFacts("stub"), tools))
    finally:
        store.close()
    return Run(result, stub.truth(), stored(store.path), store.path, is_strict=False)


def bodies(found: Run) -> list[dict[str, Any]]:
    return [truth.body for _, truth in found.pairs]


def test_a_chat_grows_by_its_answers(stub: StubServer, tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    turns = (Turn(({**system}, {"role": "user", "content": "One?"}), 2), Turn("Two?", 3), Turn("Three?", 1))
    first, second, third = bodies(asked(stub, tmp_path, Conversation(turns), backend="openai-chat"))
    assert first["messages"] == [system, {"role": "user", "content": "One?"}]
    answer = {"role": "assistant", "content": "word word "}
    assert second["messages"] == [*first["messages"], answer, {"role": "user", "content": "Two?"}]
    assert third["messages"][-2] == {"role": "assistant", "content": "word word word "}
    assert [each["max_tokens"] for each in (first, second, third)] == [2, 3, 1]


def test_a_text_and_ids_grow_by_their_answers(stub: StubServer, tmp_path: Path) -> None:
    text = Conversation((Turn("One ", 2), Turn("two", 1)))
    ids = Conversation((Turn((1, 2, 3), 2), Turn((4,), 1)))
    found = bodies(asked(stub, tmp_path, text, ids, how={"ids": True}))
    assert [each["prompt"] for each in found] == ["One ", "One word word two", [1, 2, 3], [1, 2, 3, 7, 7, 4]]
    assert [each.get("return_token_ids") for each in found] == [None, None, True, True]


def test_answers_can_be_left_out(stub: StubServer, tmp_path: Path) -> None:
    recorded = {"role": "assistant", "content": "What it said then."}
    turns = (Turn("One?", 2), Turn((recorded, {"role": "user", "content": "Two?"}), 2))
    found = bodies(asked(stub, tmp_path, Conversation(turns, keeps_answers=False), backend="openai-chat"))
    assert found[1]["messages"][1:] == [recorded, {"role": "user", "content": "Two?"}]


def test_results_of_tools_go_to_the_calls_that_were_made(stub: StubServer, tmp_path: Path) -> None:
    tools = ({"type": "function", "function": {"name": "look"}},)
    result = {"role": "tool", "content": "42"}
    turns = (Turn("Look.", 2, tools=tools), Turn((result,), 2, tools=tools))
    calling = bodies(asked(stub, tmp_path, Conversation(turns), backend="openai-chat", how={"tool": True}))
    assert calling[0]["tools"] == list(tools)
    (call,) = calling[1]["messages"][1]["tool_calls"]
    assert call == {"id": "call-1", "type": "function", "function": {"name": "", "arguments": "word word "}}
    assert calling[1]["messages"][2] == {**result, "tool_call_id": "call-1"}


def test_a_result_without_a_call_is_the_users_message(stub: StubServer, tmp_path: Path) -> None:
    turns = (Turn("Look.", 2), Turn(({"role": "tool", "content": "42"},), 2))
    found = bodies(asked(stub, tmp_path, Conversation(turns), backend="openai-chat"))
    assert found[1]["messages"][2] == {"role": "user", "content": "42"}


def test_a_turn_is_meant_to_start_a_pause_after_the_one_before(stub: StubServer, tmp_path: Path) -> None:
    turns = tuple(Turn("x", 2, pause_s=pause) for pause in (0.0, 0.2, 0.0))
    found = asked(stub, tmp_path, Conversation(turns), how={"first_s": 0.05})
    first, second, third = found.measurement.records
    assert second.intended_s == pytest.approx(first.ended_s + 0.2)
    assert third.intended_s == pytest.approx(second.ended_s)
    assert all(record.started_s >= record.intended_s for record in (first, second, third))
    assert found.pairs[1][1].received_s - (found.pairs[0][1].ended_s or 0) >= 0.199


def test_a_trace_starts_its_conversations_at_their_times(stub: StubServer, tmp_path: Path) -> None:
    late, soon = Conversation((Turn("late", 1),), start_s=0.3), Conversation((Turn("soon", 1),), start_s=0.1)
    found = asked(stub, tmp_path, late, soon, load=Load(kind="trace"))
    assert [record.intended_s for record in found.measurement.records] == [0.1, 0.3]
    assert [truth.body["prompt"] for _, truth in found.pairs] == ["soon", "late"]


def test_a_trace_without_times_is_refused(stub: StubServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no times"):
        asked(stub, tmp_path, Conversation((Turn("x", 1),)), load=Load(kind="trace"))


def test_a_failed_turn_ends_its_conversation(stub: StubServer, tmp_path: Path) -> None:
    turns = tuple(Turn("x", 2) for _ in range(3))
    found = asked(stub, tmp_path, Conversation(turns), Conversation(turns[:1]), how=[{"status": 500}, {}])
    assert (found.point.completed, found.point.failed, found.measurement.num_unasked) == (1, 1, 2)
    assert "unasked_turns" in {each.code for each in found.point.warnings}


@pytest.mark.parametrize(
    ("backend", "turns"),
    [
        ("openai", (Turn(({"role": "user", "content": "x"},), 1),)),
        ("openai-chat", (Turn((1, 2), 1),)),
        ("openai", (Turn("x", 1), Turn((1,), 1))),
        ("openai", (Turn((1,), 1), Turn("x", 1))),
    ],
)
def test_what_an_endpoint_cant_take_fails_by_name(
    stub: StubServer, tmp_path: Path, backend: str, turns: tuple[Turn, ...]
) -> None:
    found = asked(stub, tmp_path, Conversation(turns), backend=backend, how={"ids": True})
    assert found.point.error_counts == {"refused_turn": 1}


def test_fields_of_a_turn_reach_the_server(stub: StubServer, tmp_path: Path) -> None:
    (body,) = bodies(asked(stub, tmp_path, Conversation((Turn("x", fields={"temperature": 0.5, "seed": 3}),))))
    assert (body["temperature"], body["seed"]) == (0.5, 3)
    assert "max_tokens" not in body
