"""The engine through its client, over the scripted backend."""

import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from engine_fixtures import Receiver, generate, scripted_config, wait_until

from freehold.backends.script import Break, FailStep, Gate, NotFinite, Pause, Scripts
from freehold.engine.client import Engine
from freehold.engine.ledger import Ledger
from freehold.errors import EngineError, RequestError
from freehold.protocol import Event, RequestId

STOP_ID = 2


@pytest.fixture
def engine(scripted_engine: Engine) -> Engine:
    return scripted_engine


@pytest.fixture
def gate(engine: Engine) -> Iterator[threading.Event]:
    """Opened at the end, before the engine shuts down."""
    event = threading.Event()
    yield event
    event.set()


def held_blocks(engine: Engine) -> int:
    return engine._core._scheduler.pool.num_held


def test_echo_is_the_default_script(engine: Engine) -> None:
    receiver = Receiver()
    engine.submit(generate("a", (5, 6, 7), max_tokens=5), receiver)
    finish = receiver.wait()
    assert receiver.token_ids == [5, 6, 7, 5, 6]
    assert receiver.digests == []
    assert (finish.reason, finish.num_prompt_tokens, finish.num_output_tokens) == ("length", 3, 5)


def test_a_stop_id_ends_the_answer_and_is_reported(engine: Engine, scripts: Scripts) -> None:
    scripts.add((5,), [7, 8, STOP_ID, 9])
    receiver = Receiver()
    engine.submit(generate("a", (5,), max_tokens=100, stop_ids=frozenset({STOP_ID})), receiver)
    finish = receiver.wait()
    assert receiver.token_ids == [7, 8, STOP_ID]
    assert (finish.reason, finish.stop_id, finish.num_output_tokens) == ("stop", STOP_ID, 3)


def test_digests_come_one_an_id_if_asked_for(engine: Engine) -> None:
    receivers = [Receiver() for _ in range(3)]
    for i, receiver in enumerate(receivers):
        engine.submit(generate(str(i), (5, 6 + i // 2), max_tokens=9, digests=True), receiver)
    for receiver in receivers:
        receiver.wait()
    assert len(receivers[0].digests) == 9
    assert receivers[0].digests == receivers[1].digests
    assert not set(receivers[0].digests) & set(receivers[2].digests)


# ---------------------------------------------------------------------- admission


@pytest.mark.parametrize("num_prompt", [199, 200, 201, 400])
@pytest.mark.parametrize("max_tokens", [1, 200, 1 << 40])
def test_one_limit_on_length(engine: Engine, num_prompt: int, max_tokens: int) -> None:
    """The context needs room for at least one token of the answer; what is reported is what is enforced."""
    limit = engine.info.max_model_len
    assert limit == 200
    receiver = Receiver()
    request = generate("a", (5,) * num_prompt, max_tokens=max_tokens)
    if num_prompt < limit:
        engine.submit(request, receiver)
        assert receiver.wait().reason == "length"
        assert len(receiver.token_ids) == 1
    else:
        with pytest.raises(RequestError, match=rf"{num_prompt} tokens.*{limit}") as refusal:
            engine.submit(request, receiver)
        assert refusal.value.code == "context_length_exceeded"
        assert engine.ledger().refused == 1


@pytest.mark.parametrize("num_prompt", [1, 100, 198])
def test_an_answer_without_end_ends_with_the_context(engine: Engine, num_prompt: int) -> None:
    receiver = Receiver()
    engine.submit(generate("a", (5,) * num_prompt, max_tokens=1 << 40), receiver)
    assert receiver.wait().reason == "length"
    assert len(receiver.token_ids) == 200 - num_prompt


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "code"),
    [
        ((), 1, "empty_prompt"),
        ((5,), 0, "invalid_value"),
        ((5, 1 << 16), 1, "token_id_out_of_range"),
        ((5, -1), 1, "token_id_out_of_range"),
    ],
)
def test_refusals(engine: Engine, prompt: tuple[int, ...], max_tokens: int, code: str) -> None:
    with pytest.raises(RequestError) as refusal:
        engine.submit(generate("a", prompt, max_tokens=max_tokens), Receiver())
    assert refusal.value.code == code
    assert engine.ledger() == Ledger(received=1, refused=1, accepted=0, failed=0)


def test_an_id_can_be_used_again_but_not_twice_at_once(engine: Engine, scripts: Scripts, gate: threading.Event) -> None:
    scripts.add((5,), [Gate(gate), 6])
    first, second = Receiver(), Receiver()
    engine.submit(generate("a", (5,), max_tokens=1), first)
    with pytest.raises(RequestError, match="'a'") as refusal:
        engine.submit(generate("a", (7,), max_tokens=1), second)
    assert refusal.value.code == "duplicate_request_id"
    gate.set()
    first.wait()
    engine.submit(generate("a", (7,), max_tokens=1), second)
    second.wait()
    assert second.token_ids == [7]


# ---------------------------------------------------------------------- aborts


def test_an_abort_frees_blocks_within_a_step(engine: Engine, scripts: Scripts) -> None:
    scripts.add((5,), [6, Pause(0.05), 6, Pause(0.05)] * 90)
    receiver = Receiver()
    engine.submit(generate("a", (5,), max_tokens=180), receiver)
    assert receiver.first.wait(60)
    engine.abort(RequestId("a"))
    assert receiver.wait().reason == "cancelled"
    wait_until(lambda: held_blocks(engine) == 0)
    assert len(receiver.token_ids) < 100
    assert engine.ledger().cancelled == 1


def test_aborting_the_unknown_and_the_ended_is_ignored(engine: Engine) -> None:
    receiver = Receiver()
    engine.abort(RequestId("nobody"))
    engine.submit(generate("a", (5,), max_tokens=2), receiver)
    receiver.wait()
    engine.abort(RequestId("a"))
    other = Receiver()
    engine.submit(generate("b", (5,), max_tokens=2), other)
    assert other.wait().reason == "length"
    assert receiver.num_late == 0


def storm(num_requests: int) -> None:
    """Requests from two threads, most aborted at a random moment, on a pool that holds little more than one."""
    config = scripted_config(max_model_len=120, kv_cache_bytes=10 << 14, block_size=16, max_num_batched_tokens=24)
    engine = Engine.start(config)
    receivers: dict[int, Receiver] = {}

    def submit(first: int) -> None:
        source = random.Random(first)
        for i in range(first, num_requests, 2):
            prompt = (i, *range(source.randint(1, 80)))
            receivers[i] = Receiver()
            engine.submit(generate(str(i), prompt, max_tokens=source.randint(1, 60)), receivers[i])
            if source.random() < 0.9:
                engine.abort(RequestId(str(max(0, i - 2 * source.randint(0, 12)))))
            if source.random() < 0.02:
                time.sleep(0.002)

    threads = [threading.Thread(target=submit, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.shutdown(deadline_s=300)
    ledger = engine.ledger()
    assert engine._core.progress.fault == ""
    assert (ledger.accepted, ledger.failed) == (num_requests, 0)
    assert ledger.finished > 0
    assert ledger.cancelled > num_requests // 4
    assert held_blocks(engine) == 0
    for i, receiver in receivers.items():
        finish = receiver.wait()
        assert finish.num_output_tokens == len(receiver.token_ids)
        echoed = [i, *range(finish.num_prompt_tokens - 1)] * 60
        assert receiver.token_ids == echoed[: len(receiver.token_ids)]


def test_an_abort_storm_loses_nothing() -> None:
    storm(1500)


@pytest.mark.slow
def test_ten_thousand_aborts_lose_nothing() -> None:
    storm(10_000)


# ---------------------------------------------------------------------- faults


def test_a_nan_fails_its_request_alone(engine: Engine, scripts: Scripts) -> None:
    scripts.add((5,), [6, 7, NotFinite(), 8])
    receivers = [Receiver() for _ in range(9)]
    engine.submit(generate("bad", (5,), max_tokens=50), receivers[0])
    for i, receiver in enumerate(receivers[1:], 10):
        engine.submit(generate(str(i), (i, 1), max_tokens=50), receiver)
    finish = receivers[0].wait()
    assert (finish.reason, finish.code, finish.num_output_tokens) == ("failed", "numeric_error", 2)
    assert receivers[0].token_ids == [6, 7]
    for i, receiver in enumerate(receivers[1:], 10):
        assert receiver.wait().reason == "length"
        assert receiver.token_ids == [i, 1] * 25
    assert engine.health().ok


def test_a_failed_step_ends_its_requests_and_the_engine_goes_on(engine: Engine, scripts: Scripts) -> None:
    scripts.add((5,), [6, FailStep("out of luck"), 7])
    bad, good = Receiver(), Receiver()
    engine.submit(generate("bad", (5,), max_tokens=5), bad)
    finish = bad.wait()
    assert (finish.reason, finish.code) == ("failed", "step_failed")
    assert "out of luck" in (finish.message or "")
    assert bad.token_ids == [6]
    assert engine.health().ok
    engine.submit(generate("good", (7,), max_tokens=5), good)
    assert good.wait().reason == "length"


def test_a_broken_backend_ends_everything_with_a_reason() -> None:
    scripts = Scripts()
    gate = threading.Event()
    scripts.add((5,), [6, Gate(gate), Break("device lost"), 7])
    engine = Engine.start(scripted_config(max_num_seqs=2), scripts=scripts)
    receivers = [Receiver() for _ in range(6)]
    engine.submit(generate("bad", (5,), max_tokens=5), receivers[0])
    assert receivers[0].first.wait(60)
    for i, receiver in enumerate(receivers[1:], 10):  # some run, some wait, some haven't even been taken in
        engine.submit(generate(str(i), (i, 1), max_tokens=50), receiver)
    gate.set()
    for receiver in receivers:
        finish = receiver.wait()
        assert (finish.reason, finish.code) == ("failed", "engine_failed")
        assert finish.num_output_tokens == len(receiver.token_ids)
    wait_until(lambda: not engine.health().ok)
    assert "device lost" in engine.health().reason
    wait_until(lambda: engine._is_ended)
    with pytest.raises(EngineError) as refusal:
        engine.submit(generate("late", (5,), max_tokens=5), Receiver())
    assert refusal.value.code == "engine_stopped"
    engine.shutdown()
    num_ids = sum(len(receiver.token_ids) for receiver in receivers)
    assert engine.ledger() == Ledger(
        received=7, refused=1, accepted=6, failed=6, published_ids=num_ids, ended_ids=num_ids
    )


def test_a_fault_of_our_own_ends_everything_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the scheduler: nobody is left waiting, and health says so."""
    engine = Engine.start(scripted_config())
    receivers = [Receiver() for _ in range(5)]

    def apply(*_arguments: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(engine._core._scheduler, "apply", apply)
    for i, receiver in enumerate(receivers):
        engine.submit(generate(str(i), (5, i), max_tokens=50), receiver)
    for receiver in receivers:
        assert receiver.wait().code == "engine_failed"
    wait_until(lambda: "a bug" in engine.health().reason)
    engine.shutdown()
    engine.ledger().check(0)


def test_a_backend_that_fails_to_close_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Scripts()
    scripts.add((5,), [6, Break("device lost"), 7])
    engine = Engine.start(scripted_config(), scripts=scripts)
    close, may_close = engine._core.close, threading.Event()

    def close_late() -> None:
        may_close.wait(60)
        close()

    monkeypatch.setattr(engine._core, "close", close_late)
    receiver = Receiver()
    engine.submit(generate("a", (5,), max_tokens=50), receiver)
    assert receiver.wait().code == "engine_failed"
    may_close.set()
    engine.shutdown()


def test_a_receiver_that_raises_loses_its_request_only(engine: Engine) -> None:
    def raises(event: Event) -> None:
        raise ConnectionError("gone")

    receiver = Receiver()
    engine.submit(generate("bad", (5,), max_tokens=190), raises)
    engine.submit(generate("good", (6,), max_tokens=50), receiver)
    assert receiver.wait().reason == "length"
    wait_until(lambda: engine.num_live == 0)
    assert engine.health().ok


# ---------------------------------------------------------------------- health, idleness, shutdown


def test_a_stall_is_unhealthy_until_it_ends(scripts: Scripts) -> None:
    gate, receiver = threading.Event(), Receiver()
    scripts.add((5,), [6, Gate(gate), 7])
    with Engine.start(scripted_config(stall_timeout_s=0.2), scripts=scripts) as engine:
        assert engine.health().ok
        engine.submit(generate("a", (5,), max_tokens=2), receiver)
        wait_until(lambda: not engine.health().ok)
        assert "finished no step" in engine.health().reason
        gate.set()
        receiver.wait()
        wait_until(lambda: engine.health().ok)
        time.sleep(0.5)
        assert engine.health().ok, "an idle engine is not stalled"


def test_a_long_answer_is_no_stall(scripts: Scripts) -> None:
    """Each step is quick, all together take longer than the timeout."""
    receiver = Receiver()
    scripts.add((5,), [6, Pause(0.1)] * 30)
    with Engine.start(scripted_config(stall_timeout_s=1.5), scripts=scripts) as engine:
        engine.submit(generate("a", (5,), max_tokens=30), receiver)
        while not receiver.ended.wait(0.1):
            assert engine.health().ok
        assert len(receiver.token_ids) == 30


def test_an_idle_engine_sleeps(engine: Engine) -> None:
    receiver = Receiver()
    engine.submit(generate("a", (5,), max_tokens=5), receiver)
    receiver.wait()
    time.sleep(0.05)
    started_s = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - started_s < 0.1


def test_shutdown_lets_requests_finish(scripts: Scripts) -> None:
    scripts.add((5,), [6, Pause(0.01)] * 20)
    engine, receiver = Engine.start(scripted_config(), scripts=scripts), Receiver()
    engine.submit(generate("a", (5,), max_tokens=20), receiver)
    engine.shutdown(deadline_s=60)
    assert receiver.wait().reason == "length"
    assert len(receiver.token_ids) == 20
    assert not engine.health().ok
    with pytest.raises(EngineError):
        engine.submit(generate("b", (5,), max_tokens=20), Receiver())


def test_shutdown_cancels_at_its_deadline_and_sooner_if_told_again(scripts: Scripts) -> None:
    scripts.add((5,), [6, Pause(0.02)] * 5000)
    engine, receiver = Engine.start(scripted_config(), scripts=scripts), Receiver()
    engine.submit(generate("a", (5,), max_tokens=5000), receiver)
    assert receiver.first.wait(60)
    patient = threading.Thread(target=engine.shutdown, args=(3600,))
    patient.start()
    wait_until(lambda: not engine.health().ok)
    with pytest.raises(EngineError) as refusal:
        engine.submit(generate("b", (5,), max_tokens=20), Receiver())
    assert refusal.value.code == "engine_stopping"
    assert not receiver.ended.is_set()
    engine.shutdown(deadline_s=0.1)
    assert receiver.wait().reason == "cancelled"
    patient.join(60)
    assert not patient.is_alive()
    assert engine.ledger().cancelled == 1


def test_shutdown_gives_up_on_an_engine_that_hangs(scripts: Scripts) -> None:
    gate, receiver = threading.Event(), Receiver()
    scripts.add((5,), [6, Gate(gate), 7])
    engine = Engine.start(scripted_config(stall_timeout_s=0.3), scripts=scripts)
    engine.submit(generate("a", (5,), max_tokens=2), receiver)
    wait_until(lambda: not engine.health().ok)
    engine.shutdown()
    finish = receiver.wait()
    assert (finish.reason, finish.code) == ("failed", "engine_stalled")
    gate.set()
    engine._thread.join(60)
    assert not engine._thread.is_alive()
    assert receiver.num_late == 0
    engine.ledger().check(0)


def test_an_impatient_shutdown_still_ends_the_core(scripts: Scripts) -> None:
    """Ctrl-C while waiting for requests to finish."""
    scripts.add((5,), [6, Pause(0.02)] * 5000)
    engine, receiver = Engine.start(scripted_config(), scripts=scripts), Receiver()
    engine.submit(generate("a", (5,), max_tokens=5000), receiver)
    assert receiver.first.wait(60)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.shutdown(deadline_s=3600)
    timer.join()
    assert receiver.wait().reason == "cancelled"
    assert engine._closed.is_set()


def test_shutdown_before_anything_and_twice(engine: Engine) -> None:
    engine.shutdown()
    engine.shutdown(deadline_s=5)
    assert engine.ledger().received == 0


def test_many_short_requests_leave_no_objects_behind(engine: Engine) -> None:
    receiver = Receiver()
    for i in range(2000):
        receiver = Receiver()
        engine.submit(generate(str(i), (5,), max_tokens=1), receiver)
    receiver.wait()
    wait_until(lambda: engine.num_live == 0)
    scheduler = engine._core._scheduler
    wait_until(lambda: not scheduler.has_work)
    sizes = {name: len(value) for name, value in vars(scheduler).items() if isinstance(value, dict | list)}
    assert sizes
    assert not any(sizes.values()), sizes
    assert not engine._core.inbox._messages
