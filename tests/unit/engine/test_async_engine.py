"""The engine for coroutines."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from engine_fixtures import generate, scripted_config, wait_until

from freehold.backends.script import Pause, Scripts
from freehold.engine.aio import MAX_AT_ONCE, AsyncEngine, _Bridge
from freehold.engine.client import Engine
from freehold.errors import EngineError, RequestError
from freehold.protocol import Event, Finish, RequestId, Tokens


@pytest.fixture
def engine() -> Iterator[Engine]:
    scripts = Scripts()
    scripts.add((9,), [6, Pause(0.02)] * 4000)
    with Engine.start(scripted_config(), scripts=scripts) as engine:
        yield engine
    engine.ledger().check(0)


async def collect(engine: Engine, name: str, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
    token_ids: list[int] = []
    finishes = 0
    async for event in AsyncEngine(engine).generate(generate(name, prompt, max_tokens=max_tokens)):
        if isinstance(event, Tokens):
            token_ids.extend(event.token_ids)
        else:
            finishes += 1
    assert finishes == 1
    return token_ids


async def until_idle(engine: Engine) -> None:
    async with asyncio.timeout(60):
        while engine.num_live:
            await asyncio.sleep(0.005)


def test_many_at_once(engine: Engine) -> None:
    async def run() -> list[list[int]]:
        return await asyncio.gather(*(collect(engine, str(i), (i, 1, 2), 50) for i in range(100)))

    assert asyncio.run(run()) == [([i, 1, 2] * 17)[:50] for i in range(100)]


def test_refusals_come_before_any_event(engine: Engine) -> None:
    async def run() -> None:
        with pytest.raises(RequestError):
            await collect(engine, "a", (), 5)
        engine.shutdown()
        with pytest.raises(EngineError):
            await collect(engine, "a", (1,), 5)

    asyncio.run(run())


def test_closing_the_iterator_aborts(engine: Engine) -> None:
    async def run() -> None:
        events = AsyncEngine(engine).generate(generate("a", (9,), max_tokens=4000))
        assert isinstance(await anext(events), Tokens)
        await events.aclose()
        await until_idle(engine)  # with the loop alive, so that it's the closing that does it

    asyncio.run(run())
    assert engine.ledger().cancelled == 1


def test_cancelling_the_task_aborts(engine: Engine) -> None:
    async def run() -> None:
        task = asyncio.create_task(collect(engine, "a", (9,), 4000))
        while engine.num_live == 0:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_idle(engine)

    asyncio.run(run())
    assert engine.ledger().cancelled == 1


def test_a_loop_that_is_gone_costs_its_request_only(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """The event loop closes while its request runs, as when a server thread dies. That's no fault of the engine's."""

    async def begin() -> None:
        events = AsyncEngine(engine).generate(generate("a", (9,), max_tokens=4000))
        await anext(events)
        abandoned.append(events)

    abandoned: list[object] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    wait_until(lambda: engine.num_live == 0)
    assert engine.health().ok
    assert not caplog.records
    assert asyncio.run(collect(engine, "b", (1,), 3)) == [1, 1, 1]


def test_a_bridge_into_a_loop_that_closed_meanwhile_says_so() -> None:
    """Even if the loop was woken before it closed and never came to look."""

    async def make() -> asyncio.Queue[Event]:
        return asyncio.Queue()

    loop = asyncio.new_event_loop()
    events = loop.run_until_complete(make())
    bridge = _Bridge(loop)
    event = Tokens(request_id=RequestId("a"), token_ids=(1,))
    assert bridge.pass_on(events, event)
    loop.close()
    assert not bridge.pass_on(events, event)


def test_the_last_event_is_the_finish(engine: Engine) -> None:
    async def run() -> list[object]:
        return [event async for event in AsyncEngine(engine).generate(generate("a", (1,), max_tokens=3))]

    events = asyncio.run(run())
    assert [isinstance(event, Finish) for event in events] == [False] * (len(events) - 1) + [True]


def test_many_events_leave_others_their_turn() -> None:
    """A core that is faster than the loop keeps nobody else out of it, and loses no event."""
    num_events = 10 * MAX_AT_ONCE
    seen: list[int] = []
    between: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        bridge = _Bridge(loop)

        def take(event: Event) -> None:
            assert isinstance(event, Tokens)
            seen.extend(event.token_ids)

        for number in range(num_events):
            assert bridge.pass_on(take, Tokens(request_id=RequestId("a"), token_ids=(number,)))
        while len(seen) < num_events:
            await asyncio.sleep(0)
            between.append(len(seen))

    asyncio.run(run())
    assert seen == list(range(num_events))
    assert max(after - before for before, after in itertools.pairwise([0, *between])) <= MAX_AT_ONCE


def test_events_that_come_while_others_are_handed_on_leave_others_their_turn_too() -> None:
    num_events = 40 * MAX_AT_ONCE
    num_seen = 0
    between: list[int] = []

    async def run() -> None:
        bridge = _Bridge(asyncio.get_running_loop())

        def pass_on(number: int) -> None:
            assert bridge.pass_on(take, Tokens(request_id=RequestId("a"), token_ids=(number,)))

        def take(event: Event) -> None:
            nonlocal num_seen
            num_seen += 1
            for number in range(2):  # twice as fast as they are taken
                if num_seen + number < num_events // 2:
                    pass_on(number)

        for number in range(2 * MAX_AT_ONCE):
            pass_on(number)
        while not between or num_seen > between[-1]:
            between.append(num_seen)
            await asyncio.sleep(0)

    asyncio.run(run())
    assert num_seen > num_events // 2
    assert max(after - before for before, after in itertools.pairwise(between)) <= MAX_AT_ONCE
