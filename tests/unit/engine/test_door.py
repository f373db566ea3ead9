"""The engine's door: limits on what waits, exact under many threads, and for requests that belong together."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from engine_fixtures import Receiver, generate, scripted_config, wait_until
from process_fixtures import pid_of, start, submit, works
from scripted_child import SLOW

from freehold.backends.script import Gate, Scripts
from freehold.engine.client import Engine
from freehold.errors import EngineError


@pytest.fixture
def scripts() -> Scripts:
    return Scripts()


@pytest.fixture
def gate(scripts: Scripts) -> Iterator[threading.Event]:
    """Nothing is answered before it opens."""
    event = threading.Event()
    scripts.add_rule(lambda _: True, lambda prompt_ids: [Gate(event), *prompt_ids])
    yield event
    event.set()


def refusal(call, *arguments) -> EngineError:
    with pytest.raises(EngineError) as refused:
        call(*arguments)
    assert refused.value.code == "queue_full"
    return refused.value


def test_so_many_may_wait_and_no_more(scripts: Scripts, gate: threading.Event) -> None:
    with Engine.start(scripted_config(max_num_seqs=2, max_num_queued_reqs=3), scripts=scripts) as engine:
        receivers = [Receiver() for _ in range(5)]
        for i, receiver in enumerate(receivers):
            engine.submit(generate(str(i), (5, 6)), receiver)
        error = refusal(engine.submit, generate("6", (5, 6)), Receiver())
        assert "3 requests wait and 1 more would; 3 may (--max-num-queued-reqs)" in str(error)
        engine.abort(generate("4", ()).request_id)
        receivers[4].wait()
        engine.submit(generate("7", (5, 6)), receivers.append(Receiver()) or receivers[-1])
        gate.set()
        for receiver in receivers:
            receiver.wait()
        assert engine._door.num_inside == 0
        ledger = engine.ledger()
    assert (ledger.received, ledger.refused, ledger.accepted) == (7, 1, 6)


def test_limits_are_exact_under_many_threads(scripts: Scripts, gate: threading.Event) -> None:
    """Forty threads at once for eight places; singles and groups, which get in whole or not at all."""
    config = scripted_config(max_num_seqs=3, max_num_queued_reqs=5)
    with Engine.start(config, scripts=scripts) as engine, ThreadPoolExecutor(40) as pool:
        barrier = threading.Barrier(40)
        codes: set[str] = set()

        def come(i: int) -> list[Receiver]:
            group = [generate(f"{i}.{j}", (i, 5)) for j in range(1 + i % 3)]
            receivers = [Receiver() for _ in group]
            barrier.wait(60)
            try:
                if len(group) == 1:
                    engine.submit(group[0], receivers[0])
                else:
                    with engine.reserve(len(group)) as places:
                        places.fill(group)
                        for one, receiver in zip(group, receivers, strict=True):
                            engine.submit(one, receiver)
            except EngineError as error:
                codes.add(error.code)
                return []
            return receivers

        inside = [receiver for receivers in pool.map(come, range(40)) for receiver in receivers]
        assert 6 <= len(inside) <= 8, "two places may be left that no group of three fits into"
        assert engine.num_live == len(inside)
        assert codes == {"queue_full"}
        gate.set()
        for receiver in inside:
            receiver.wait()
        assert engine._door.num_inside == 0
        assert engine.ledger().received == sum(1 + i % 3 for i in range(40))


def test_prompts_that_wait_to_be_computed_are_limited(scripts: Scripts, gate: threading.Event) -> None:
    with Engine.start(scripted_config(max_num_queued_tokens=50), scripts=scripts) as engine:
        first, second, third = Receiver(), Receiver(), Receiver()
        engine.submit(generate("long", (5,) * 80, max_tokens=1), first)
        error = refusal(engine.submit, generate("short", (5,)), Receiver())
        assert "80 tokens of prompts wait to be computed and 1 more would; 50 may" in str(error)
        gate.set()
        first.wait()
        engine.submit(generate("one", (5,) * 30), second)
        engine.submit(generate("two", (5,) * 20), third)
        for receiver in (second, third):
            receiver.wait()


def test_places_are_kept_until_the_context_is_left(scripts: Scripts, gate: threading.Event) -> None:
    """Before the requests are known, while they run, and while somebody is still busy with their answers."""
    with Engine.start(scripted_config(max_num_seqs=1, max_num_queued_reqs=1), scripts=scripts) as engine:
        gate.set()
        with engine.reserve(2) as places:
            refusal(engine.reserve, 1)
            refusal(engine.submit, generate("x", (5,)), Receiver())
            group = [generate("a", (5,)), generate("b", (5,))]
            places.fill(group)
            refusal(engine.submit, generate("x", (5,)), Receiver())
            receiver = Receiver()
            engine.submit(group[0], receiver)
            receiver.wait()
            refusal(engine.submit, generate("x", (5,)), Receiver())
        assert engine._door.num_inside == 0, "neither the one that ended nor the one that never came"
        running = Receiver()
        with engine.reserve(1) as places:
            places.fill(group[:1])
            engine.submit(group[0], running)
        running.wait()
        wait_until(lambda: engine._door.num_inside == 0)
        with engine.reserve(2):
            pass
        engine.submit(generate("y", (5,)), receiver := Receiver())
        receiver.wait()


def test_a_group_too_large_for_what_is_left_leaves_no_trace(scripts: Scripts, gate: threading.Event) -> None:
    config = scripted_config(max_num_seqs=4, max_num_queued_tokens=50)
    with Engine.start(config, scripts=scripts) as engine:
        engine.submit(generate("first", (5,) * 40), receiver := Receiver())
        with engine.reserve(2) as places:
            refusal(places.fill, [generate("a", (6,) * 9), generate("b", (7,) * 9)])
        assert engine._door.num_inside == 1
        gate.set()
        receiver.wait()


def test_without_limits_nobody_is_refused(scripts: Scripts, gate: threading.Event) -> None:
    with Engine.start(scripted_config(max_num_seqs=1), scripts=scripts) as engine:
        receivers = [Receiver() for _ in range(300)]
        for i, receiver in enumerate(receivers):
            engine.submit(generate(str(i), (5,), max_tokens=1), receiver)
        gate.set()
        assert {receiver.wait().reason for receiver in receivers} == {"length"}


def test_an_engine_in_a_process_has_the_same_door_and_its_death_empties_it() -> None:
    """Waiting, running, and in places that somebody keeps."""
    engine = start(max_num_seqs=2, max_num_queued_reqs=2)
    try:
        receivers = [submit(engine, str(i), (SLOW, i), max_tokens=4000) for i in range(2)]
        with engine.reserve(2) as places:
            places.fill([generate("a", (SLOW, 5), max_tokens=4000), generate("b", (5,))])
            receivers.append(submit(engine, "a", (SLOW, 5), max_tokens=4000))
            refusal(submit, engine, "x", (5,))
            os.kill(pid_of(engine), signal.SIGKILL)
            assert [receiver.wait().code for receiver in receivers] == ["engine_died"] * 3
        works(engine)
        assert engine._door.num_inside == 0
        with engine.reserve(4):
            refusal(submit, engine, "x", (5,))
        works(engine)
    finally:
        engine.shutdown()
    assert engine.ledger().failed == 3
