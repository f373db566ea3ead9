"""``cache_control``: what stays cached, what is told of it, and that no token depends on it."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from tests.server.anthropic_client import NOW, WEATHER, both, close_clients, create, lasting
from tests.server.running import Server


@pytest.fixture(scope="module", autouse=True)
def closing() -> Iterator[None]:
    yield
    close_clients()


def test_what_was_reused_of_the_prompt_is_told(server: Server) -> None:
    ids = server.says("Well.")
    prompt = [{"role": "user", "content": f"{server.hi} {'again ' * 50}"}]
    first, second = (create(server, messages=prompt).usage for _ in range(2))
    assert first.output_tokens == len(ids)
    assert second.cache_read_input_tokens == first.input_tokens + (first.cache_read_input_tokens or 0) - 1
    assert second.input_tokens == 1, "the last token of a prompt is always computed"


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
