"""One request's place in its grammar: where it begins and ends, and that guesses leave no trace."""

import numpy as np
import pytest
from byte_grammars import CLOSE_ID, END_ID, TEXTS, Fresh
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.errors import GrammarError
from freehold.grammar.constraint import Choice, Constraint, JsonSchema, Lark, Regex
from freehold.grammar.matcher import GrammarMatcher
from freehold.protocol import Grammar, Sampling

VOCAB_SIZE = len(TEXTS.texts)
PERSON = JsonSchema(
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"enum": ["x", True]}, "maxItems": 3}},
        "required": ["a"],
        "additionalProperties": False,
    }
)


def masks_of(matcher: GrammarMatcher, *drafts: int) -> list[set[int]]:
    # More words than the vocabulary needs, as models have rows for padding.
    masks = np.zeros((len(drafts) + 1, VOCAB_SIZE // 32 + 3), np.uint32)
    matcher.fill(masks, drafts)
    return [set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()) for mask in masks]


def mask_of(matcher: GrammarMatcher) -> set[int]:
    return masks_of(matcher)[0]


def begin(fresh: Fresh, constraint: Constraint, *, stop_ids: set[int] | None = None, **given: int) -> GrammarMatcher:
    sampling = Sampling(stop_ids=frozenset(stop_ids or {END_ID}), min_tokens=given.pop("min_tokens", 0))
    return fresh(constraint).begin(Grammar(source=b"", **given), sampling)


def accept(matcher: GrammarMatcher, text: str) -> None:
    for byte in text.encode():
        assert byte in mask_of(matcher), (chr(byte), text)
        matcher.accept(byte)


def test_stop_ids_are_allowed_where_the_text_is_complete(fresh: Fresh) -> None:
    matcher = begin(fresh, Regex("ab(c|d)?"), stop_ids={END_ID, CLOSE_ID})
    assert mask_of(matcher) == {ord("a")}
    accept(matcher, "ab")
    assert mask_of(matcher) == {ord("c"), ord("d"), END_ID, CLOSE_ID}
    accept(matcher, "c")
    assert mask_of(matcher) == {END_ID, CLOSE_ID}


def test_a_stop_id_that_is_text_is_allowed_as_such_too(fresh: Fresh) -> None:
    matcher = begin(fresh, Regex("a.b"), stop_ids={END_ID, ord(".")})
    accept(matcher, "a")
    assert ord(".") in mask_of(matcher)
    matcher.accept(ord("."))  # the request ends


def test_min_tokens_hold_stop_ids_back_while_the_text_can_go_on(fresh: Fresh) -> None:
    matcher = begin(fresh, Regex("a{1,3}"), min_tokens=2)
    accept(matcher, "a")
    assert mask_of(matcher) == {ord("a")}
    accept(matcher, "a")
    assert mask_of(matcher) == {ord("a"), END_ID}
    fixed = begin(fresh, Choice(["ab"]), min_tokens=9)
    accept(fixed, "ab")
    assert mask_of(fixed) == {END_ID}


def test_the_grammar_begins_after_an_id(fresh: Fresh) -> None:
    matcher = begin(fresh, Choice(["x"]), after_id=CLOSE_ID)
    everything = set(range(VOCAB_SIZE)) - {END_ID}
    for byte in b"any {thing":
        assert mask_of(matcher) & set(range(VOCAB_SIZE)) == everything
        matcher.accept(byte)
    matcher.accept(CLOSE_ID)
    assert mask_of(matcher) == {ord("x")}
    matcher.accept(ord("x"))
    assert mask_of(matcher) == {END_ID}


def test_what_comes_before_is_bounded(fresh: Fresh) -> None:
    matcher = begin(fresh, Choice(["x"]), after_id=CLOSE_ID, max_free=3)
    accept(matcher, "abc")
    assert mask_of(matcher) == {CLOSE_ID}
    assert mask_of(begin(fresh, Choice(["x"]), after_id=CLOSE_ID, max_free=0)) == {CLOSE_ID}


def test_an_id_that_is_not_allowed_fails(fresh: Fresh) -> None:
    matcher = begin(fresh, Choice(["x"]))
    with pytest.raises(GrammarError, match="token 121 came"):
        matcher.accept(ord("y"))


def test_tokens_by_number(fresh: Fresh) -> None:
    matcher = begin(fresh, Lark(f"start: <[{CLOSE_ID}]> /[0-9]/ <[65]>"))
    assert mask_of(matcher) == {CLOSE_ID}
    matcher.accept(CLOSE_ID)
    accept(matcher, "7A")
    assert mask_of(matcher) == {END_ID}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_guesses_see_what_would_be_seen_and_leave_no_trace(fresh: Fresh, data: st.DataObject) -> None:
    setting = data.draw(st.sampled_from([{}, {"after_id": CLOSE_ID, "max_free": 4}]))
    min_tokens = data.draw(st.integers(0, 12))
    taken: list[int] = []

    def follower() -> GrammarMatcher:
        matcher = begin(fresh, PERSON, min_tokens=min_tokens, **setting)
        for token_id in taken:
            matcher.accept(token_id)
        return matcher

    guessing = follower()
    while len(taken) < 10 and (allowed := sorted(mask_of(follower()) - {END_ID})):
        drafts = data.draw(st.lists(st.sampled_from([*allowed, *b'{"a":1,b[]}x', END_ID, CLOSE_ID]), max_size=5))
        ahead = follower()
        for draft, mask in zip([*drafts, None], masks_of(guessing, *drafts), strict=True):
            assert mask == mask_of(ahead)
            if draft is None or draft == END_ID or draft not in mask:
                break
            ahead.accept(draft)
        taken.append(data.draw(st.sampled_from(allowed)))
        guessing.accept(taken[-1])
