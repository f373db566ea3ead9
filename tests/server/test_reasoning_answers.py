"""Reasoning apart from content, whole and streamed, and how long it may take."""

from typing import Any

import pytest
from tests.server.families import DEEPSEEK, QWEN, family
from tests.server.running import Server, Start
from tests.server.test_tools import NOW, both

from freehold.files.vocabulary import TextAssets

TAGS = ("<think>", "</think>")


@pytest.fixture
def qwen(start: Start, text: TextAssets) -> Server:
    """Its tags are tokens; it opens its reasoning itself, or its template forbids it."""
    return start(family(text, QWEN, added=TAGS))


@pytest.fixture
def deepseek(start: Start, text: TextAssets) -> Server:
    """Its template opens the reasoning."""
    return start(family(text, DEEPSEEK, controls=TAGS))


def tag(server: Server, literal: str) -> int:
    vocabulary = server.tokenizer.vocabulary
    return (vocabulary.controls.get(literal) or vocabulary.added[literal]).token_id


def said(server: Server, **fields: Any) -> tuple[str, str, str]:
    choice = both(server, **fields)
    return choice["reasoning"], choice["content"], choice["reason"]


def reasoning_tokens(server: Server, **fields: Any) -> int:
    tokens: int = server.chat(**fields).json()["usage"]["completion_tokens_details"]["reasoning_tokens"]
    return tokens


def test_reasoning_is_apart_from_content(qwen: Server) -> None:  # rsn-02
    ids = qwen.says(tag(qwen, "<think>"), "\nHm, why?\n", tag(qwen, "</think>"), "\n\nBecause.")
    assert said(qwen) == ("Hm, why?", "Because.", "stop")
    assert reasoning_tokens(qwen) == ids.index(tag(qwen, "</think>")) + 1


def test_tags_may_be_spelled_out(start: Start, text: TextAssets) -> None:
    server = start(family(text, QWEN))
    server.says("<think>\nHm, why?\n</think>\n\nBecause.")
    assert said(server) == ("Hm, why?", "Because.", "stop")


def test_a_template_may_open_reasoning(deepseek: Server) -> None:
    ids = deepseek.says("Hm, why?\n", tag(deepseek, "</think>"), "\n\nBecause.")
    assert said(deepseek) == ("Hm, why?", "Because.", "stop")
    assert reasoning_tokens(deepseek) == ids.index(tag(deepseek, "</think>")) + 1
    deepseek.says(tag(deepseek, "<think>"), "Hm?", tag(deepseek, "</think>"), "Because.")
    assert said(deepseek) == ("Hm?", "Because.", "stop")


def test_answers_without_reasoning_are_content(qwen: Server) -> None:  # rsn-03
    qwen.says("Because.")
    for switch in (True, False, None):
        fields = {} if switch is None else {"chat_template_kwargs": {"enable_thinking": switch}}
        assert said(qwen, **fields) == ("", "Because.", "stop")
    assert reasoning_tokens(qwen) == 0


def test_reasoning_that_does_not_end_stays_reasoning(deepseek: Server) -> None:  # rsn-03
    deepseek.says("Hm, why? </thin")
    assert said(deepseek) == ("Hm, why? </thin", "", "stop")
    assert said(deepseek, max_tokens=2)[2] == "length"


def test_what_users_say_opens_no_reasoning(qwen: Server) -> None:  # tok-06
    qwen.says("Because.")
    messages = [{"role": "user", "content": f"{qwen.hi} <think> what?"}]
    assert said(qwen, messages=messages) == ("", "Because.", "stop")


def test_stop_strings_leave_reasoning_alone(qwen: Server) -> None:  # stop-05
    qwen.says("<think>9.8 or 9.11?</think>9.8 is more.")
    assert said(qwen, stop="9.8") == ("9.8 or 9.11?", "", "stop")
    assert said(qwen, stop="</think>") == ("9.8 or 9.11?", "9.8 is more.", "stop")


def test_logprobs_are_of_all_tokens(qwen: Server) -> None:
    ids = qwen.says("<think>Hm?</think>Because.")
    choice = qwen.chat(logprobs=True, return_token_ids=True).json()["choices"][0]
    assert len(choice["logprobs"]["content"]) == len(choice["token_ids"]) == len(ids)


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_budget_ends_reasoning(qwen: Server, deepseek: Server, budget: int) -> None:
    for server, opening in ((qwen, [tag(qwen, "<think>")]), (deepseek, [])):
        server.says(*opening, "so" * 50)
        for fields in ({"thinking_token_budget": budget}, {"thinking_token_budget": budget, "n": 2}):
            answer = server.chat(return_token_ids=True, max_tokens=20, **fields).json()
            for choice in answer["choices"]:
                assert choice["token_ids"].index(tag(server, "</think>")) == budget + len(opening)
    free = qwen.chat(return_token_ids=True, max_tokens=20).json()["choices"][0]["token_ids"]
    assert tag(qwen, "</think>") not in free


def test_budget_leaves_short_reasoning_and_none_alone(qwen: Server) -> None:
    qwen.says(tag(qwen, "<think>"), "Hm?", tag(qwen, "</think>"), "Because it is so and not otherwise.")
    assert said(qwen, thinking_token_budget=20) == said(qwen)
    qwen.says("Because it is so and not otherwise.")
    assert said(qwen, thinking_token_budget=1) == said(qwen)


def test_effort(qwen: Server) -> None:
    assert (
        "<think>\n\n</think>"
        in qwen.post("/apply-template", messages=qwen.messages, reasoning_effort="none").json()["prompt"]
    )
    qwen.says(tag(qwen, "<think>"), "so" * 600)
    for effort, expected in (("minimal", 512), ("high", None), (None, None)):
        ids = qwen.chat(return_token_ids=True, max_tokens=600, reasoning_effort=effort).json()["choices"][0][
            "token_ids"
        ]
        assert (ids.index(tag(qwen, "</think>")) - 1 if tag(qwen, "</think>") in ids else None) == expected


def test_forced_calls_come_after_reasoning(qwen: Server, deepseek: Server) -> None:
    for server in (qwen, deepseek):
        opening = [tag(server, "<think>")] if server is qwen else []
        server.says(*opening, "Which one?", tag(server, "</think>"), "A story instead.")
        choice = both(server, tools=[NOW], tool_choice="required", max_tokens=300, parallel_tool_calls=False)
        assert (choice["reasoning"], choice["content"]) == ("Which one?", "")
        assert [call[1] for call in choice["calls"]] == ["now"]
        budgeted = both(
            server, tools=[NOW], tool_choice="required", max_tokens=300, parallel_tool_calls=False,
            thinking_token_budget=1,
        )  # fmt: skip
        assert budgeted["reasoning"] == "Which"
        assert [call[1] for call in budgeted["calls"]] == ["now"]


@pytest.mark.parametrize("value", [-1, 2**31, "5", 1.5])
def test_wrong_budgets(qwen: Server, value: Any) -> None:
    response = qwen.chat(thinking_token_budget=value)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "thinking_token_budget")


def test_limits_that_cannot_be_kept_are_refused(server: Server, start: Start, text: TextAssets) -> None:
    for field, value in (("thinking_token_budget", 5), ("reasoning_effort", "low"), ("reasoning_effort", "much")):
        response = server.chat(**{field: value})
        assert (response.status_code, response.json()["error"]["param"]) == (400, field)
    server.says("ok")
    assert server.chat(reasoning_effort="none").status_code == 200
    spelled = start(family(text, QWEN))
    response = spelled.chat(thinking_token_budget=5)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "thinking_token_budget")


def test_allowed_ids_must_hold_what_a_budget_forces(qwen: Server) -> None:
    response = qwen.chat(thinking_token_budget=5, allowed_token_ids=[5, 6])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "thinking_token_budget")


def test_parser_can_be_chosen(start: Start, text: TextAssets) -> None:
    off = start(family(text, QWEN), reasoning_parser="none")
    off.says("<think>Hm?</think>Because.")
    assert said(off) == ("", "<think>Hm?</think>Because.", "stop")
    always = start(family(text, QWEN), reasoning_parser="deepseek_r1")
    always.says("Hm?</think>Because.")
    assert said(always) == ("Hm?", "Because.", "stop")
    always.says("Because.")
    assert said(always, chat_template_kwargs={"enable_thinking": False}) == ("", "Because.", "stop")
