"""What sampling needs from the scheduler, over random traces: log probabilities of prompts and answers, contexts for
penalties, masks. The scripted model checks every row; here is checked what comes out."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_loop import VOCAB_SIZE, Loop

from freehold.backends.base import BackendOptions
from freehold.backends.referee import CHAIN_START, extend_chain
from freehold.backends.script import FailStep, Item, Scripts, made_up_logprobs
from freehold.engine import masks as masks_module
from freehold.engine.masks import Mask
from freehold.faults import EveryNth, Forced, Switch, armed
from freehold.protocol import Event, Finish, Generate, Logprobs, PromptLogprobs, RequestId, Sampling, Tokens
from freehold.sched.check import check_idle

MAX_LEN = 32


@dataclass(frozen=True)
class Case:
    """One request: its prompt begins with `num_shared` ids that others' prompts begin with, too. Equal prompts may be
    of a family."""

    num_prompt: int
    num_shared: int
    max_tokens: int
    sampling: Sampling
    has_family: bool = False
    fails_at: int | None = None
    arrives_at: int = 0
    abort_at: int | None = None


@dataclass
class Result:
    """What one request got."""

    scores: list[Logprobs] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    finish: Finish | None = None


def prompt_of(index: int, case: Case) -> tuple[int, ...]:
    shared, own = random.Random("shared"), random.Random(index)
    ids = [shared.randrange(VOCAB_SIZE) for _ in range(case.num_shared)]
    return (*ids, index, *(own.randrange(VOCAB_SIZE) for _ in range(case.num_prompt)))[: case.num_prompt]


def answer_of(prompt: Sequence[int]) -> list[int]:
    source = random.Random(str(prompt))
    return [source.randrange(VOCAB_SIZE) for _ in range(MAX_LEN)]


class Run:
    """Runs requests to the end, checking each event as it comes."""

    def __init__(
        self, cases: Sequence[Case], options: BackendOptions, *, guess_rate: float | None, prefix_caching: bool = True
    ) -> None:
        self.cases = cases
        self.prompts = [prompt_of(i, case) for i, case in enumerate(cases)]
        self.results = [Result() for _ in cases]
        self._guess_rate, self._random = guess_rate, random.Random(0)
        scripts = Scripts()
        for prompt, case in zip(self.prompts, cases, strict=True):
            items: list[Item] = [*answer_of(prompt)]
            if case.fails_at is not None:
                items.insert(case.fails_at, FailStep())
            scripts.add(prompt, items)
        proposer = None if guess_rate is None else self
        self.loop = Loop(options, scripts, take=self._take, proposer=proposer, prefix_caching=prefix_caching)

    def propose(self, ids: Sequence[int], max_drafts: int) -> Sequence[int]:
        """Guess the answer, and be wrong at times."""
        prompt = next(prompt for prompt in self.prompts if tuple(ids[: len(prompt)]) == prompt)
        following = answer_of(prompt)[len(ids) - len(prompt) :][: min(3, max_drafts)]
        return [t if self._random.random() < (self._guess_rate or 0) else (t + 1) % VOCAB_SIZE for t in following]

    def run(self) -> "Run":
        scheduler = self.loop.scheduler
        for now in range(20000):
            for index, case in enumerate(self.cases):
                if case.arrives_at == now:
                    self.loop.add(
                        Generate(
                            request_id=RequestId(str(index)),
                            prompt_ids=self.prompts[index],
                            sampling=case.sampling,
                            family=str(self.prompts[index]) if case.has_family else "",
                        )
                    )
                if case.abort_at == now:
                    self.loop.take(scheduler.abort(RequestId(str(index))))
            self.loop.step()
            if not scheduler.has_work and now > max(max(c.arrives_at, c.abort_at or 0) for c in self.cases):
                check_idle(scheduler)
                assert len(self.loop.masks) == 0
                return self
        raise AssertionError("no progress")

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            result = self.results[int(event.request_id)]
            assert result.finish is None, "an event after the last"
            if isinstance(event, PromptLogprobs):
                assert event.logprobs
                assert not result.token_ids, "the prompt comes before the answer"
                assert event.start_pos == 1 + len(result.scores), "each position once, in order"
                result.scores += event.logprobs
            elif isinstance(event, Tokens):
                assert event.token_ids
                result.token_ids += event.token_ids
                result.logprobs += event.logprobs
            else:
                result.finish = event


def logprobs_of(ids: Sequence[int], first: int, num_top: int | None) -> list[Logprobs]:
    """What the scripted model says of the ids from position `first` on."""
    if num_top is None:
        return []
    chain, found = CHAIN_START, []
    for pos, token_id in enumerate(ids):
        if pos >= first:
            found.append(made_up_logprobs(chain, token_id, num_top, VOCAB_SIZE))
        chain = extend_chain(chain, token_id)
    return found


def check_results(run: Run) -> None:
    is_failing = any(case.fails_at is not None for case in run.cases)
    for case, prompt, result in zip(run.cases, run.prompts, run.results, strict=True):
        sampling, ids = case.sampling, [*prompt, *result.token_ids]
        assert result.finish is not None
        assert result.finish.num_output_tokens == len(result.token_ids)
        scores = logprobs_of(prompt, 1, sampling.num_prompt_logprobs)
        assert result.scores == scores[: len(result.scores)]
        assert result.logprobs == logprobs_of(ids, len(prompt), sampling.num_logprobs)
        allowed = sampling.allowed_ids
        expected = [t if not allowed or t in allowed else min(allowed) for t in answer_of(prompt)]
        assert result.token_ids == expected[: len(result.token_ids)]
        if result.token_ids:
            assert len(result.scores) == len(scores)
        if not is_failing and case.abort_at is None:
            assert result.finish.reason == "length"
            assert len(result.token_ids) == case.max_tokens
            assert len(result.scores) == len(scores)
        if sampling.num_prompt_logprobs is not None and is_failing is False:
            assert result.finish.num_cached_tokens == 0


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_prompt_logprobs = draw(st.sampled_from([None, 0, 3]))
    num_prompt = draw(st.integers(1, MAX_LEN - 1 + (num_prompt_logprobs is not None)))
    max_tokens = draw(st.integers(int(num_prompt_logprobs is None), max(1, MAX_LEN - num_prompt)))
    max_tokens = min(max_tokens, MAX_LEN - num_prompt)
    sampling = Sampling(
        max_tokens=max_tokens,
        num_prompt_logprobs=num_prompt_logprobs,
        num_logprobs=draw(st.sampled_from([None, 0, 2])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.5])),
        allowed_ids=draw(st.sampled_from([(), (), (5, 998), tuple(range(0, VOCAB_SIZE, 2))])),
    )
    return Case(
        num_prompt=num_prompt,
        num_shared=draw(st.sampled_from([0, 9, 20])),
        max_tokens=max_tokens,
        sampling=sampling,
        has_family=draw(st.booleans()),
        fails_at=draw(st.sampled_from([None, None, None, None, 0, 3])),
        arrives_at=draw(st.integers(0, 20)),
        abort_at=draw(st.sampled_from([None, None, None, 5, 20])),
    )


@settings(max_examples=200, deadline=None)
@given(
    cases=st.lists(cases(), min_size=1, max_size=8),
    block_size=st.sampled_from([1, 4, 7]),
    is_tight=st.booleans(),
    max_rows=st.sampled_from([1, 3, 8]),
    budget=st.sampled_from([1, 5, 16, 1000]),
    guess_rate=st.sampled_from([None, None, 0.0, 0.7, 1.0]),
    prefix_caching=st.booleans(),
)
def test_everything_sampled_and_scored_is_reported_once(
    cases, block_size, is_tight, max_rows, budget, guess_rate, prefix_caching
) -> None:
    num_blocks = -(-MAX_LEN // block_size) * (1 if is_tight else 5)
    options = BackendOptions(num_blocks, block_size, max_rows, budget)
    check_results(Run(cases, options, guess_rate=guess_rate, prefix_caching=prefix_caching).run())


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_preempted_prompt_goes_on_scoring_where_it_was(every: int, prefix_caching: bool) -> None:
    """While another decodes. Chunks begin elsewhere after each preemption; without a cache all is computed again."""
    scoring = Sampling(max_tokens=2, num_prompt_logprobs=1)
    wanted = [Case(1, 0, 28, Sampling(max_tokens=28)), Case(28, 0, 2, scoring, arrives_at=2)]
    run = Run(wanted, BackendOptions(30, 4, 4, 4), guess_rate=None, prefix_caching=prefix_caching)
    with armed(Forced(Switch.PREEMPT, EveryNth(every))):
        run.run()
    assert run.loop.scheduler.num_preemptions > 0
    check_results(run)


@pytest.mark.parametrize("num_prompt", [1, 2, 31, 32])
@pytest.mark.parametrize("budget", [1, 7, 1000])
def test_a_prompt_alone_is_scored_and_may_fill_the_context(num_prompt: int, budget: int) -> None:
    case = Case(num_prompt, 0, 0, Sampling(max_tokens=0, num_prompt_logprobs=2))
    run = Run([case], BackendOptions(2, 16, 4, budget), guess_rate=None).run()
    check_results(run)
    assert run.loop.num_computed == num_prompt


def test_scoring_computes_a_cached_prompt_and_leaves_it_in_the_cache() -> None:
    plain, scoring = Sampling(max_tokens=1), Sampling(max_tokens=1, num_prompt_logprobs=0)
    run = Run(
        [Case(17, 16, 1, plain), Case(18, 16, 1, scoring, arrives_at=10), Case(19, 16, 1, plain, arrives_at=20)],
        BackendOptions(16, 4, 4, 100),
        guess_rate=None,
    ).run()
    check_results(run)
    assert [result.finish.num_cached_tokens for result in run.results if result.finish] == [0, 0, 16]
    again = Run(
        [Case(18, 16, 1, scoring), Case(19, 16, 1, plain, arrives_at=10)],
        BackendOptions(16, 4, 4, 100),
        guess_rate=None,
    ).run()
    assert [result.finish.num_cached_tokens for result in again.results if result.finish] == [0, 16]


WALK_LENGTH = 9


class Walking:
    """A matcher that allows two ids, which depend on the last one; after some ids it allows nothing."""

    def __init__(self) -> None:
        self._last, self._num_ids = 0, 0

    def fill(self, masks: Mask, drafts: Sequence[int]) -> None:
        for index, last in enumerate([self._last, *drafts]):
            if self._num_ids + index < WALK_LENGTH:
                for token_id in walk_after(last):
                    masks[index, token_id // 32] |= np.uint32(1 << token_id % 32)

    def accept(self, token_id: int) -> None:
        assert token_id in walk_after(self._last)
        self._last, self._num_ids = token_id, self._num_ids + 1


def walk_after(last: int) -> set[int]:
    return {(31 * last + 7) % VOCAB_SIZE, (17 * last + 3) % VOCAB_SIZE}


class WalkingRun(Run):
    """Guesses where the walk goes."""

    def propose(self, ids: Sequence[int], max_drafts: int) -> Sequence[int]:
        num_prompt = next(len(prompt) for prompt in self.prompts if tuple(ids[: len(prompt)]) == prompt)
        last, guesses = ([0, *ids[num_prompt:]])[-1], list[int]()
        for _ in range(min(4, max_drafts)):
            last = min(walk_after(last))
            guesses.append(last)
        return [t if self._random.random() < (self._guess_rate or 0) else 0 for t in guesses]


@pytest.mark.parametrize("guess_rate", [None, 0.0, 0.7, 1.0])
@pytest.mark.parametrize("budget", [2, 5, 100])
def test_a_mask_for_each_draft_and_an_end_where_nothing_is_allowed(
    monkeypatch: pytest.MonkeyPatch, guess_rate: float | None, budget: int
) -> None:
    """Whatever is guessed, the answer is the same, and ends after the same id."""
    monkeypatch.setattr(masks_module, "matcher_of", lambda *_request: Walking())
    sampling = Sampling(max_tokens=20, allowed_ids=(1,), num_logprobs=1, frequency_penalty=1.0)
    shorter = Sampling(max_tokens=WALK_LENGTH, allowed_ids=(1,))
    wanted = [Case(3 + i, 0, 20, shorter if i == 2 else sampling, arrives_at=i) for i in range(4)]
    run = WalkingRun(wanted, BackendOptions(40, 4, 4, budget), guess_rate=guess_rate).run()
    for index, (prompt, result) in enumerate(zip(run.prompts, run.results, strict=True)):
        walk: list[int] = []
        for token_id in answer_of(prompt)[:WALK_LENGTH]:
            allowed = walk_after(([0, *walk])[-1])
            walk.append(token_id if token_id in allowed else min(allowed))
        assert result.token_ids == walk
        assert result.logprobs == ([] if index == 2 else logprobs_of([*prompt, *walk], len(prompt), 1))
        assert result.finish is not None
        outcome = (result.finish.reason, result.finish.code)
        assert outcome == (("length", None) if index == 2 else ("failed", "mask_empty"))
