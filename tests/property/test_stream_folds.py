"""Streams equal plain answers: content, reasoning, calls, log probabilities, ids, usage and why each answer ended."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.property.chat_cases import Model, made_up, models

from freehold.files.model import open_model
from freehold.files.vocabulary import load_text

NUM_CASES = 700
NUM_CASES_SLOW = 10_000


@pytest.fixture(scope="module")
def known(smollm2_path: Path) -> Iterator[list[Model]]:
    with open_model(smollm2_path) as files:
        text = load_text(files)
    made = models(text)
    yield made
    for template in [text.template, *(model.text.template for model in made)]:
        assert template is not None
        template.close()


def folded(chunks: list[Any]) -> dict[str, Any]:
    """What a client makes of a stream, in the form of `unfolded`; checks the stream's form on the way."""
    *parts, last = chunks
    assert last["choices"] == []
    choices: dict[int, dict[str, Any]] = {}
    for part in parts:
        assert part["usage"] is None
        for choice in part["choices"]:
            index, delta = choice["index"], choice["delta"]
            if index not in choices:
                assert delta == {"role": "assistant", "content": ""}
                choices[index] = {"content": "", "reasoning": "", "calls": [], "ids": [], "scores": [], "reason": None}
                continue
            mine = choices[index]
            assert mine["reason"] is None, "nothing comes after the end"
            assert "" not in (delta.get("content"), delta.get("reasoning_content")), "nothing is sent for nothing"
            mine["content"] += delta.get("content", "")
            mine["reasoning"] += delta.get("reasoning_content", "")
            for call in delta.get("tool_calls", []):
                if call["index"] == len(mine["calls"]):
                    assert call["type"] == "function"
                    mine["calls"].append({"id": call["id"], **call["function"]})
                else:
                    assert set(call) == {"index", "function"}
                    assert call["function"]["arguments"]
                    mine["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            mine["ids"] += choice.get("token_ids", [])
            mine["scores"] += (choice["logprobs"] or {"content": []})["content"]
            mine["reason"] = choice["finish_reason"]
    return {"choices": [choices[index] for index in sorted(choices)], "usage": last["usage"]}


def unfolded(body: Any) -> dict[str, Any]:
    choices = []
    for choice in body["choices"]:
        message = choice["message"]
        calls = message.get("tool_calls", [])
        assert message["content"] is not None or calls
        choices.append(
            {
                "content": message["content"] or "",
                "reasoning": message.get("reasoning_content", ""),
                "calls": [{"id": call["id"], **call["function"]} for call in calls],
                "ids": choice.get("token_ids", []),
                "scores": (choice["logprobs"] or {"content": []})["content"],
                "reason": choice["finish_reason"],
            }
        )
    return {"choices": choices, "usage": body["usage"]}


def without_call_ids(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer whose calls' ids were checked and taken out: they are made up for each."""
    for choice in answer["choices"]:
        ids = [call.pop("id") for call in choice["calls"]]
        assert all(ids)
        assert len(set(ids)) == len(ids)
    return answer


def check(streamed: dict[str, Any], plain: dict[str, Any]) -> set[str]:
    """What holds for every pair; gives what the case had in it."""
    assert without_call_ids(streamed) == without_call_ids(plain)
    seen = set()
    for choice in plain["choices"]:
        seen |= {name for name in ("content", "reasoning", "calls", "scores") if choice[name]} | {choice["reason"]}
        if choice["reason"] == "tool_calls":
            assert choice["calls"]
        for call in choice["calls"][:-1]:
            assert call["arguments"].startswith("{")
    assert plain["usage"]["completion_tokens_details"]["reasoning_tokens"] <= plain["usage"]["completion_tokens"]
    return seen


def run(known: list[Model], num_cases: int, seed: int) -> set[str]:
    async def all_of_them() -> set[str]:
        seen: set[str] = set()
        for number in range(num_cases):
            chance = random.Random(f"{seed}-{number}")
            one, other = made_up(chance, known)
            streamed, plain = folded(await one.streamed()), unfolded(await other.whole())
            try:
                seen |= check(streamed, plain)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, case {number}: {error}") from error
        return seen

    return asyncio.run(all_of_them())


EVERYTHING = {"content", "reasoning", "calls", "scores", "stop", "length", "tool_calls"}


def test_streams_equal_plain_answers(known: list[Model]) -> None:  # rsn-02, tool-02, lp-02, use-03, sse-02
    seed = int(time.time())
    print(f"seed {seed}")
    assert run(known, NUM_CASES, seed) == EVERYTHING


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_streams_equal_plain_answers_in_many_cases(known: list[Model], seed: int) -> None:
    assert run(known, NUM_CASES_SLOW, seed) == EVERYTHING
