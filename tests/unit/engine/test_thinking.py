"""The limit on reasoning: the id that ends it comes when its tokens are used up, and no sooner."""

from collections.abc import Sequence

import numpy as np
import pytest

from freehold.engine.thinking import ThinkingMatcher
from freehold.protocol import ThinkingLimit

BEGIN, END, WORD = 3, 40, 7


def allowed(matcher: ThinkingMatcher, drafts: Sequence[int] = ()) -> list[list[int] | str]:
    masks = np.zeros((len(drafts) + 1, 3), np.uint32)
    matcher.fill(masks, drafts)
    bits = np.unpackbits(masks.view(np.uint8), bitorder="little").reshape(len(masks), -1)
    return ["all" if row.all() else np.flatnonzero(row).tolist() for row in bits]


def matcher(max_tokens: int, begin_id: int | None = None) -> ThinkingMatcher:
    return ThinkingMatcher(ThinkingLimit(max_tokens=max_tokens, end_id=END, begin_id=begin_id))


@pytest.mark.parametrize("max_tokens", [0, 1, 3])
def test_reasoning_ends_when_its_tokens_are_used_up(max_tokens: int) -> None:
    one = matcher(max_tokens)
    for _ in range(max_tokens):
        assert allowed(one) == ["all"]
        one.accept(WORD)
    assert allowed(one) == [[END]]
    one.accept(END)
    for _ in range(5):
        assert allowed(one) == ["all"]
        one.accept(WORD)


def test_reasoning_that_ends_by_itself_is_left_alone() -> None:
    one = matcher(2)
    for token_id in (WORD, END, WORD, WORD, WORD):
        one.accept(token_id)
    assert allowed(one) == ["all"]


def test_reasoning_counts_from_where_it_begins() -> None:
    one = matcher(1, BEGIN)
    for token_id in (WORD, WORD, WORD):
        one.accept(token_id)
        assert allowed(one) == ["all"]
    one.accept(BEGIN)
    assert allowed(one) == ["all"]
    one.accept(WORD)
    assert allowed(one) == [[END]]


def test_drafts_are_followed_and_forgotten() -> None:
    one = matcher(2)
    assert allowed(one, [WORD, WORD, END, WORD]) == ["all", "all", [END], "all", "all"]
    assert allowed(one, [END, WORD]) == ["all", "all", "all"]
    assert allowed(one) == ["all"]
