"""What both kinds of engine tell of themselves while they run, and when one took another's place."""

import os
import signal
from collections.abc import Iterator

import pytest
from engine_fixtures import Receiver, generate, scripted_config, wait_until
from process_fixtures import pid_of, start
from scripted_child import SLOW

from freehold.backends.script import Break, Scripts
from freehold.engine.client import Engine
from freehold.engine.handle import EngineHandle
from freehold.observe.state import EngineState


@pytest.fixture(params=["thread", "process"])
def either(request: pytest.FixtureRequest) -> Iterator[EngineHandle]:
    engine: EngineHandle = Engine.start(scripted_config()) if request.param == "thread" else start()
    with engine:
        yield engine


def ask(engine: EngineHandle, name: str, *prompt: int, max_tokens: int = 5) -> Receiver:
    receiver = Receiver()
    engine.submit(generate(name, prompt, max_tokens=max_tokens), receiver)
    return receiver


def settled(engine: EngineHandle, num_sampled: int) -> EngineState:
    """The snapshot after so many ids."""

    def is_settled() -> bool:
        state = engine.state()
        return state is not None and state.num_running == 0 and state.sampled_total >= num_sampled

    wait_until(is_settled)
    state = engine.state()
    assert state is not None
    return state


def test_totals_are_those_of_the_requests(either: EngineHandle) -> None:
    finishes = [ask(either, str(i), *range(3, 3 + 20 * i), max_tokens=4).wait() for i in range(1, 5)]
    state = settled(either, 16)
    assert state.sampled_total == either.ledger().published_ids == 16
    assert state.prefix_queries_total == sum(finish.num_prompt_tokens for finish in finishes) == 200
    assert state.prefix_hits_total == sum(finish.num_cached_tokens for finish in finishes) > 0
    assert state.computed_total + state.prefix_hits_total == 200 + 4 * 3
    assert sum(state.iteration_tokens) == state.steps_total
    assert state.kv.num_blocks == either.info.num_blocks
    assert state.kv.cached == sum(num_blocks for _, num_blocks in state.kv.by_namespace) > 0


def test_stages_come_with_each_finish(either: EngineHandle) -> None:
    stages = ask(either, "a", 1, 2, 3).wait().stages
    assert stages is not None
    assert stages.started_s is not None
    assert stages.first_token_s is not None
    assert stages.arrived_s <= stages.started_s <= stages.first_token_s <= stages.ended_s
    assert stages.num_preemptions == 0


def test_seconds_go_on_and_all_time_is_some_part_of_the_loop(either: EngineHandle) -> None:
    ask(either, "a", 1, 2, 3, max_tokens=200).wait()
    first = settled(either, 200)
    wait_until(lambda: (state := either.state()) is not None and state.at_s > first.at_s + 0.3)
    second = either.state()
    assert second is not None
    parts = ("plan", "run", "apply", "idle")
    before, after = (tuple(getattr(s.step_seconds, part) for part in parts) for s in (first, second))
    assert all(x <= y for x, y in zip(before, after, strict=True))
    assert after[3] > before[3]
    assert sum(after) - sum(before) == pytest.approx(second.at_s - first.at_s)


def test_totals_go_on_when_the_process_is_started_again() -> None:
    with start() as engine:
        ask(engine, "a", *range(40), max_tokens=30).wait()
        before = settled(engine, 30)
        slow = ask(engine, "b", SLOW, 1, max_tokens=4000)
        wait_until(lambda: (state := engine.state()) is not None and state.num_running == 1)
        os.kill(pid_of(engine), signal.SIGKILL)
        assert slow.wait().stages is None
        gone = engine.state()
        assert gone is not None
        assert gone.num_running == gone.waiting.total == gone.kv.held == gone.kv.cached == 0
        assert gone.sampled_total >= before.sampled_total == 30
        wait_until(lambda: engine.health().ok)
        ask(engine, "c", *range(40), max_tokens=7).wait()
        after = settled(engine, gone.sampled_total + 7)
        assert after.sampled_total == gone.sampled_total + 7
        assert after.prefix_queries_total == gone.prefix_queries_total + 40
        assert after.step_seconds.idle >= gone.step_seconds.idle


def test_an_engine_that_breaks_while_it_waits_for_a_step_ends_and_still_tells() -> None:
    scripts = Scripts()
    scripts.add((1, 2), [5, Break()])
    with Engine.start(scripted_config(), scripts=scripts) as engine:
        assert ask(engine, "a", 1, 2).wait().code == "engine_failed"
        wait_until(lambda: bool(engine.fault))
        assert "scripted failure of the backend" in engine.fault
        assert engine.state().steps_total > 0
