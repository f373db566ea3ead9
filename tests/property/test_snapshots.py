"""What the engine tells of itself agrees with the scheduler's own accounts, step by step over random traces."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from scheduler_loop import Loop
from scheduler_trace import Case, Run, Trace
from snapshot_check import check_state
from test_scheduler import traces

from freehold.backends.base import BackendOptions
from freehold.backends.script import Scripts
from freehold.engine.snapshot import LoopCounts, snapshot
from freehold.observe.state import TOTALS, EngineState, Waiting, continued, without_load
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, Tokens


class Told(Run):
    """A run with a snapshot after every step, and what the clock said when things happened."""

    def __init__(self, trace: Trace) -> None:
        self.arrived: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.ended: dict[str, Finish] = {}
        super().__init__(trace)
        self._counts = LoopCounts(lambda: self.loop.now_s)

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Tokens):
                self.first.setdefault(event.request_id, self.loop.now_s)
            elif isinstance(event, Finish):
                assert event.stages is not None
                assert event.stages.ended_s == self.loop.now_s
                self.ended[event.request_id] = event
        super()._take(events)

    def states(self) -> list[EngineState]:
        """To the end of the run."""
        loop, states = self.loop, []
        is_over = False
        while not is_over:
            now_s, num_before = loop.now_s, loop.num_submitted
            is_over = not self.step()
            if num_steps := loop.num_submitted - num_before:
                self._counts.submitted(loop.scheduler.counts.submitted, num_steps)
            for request in loop.scheduler.live.values():
                self.arrived.setdefault(request.generate.request_id, now_s)
            for request in loop.scheduler.running:
                self.started.setdefault(request.generate.request_id, now_s)
            states.append(snapshot(loop.scheduler, self._counts, loop.now_s))
            check_state(states[-1], loop.scheduler)
        return states


@settings(max_examples=40, deadline=None)
@given(traces())
def test_snapshots_are_the_schedulers_accounts(trace: Trace) -> None:
    told = Told(trace)
    states = told.states()
    last = states[-1]
    scheduler = told.scheduler
    assert last.num_running == last.waiting.total == last.kv.held == 0
    assert last.sampled_total == sum(len(result.token_ids) for result in told.results)
    assert last.steps_total == told.loop.num_submitted
    assert last.prefix_hits_total == sum(f.num_cached_tokens for f in told.ended.values())
    assert last.prefix_queries_total == sum(
        f.num_prompt_tokens for f in told.ended.values() if f.stages and f.stages.started_s is not None
    )
    assert last.preemptions_total == sum(f.stages.num_preemptions for f in told.ended.values() if f.stages)
    assert (last.drafts_total, last.draft_tokens_total, last.accepted_tokens_total) == (
        scheduler.drafts.rows, scheduler.drafts.guessed, scheduler.drafts.accepted,
    )  # fmt: skip
    assert sum(last.accepted_by_place) == last.accepted_tokens_total <= last.draft_tokens_total
    if trace.guess_rate is None:
        assert last.drafts_total == 0
    for before, after in pairwise(states):
        for name in ("computed_total", "recomputed_total", "sampled_total", "steps_total", "preemptions_total"):
            assert getattr(before, name) <= getattr(after, name)


@settings(max_examples=40, deadline=None)
@given(traces())
def test_stages_are_when_it_happened(trace: Trace) -> None:
    """As seen from outside: a request's arrival, the first step that held it, its first ids, its end."""
    told = Told(replace(trace, step_s=1.0))
    told.states()
    assert len(told.ended) == len(trace.cases)
    for name, finish in told.ended.items():
        stages = finish.stages
        assert stages is not None
        if name in told.arrived:
            assert stages.arrived_s == told.arrived[name]
        if name in told.started:  # who started and ended within one step was never seen running
            assert stages.started_s == told.started[name]
        assert stages.first_token_s == told.first.get(name)
        moments = [stages.arrived_s, stages.started_s, stages.first_token_s, stages.ended_s]
        known = [moment for moment in moments if moment is not None]
        assert known == sorted(known)
        assert stages.started_s is not None or not finish.num_output_tokens


def test_right_and_wrong_guesses_are_counted() -> None:
    """sp-04: by their place in the row."""
    cases = [Case(num_prompt=2, num_answer=40, max_tokens=40, stops=False) for _ in range(3)]
    right = Told(Trace(cases, num_blocks=60, budget=100, guess_rate=1.0)).states()[-1]
    assert right.drafts_total > 0
    assert right.accepted_tokens_total == right.draft_tokens_total > 0
    assert list(right.accepted_by_place) == sorted(right.accepted_by_place, reverse=True)
    assert right.accepted_by_place[0] == right.drafts_total
    wrong = Told(Trace(cases, num_blocks=60, budget=100, guess_rate=0.0)).states()[-1]
    assert wrong.draft_tokens_total > 0
    assert wrong.accepted_tokens_total == sum(wrong.accepted_by_place) == 0


# ------------------------------------------------------------------ what waiting requests wait for


def loop_of(*, rows: int = 4, budget: int = 64, num_blocks: int = 64, prefix_caching: bool = True) -> Loop:
    options = BackendOptions(num_blocks, 4, rows, budget)
    return Loop(options, Scripts(), take=lambda events: None, prefix_caching=prefix_caching)


def ask(loop: Loop, *names: str, num_prompt: int = 8, shared: bool = False, service: str = "interactive") -> None:
    for name in names:
        first = 7 if shared else 100 + len(loop.scheduler.live)
        loop.add(
            Generate(
                request_id=RequestId(name),
                prompt_ids=(first,) * num_prompt,
                sampling=Sampling(max_tokens=30),
                service=service,
            )
        )


def waiting(loop: Loop) -> Waiting:
    return snapshot(loop.scheduler, LoopCounts(lambda: 0.0), 0.0).waiting


def test_waiting_for_rows() -> None:
    loop = loop_of(rows=2)
    ask(loop, *"abcde")
    loop.step()
    assert waiting(loop) == Waiting(rows=3)


def test_waiting_for_blocks() -> None:
    loop = loop_of(num_blocks=10)
    ask(loop, "a", num_prompt=28)
    ask(loop, "b", "c", num_prompt=12)
    for _ in range(3):  # from the second on it is known without looking
        loop.step()
        assert waiting(loop) == Waiting(blocks=2)


def test_waiting_for_the_tokens_of_a_step() -> None:
    loop = loop_of(budget=16)
    ask(loop, "a", num_prompt=100)
    ask(loop, "b", "c")
    loop.step()
    assert waiting(loop) == Waiting(tokens=2)
    assert snapshot(loop.scheduler, LoopCounts(lambda: 0.0), 0.0).num_prefilling == 1


def test_waiting_for_a_leader() -> None:
    """Those that follow wait for it, and whoever comes behind them doesn't."""
    loop = loop_of(budget=16)
    ask(loop, "a", "b", "c", num_prompt=40, shared=True)
    loop.step()
    assert waiting(loop).tokens == 2  # nobody has looked yet
    loop = loop_of(budget=41)
    ask(loop, "a", "b", "c", num_prompt=40, shared=True)
    loop.step()
    assert waiting(loop) == Waiting(leader=2)


def test_waiting_for_a_grammar() -> None:
    loop = loop_of()
    held = Generate(request_id=RequestId("held"), prompt_ids=(1, 2), sampling=Sampling(max_tokens=3))
    loop.scheduler.add(held, is_held=True)
    ask(loop, "a")
    loop.step()
    assert waiting(loop) == Waiting(grammar=1)
    loop.scheduler.let_go(held)
    loop.step()
    assert waiting(loop) == Waiting()


def test_waiting_for_the_next_step_and_for_more_urgent_ones() -> None:
    loop = loop_of()
    ask(loop, "a", "b")
    assert waiting(loop) == Waiting(order=2)
    loop.step()
    assert waiting(loop) == Waiting()
    ask(loop, "c", service="batch")
    loop.step()
    assert waiting(loop) == Waiting(order=1)


@pytest.mark.parametrize("name", TOTALS)
def test_each_total_goes_on_from_an_engine_that_ended(name: str) -> None:
    def told() -> EngineState:
        return Told(Trace([Case(6, 9, 9, stops=False)] * 3, num_blocks=40, guess_rate=0.5, seed=3)).states()[-1]

    first, second = told(), told()
    state = continued(without_load(first, 1.0), second)
    before, after = (msgspec.to_builtins(getattr(s, name)) for s in (second, state))
    pairs = zip(before, after, strict=True) if isinstance(before, list | tuple) else [(before, after)]
    assert all(b == 2 * a for a, b in pairs)
