"""Rounds of several steps: when there are any, and that requests notice nothing of them."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from engine_fixtures import Receiver, generate, scripted_config

from freehold.backends.script import FailStep, Gate, NotFinite, Scripts
from freehold.engine.client import Engine
from freehold.engine.rounds import BATCH_ROUND_S, LEAST_STEP_S, MOST_STEPS, OUTPUT_PER_STEP, ROUND_S, Rounds
from freehold.faults import Forced, Switch, armed
from freehold.kv.blocks import BlockPool
from freehold.protocol import RequestId, ServiceClass
from freehold.sched.admission import Limits
from freehold.sched.pace import StepPace
from freehold.sched.plan import RowOutcome
from freehold.sched.scheduler import Scheduler

LIMITS = Limits(max_model_len=1000, vocab_size=100, block_size=16, max_num_seqs=2, max_num_batched_tokens=64)
STOP_ID = 2
SHORT_S = ROUND_S / (MOST_STEPS + 0.5)


class Grown:
    """A scheduler whose requests have had some ids, and its rounds."""

    def __init__(self, num_output: int, *requests: dict[str, Any], service: ServiceClass = "interactive") -> None:
        self.pace = StepPace(0.1)
        self.scheduler = Scheduler(BlockPool(200), LIMITS, clock=lambda: 0.0, pace=self.pace)
        self.rounds = Rounds(self.scheduler, self.pace)
        for number, sampling in enumerate(requests):
            self.scheduler.add(generate(str(number), (5,), max_tokens=900, service=service, **sampling))
        for _ in range(num_output):
            plan = self.scheduler.plan()
            self.scheduler.apply(plan, [RowOutcome([7]) for _ in plan.rows])

    def num_steps(self, step_s: float) -> int:
        self.pace.observe(1, step_s)
        return self.rounds.num_steps(self.scheduler.plan())


@pytest.mark.parametrize(
    ("step_s", "num_steps"),
    [(LEAST_STEP_S / 2, 1), (SHORT_S, MOST_STEPS), (ROUND_S / 2.5, 2), (ROUND_S / 1.5, 1), (3 * ROUND_S, 1)],
)
def test_a_round_has_as_many_steps_as_last_no_longer_than_it_may(step_s: float, num_steps: int) -> None:
    assert Grown(1, {}, {}).num_steps(step_s) == num_steps


@pytest.mark.parametrize(("step_s", "num_steps"), [(2 * ROUND_S, 4), (BATCH_ROUND_S / 2.5, 2), (BATCH_ROUND_S, 1)])
def test_rounds_are_longer_until_somebody_reads(step_s: float, num_steps: int) -> None:
    assert Grown(1, {}, service="batch").num_steps(step_s) == num_steps
    assert Grown(1, {}).num_steps(step_s) == 1


def test_who_has_read_once_may_come_again() -> None:
    grown = Grown(1, {}, service="batch")
    grown.scheduler.add(generate("reader", (5,), max_tokens=1))
    grown.num_steps(SHORT_S)
    assert grown.num_steps(2 * ROUND_S) == 1


@pytest.mark.parametrize("num_output", [1, OUTPUT_PER_STEP - 1, OUTPUT_PER_STEP, 2 * OUTPUT_PER_STEP, 500])
def test_what_may_stop_goes_ahead_by_what_it_has(num_output: int) -> None:
    wanted = min(MOST_STEPS, 1 + num_output // OUTPUT_PER_STEP)
    assert Grown(num_output, {}, {"stop_ids": frozenset({STOP_ID})}).num_steps(SHORT_S) == wanted


@pytest.mark.parametrize("other", [{"presence_penalty": 0.5}, {"allowed_ids": (3, 4)}])
def test_who_needs_the_host_for_each_id_keeps_rounds_short(other: dict[str, Any]) -> None:
    assert Grown(1, {}, other).num_steps(SHORT_S) == 1


def test_nobody_waits_for_more_than_a_step_to_be_planned() -> None:
    assert Grown(1, {}, {}, {}).num_steps(SHORT_S) == 1, "one of three has no row"
    grown = Grown(1, {})
    grown.scheduler.add(generate("prompt", (5,) * 40, max_tokens=1))
    assert grown.num_steps(SHORT_S) == 1, "a prompt is computed"


# ---------------------------------------------------------------------- through the engine


@pytest.fixture
def engine(scripts: Scripts) -> Iterator[Engine]:
    config = scripted_config(max_model_len=400, max_num_seqs=4, kv_cache_bytes=64 << 14)
    with Engine.start(config, scripts=scripts) as engine, armed(Forced(Switch.ROUNDS), Forced(Switch.CHECK)):
        yield engine
    assert engine._core.progress.fault == ""
    engine.ledger().check(0)


def dropped(engine: Engine) -> int:
    return engine._core._scheduler.counts.dropped


@pytest.mark.parametrize("length", range(96, 96 + 2 * MOST_STEPS))
def test_a_stop_anywhere_in_a_round_ends_the_answer_there(engine: Engine, scripts: Scripts, length: int) -> None:
    script = [*range(3, 3 + length - 1), STOP_ID, 9, 9]
    scripts.add((5,), script)
    beside, stopped = Receiver(), Receiver()
    engine.submit(generate("beside", (6, 7), max_tokens=150, digests=True), beside)
    engine.submit(generate("a", (5,), max_tokens=300, stop_ids=frozenset({STOP_ID})), stopped)
    assert stopped.wait().reason == "stop"
    assert stopped.token_ids == script[:length]
    assert beside.wait().num_output_tokens == 150
    assert beside.token_ids == [6, 7] * 75
    assert dropped(engine) <= 2 * MOST_STEPS


@pytest.mark.parametrize(
    ("effect", "code", "num_ids"), [(NotFinite(), "numeric_error", 41), (FailStep(), "step_failed", 41)]
)
@pytest.mark.parametrize("offset", range(MOST_STEPS))
def test_what_fails_in_a_round_ends_its_own_request(
    engine: Engine, scripts: Scripts, effect: NotFinite | FailStep, code: str, num_ids: int, offset: int
) -> None:
    scripts.add((5,), [*[7] * (num_ids + offset), effect, *[8] * 100])
    failing, later = Receiver(), Receiver()
    engine.submit(generate("failing", (5,), max_tokens=100), failing)
    finish = failing.wait()
    assert (finish.reason, finish.code) == ("failed", code)
    assert failing.token_ids == [7] * (num_ids + offset)
    engine.submit(generate("later", (6,), max_tokens=50), later)
    assert later.wait().reason == "length"
    assert later.token_ids == [6] * 50


def test_who_comes_or_goes_during_a_round_is_served_as_ever(engine: Engine, scripts: Scripts) -> None:
    gate = Gate(threading.Event())
    scripts.add((5,), [*[7] * 50, gate, *[8] * 300])
    long, late = Receiver(), Receiver()
    engine.submit(generate("long", (5,), max_tokens=300), long)
    assert long.first.wait(60)
    engine.submit(generate("late", (6, 7), max_tokens=20), late)
    gate.event.set()
    assert late.wait().reason == "length"
    assert late.token_ids == [6, 7] * 10
    engine.abort(RequestId("long"))
    assert long.wait().reason in {"cancelled", "length"}
    assert long.token_ids == ([7] * 50 + [8] * 250)[: len(long.token_ids)]
