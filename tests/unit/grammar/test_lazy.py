"""Grammars of parts of an answer: where they begin and end, what is held to nothing, guesses that leave no trace."""

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.engine.masks import Matcher
from freehold.errors import GrammarError
from freehold.grammar.constraint import Lark
from freehold.grammar.factory import FreshMatcher, MatcherFactory
from freehold.grammar.source import source_of
from freehold.protocol import Grammar, Sampling, TokenTexts, Trigger

OPENER = b"<<"
RUNS = [b"<(", b"<(a", b"<)", b"<\n", b"x<<(", b"x<<)", b">(", b">!", b"(a"]
END_ID, OPEN_ID, CLOSE_ID = 256 + len(RUNS), 257 + len(RUNS), 258 + len(RUNS)
TEXTS = TokenTexts(
    (*(bytes([byte]) for byte in range(256)), *RUNS, b"<end>", b"<t>", b"</t>"), (END_ID, OPEN_ID, CLOSE_ID)
)
ALL = set(range(len(TEXTS.texts)))
CALL = Lark('start: /\\n*/ "(" /[a-c]{1,9}/ ")"', is_trusted=True)
BARE = Lark('start: /\\n*/ "(" /a[a-c]{0,8}/ ")"', is_trusted=True, head=r"\n*\(a")
OPENED = Trigger(openers=(OPENER,))
THINKING = Trigger(openers=(OPENER,), thoughts=(b"<t>", b"</t>"))


@pytest.fixture(scope="module")
def factory() -> MatcherFactory:
    return MatcherFactory(TEXTS)


@pytest.fixture(scope="module")
def call(factory: MatcherFactory) -> FreshMatcher:
    return factory.compile(msgspec.msgpack.encode(source_of(CALL)))


@pytest.fixture(scope="module")
def bare(factory: MatcherFactory) -> FreshMatcher:
    return factory.compile(msgspec.msgpack.encode(source_of(BARE)))


def begin(fresh: FreshMatcher, trigger: Trigger, *, min_tokens: int = 0, ends: bool = True) -> Matcher:
    stop_ids = frozenset({END_ID} if ends else set())
    return fresh.begin(Grammar(source=b"", trigger=trigger), Sampling(stop_ids=stop_ids, min_tokens=min_tokens))


def masks_of(matcher: Matcher, *drafts: int) -> list[set[int]]:
    masks = np.zeros((len(drafts) + 1, len(TEXTS.texts) // 32 + 2), np.uint32)
    matcher.fill(masks, drafts)
    return [set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()) & ALL for mask in masks]


def forbidden(matcher: Matcher) -> set[bytes]:
    return {TEXTS.texts[token_id] for token_id in ALL - masks_of(matcher)[0]}


def ids(text: bytes) -> list[int]:
    """Single bytes, but for runs in braces."""
    if b"{" not in text:
        return list(text)
    before, _, rest = text.partition(b"{")
    run, _, rest = rest.partition(b"}")
    return [*before, TEXTS.texts.index(run), *ids(rest)]


def accept(matcher: Matcher, text: bytes) -> None:
    for token_id in ids(text):
        assert token_id in masks_of(matcher)[0], (TEXTS.texts[token_id], text)
        matcher.accept(token_id)


def test_the_grammar_holds_between_an_opener_and_its_own_end_as_often_as_one_comes(call: FreshMatcher) -> None:
    matcher = begin(call, OPENED)
    for _ in range(3):
        accept(matcher, b"any (thing) \xff< ")
        assert forbidden(matcher) == {b"x<<)"}
        accept(matcher, b"<<")
        assert masks_of(matcher) == [{ord("\n"), ord("("), TEXTS.texts.index(b"(a")}]
        accept(matcher, b"\n(ab")
        assert END_ID not in masks_of(matcher)[0]
        accept(matcher, b")")
        assert END_ID in masks_of(matcher)[0]
    accept(matcher, b"<<")
    with pytest.raises(GrammarError, match="isn't allowed"):
        matcher.accept(ord("x"))


def test_what_runs_over_an_opener_must_fit(call: FreshMatcher) -> None:
    """A token may complete an opener and go on: then it goes on as the grammar says, and that counts."""
    matcher = begin(call, OPENED)
    accept(matcher, b"a<")
    assert forbidden(matcher) == {b"<)", b"x<<)"}
    accept(matcher, b"{<(a}")
    assert masks_of(matcher)[0] == {*b"abc)"}
    accept(matcher, b"){x<<(}")
    assert masks_of(matcher)[0] == {*b"abc"}
    accept(matcher, b"b)<{<\n}")
    assert masks_of(matcher)[0] == {ord("\n"), ord("("), TEXTS.texts.index(b"(a")}


def test_control_tokens_count_as_text_only_where_they_are_looked_for(call: FreshMatcher) -> None:
    matcher = begin(call, Trigger(openers=(b"<t>",)))
    for token_id in (CLOSE_ID, ord("<"), CLOSE_ID, ord("t"), OPEN_ID):
        assert END_ID in masks_of(matcher)[0]
        matcher.accept(token_id)
    assert END_ID not in masks_of(matcher)[0]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (b"<t> << </t> <<", True),
        (b"\n <t><<", False),
        (b"<t></t", False),
        (b"x<t><<", True),
        (b"x<t></t><<", True),
        (b"<t></t><t><<", True),
        (b"<<", True),
    ],
)
def test_nothing_begins_in_reasoning_which_comes_first_or_never(call: FreshMatcher, text: bytes, holds: bool) -> None:
    matcher = begin(call, THINKING)
    accept(matcher, text)
    assert (END_ID in masks_of(matcher)[0]) is not holds
    opened = begin(call, Trigger(openers=(OPENER,), thoughts=(b"<t>", b"</t>"), is_open=True))
    accept(opened, b"<< <t> </t")
    assert END_ID in masks_of(opened)[0]
    accept(opened, b"><<")
    assert END_ID not in masks_of(opened)[0]


def test_a_head_is_looked_out_for_at_the_beginning_and_forbids_what_it_would_lead_astray(bare: FreshMatcher) -> None:
    for other in (b"x(a", b"\n\nx", b"(b)", b"(", b"\n"):
        matcher = begin(bare, OPENED)
        accept(matcher, other)
        assert END_ID in masks_of(matcher)[0], other
    for text in (b"(a", b"\n\n(a", b"{(a}", b"x<<(a", b"<{<(a}", b"(b<<\n(a"):
        matcher = begin(bare, OPENED)
        accept(matcher, text)
        assert masks_of(matcher)[0] == {*b"abc)"}, text
        accept(matcher, b"bc)")
        assert masks_of(matcher)[0] == {END_ID}


def test_reasoning_has_the_answers_beginning_behind_it(bare: FreshMatcher) -> None:
    trigger = Trigger(thoughts=(b"<t>", b"</t>"), is_open=True)
    for text in (b"(a</t>\n(a", b"(a</t{>(}a"):
        matcher = begin(bare, trigger)
        accept(matcher, text)
        assert masks_of(matcher)[0] == {*b"abc)"}
    matcher = begin(bare, trigger)
    accept(matcher, b"</t{>!}(a")
    assert END_ID in masks_of(matcher)[0]


def test_an_answer_that_cannot_end_goes_on_freely(bare: FreshMatcher) -> None:
    matcher = begin(bare, OPENED, ends=False)
    accept(matcher, b"(ab) and so on")
    assert ord("(") in masks_of(matcher)[0]


def test_min_tokens_hold_the_end_back_in_free_text_too(call: FreshMatcher) -> None:
    matcher = begin(call, OPENED, min_tokens=8)
    for text, may_end in ((b"x<<", False), (b"(a)", False), (b"xx", True)):
        accept(matcher, text)
        assert (END_ID in masks_of(matcher)[0]) is may_end


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_guesses_see_what_would_be_seen_and_leave_no_trace(
    call: FreshMatcher, bare: FreshMatcher, data: st.DataObject
) -> None:
    fresh, trigger = data.draw(st.sampled_from([(call, OPENED), (call, THINKING), (bare, OPENED), (bare, THINKING)]))
    chance = Random(data.draw(st.integers(0, 2**32)))
    taken: list[int] = []

    def follower() -> Matcher:
        matcher = begin(fresh, trigger, min_tokens=3)
        for token_id in taken:
            matcher.accept(token_id)
        return matcher

    guessing = follower()
    while len(taken) < 12:
        likely = [*b"<<<((aab))\nx", *range(256, 256 + len(RUNS)), OPEN_ID, CLOSE_ID, END_ID]
        drafts = [chance.choice(likely) for _ in range(chance.randrange(4))]
        ahead = follower()
        for draft, mask in zip([*drafts, None], masks_of(guessing, *drafts), strict=True):
            assert mask == masks_of(ahead)[0]
            if draft is None or draft == END_ID or draft not in mask:
                break
            ahead.accept(draft)
        allowed = [token_id for token_id in likely if token_id in masks_of(guessing)[0] - {END_ID}]
        if not allowed:
            break
        taken.append(chance.choice(allowed))
        guessing.accept(taken[-1])
