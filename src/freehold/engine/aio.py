"""Engines for coroutines."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from freehold.engine.handle import EngineHandle
from freehold.errors import EngineError, RequestError
from freehold.observe.profile import StepProfile
from freehold.protocol import Event, Finish, Generate

MAX_AT_ONCE = 256
"""Events handed on before whatever else the loop has to do gets its turn: some milliseconds."""


class Observer(Protocol):
    """Watches one request, and may ask the engine for more than whoever reads the events shall see."""

    @property
    def asked(self) -> Generate:
        """What to ask the engine."""
        ...

    def see(self, event: Event) -> Event:
        """An event, in the engine's thread; returns what to pass on. Must return quickly."""
        ...

    def refuse(self, error: EngineError | RequestError) -> None:
        """The engine doesn't take the request; there will be no events."""
        ...


class AsyncEngine:
    """An engine for coroutines."""

    def __init__(self, engine: EngineHandle) -> None:
        self.engine = engine
        self._bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = WeakKeyDictionary()

    def submit(self, generate: Generate, take: Callable[[Event], None], observer: Observer | None = None) -> None:
        """Submit a request.

        Args:
            take: called in the running event loop with each event, `Finish` last, whatever becomes of whoever asked. It
                must not raise.
            observer: sees all events before.

        Raises:
            RequestError, EngineError: refused; nothing will be called.
        """
        loop = asyncio.get_running_loop()
        bridge = self._bridges.get(loop)
        if bridge is None:
            bridge = self._bridges[loop] = _Bridge(loop)

        def on_event(event: Event) -> None:
            if observer is not None:
                event = observer.see(event)
            if not bridge.pass_on(take, event):
                self.engine.abort(generate.request_id)  # no one is left to read it

        try:
            self.engine.submit(generate if observer is None else observer.asked, on_event)
        except (EngineError, RequestError) as error:
            if observer is not None:
                observer.refuse(error)
            raise

    async def generate(self, generate: Generate) -> AsyncGenerator[Event, None]:
        """Submit a request and yield its events, `Finish` last. Closing the iterator early aborts the request.

        Raises:
            RequestError, EngineError: refused; raised at the first step of the iteration, before any event.
        """
        events: asyncio.Queue[Event] = asyncio.Queue()
        self.submit(generate, events.put_nowait)
        is_finished = False
        try:
            while not is_finished:
                event = await events.get()
                is_finished = isinstance(event, Finish)
                yield event
        finally:
            if not is_finished:
                self.engine.abort(generate.request_id)

    def start_profile(self, max_steps: int, max_spans: int) -> "ProfileRun":
        """Profile the next steps; see `EngineHandle.start_profile`.

        Raises:
            EngineError: likewise.
        """
        return ProfileRun(self.engine, max_steps, max_spans)


class ProfileRun:
    """A profile that is being taken.

    Attributes:
        ended: has the profile when it has ended, or raises an `EngineError`.
    """

    def __init__(self, engine: EngineHandle, max_steps: int, max_spans: int) -> None:
        """See `AsyncEngine.start_profile`."""
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[StepProfile] = self._loop.create_future()
        self._profile_id = engine.start_profile(max_steps, max_spans, self._pass_on)

    def stop(self) -> None:
        """Let it end now; `ended` still has what it holds."""
        self._engine.stop_profile(self._profile_id)

    def _pass_on(self, end: StepProfile | EngineError) -> None:
        """Called in a thread of the engine's."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, end)

    def _settle(self, end: StepProfile | EngineError) -> None:
        if self.ended.done():
            return
        if isinstance(end, EngineError):
            self.ended.set_exception(end)
            self.ended.exception()  # that nobody waits for it any more is no fault
        else:
            self.ended.set_result(end)


class _Bridge:
    """Carries events from the engine's thread into an event loop, waking it once for all that a step brings."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._arrived: deque[tuple[Callable[[Event], None], Event]] = deque()
        self._is_woken = False

    def pass_on(self, take: Callable[[Event], None], event: Event) -> bool:
        """Called in the core's thread. False if the loop is gone, and whoever waited with it."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return False
        self._arrived.append((take, event))
        if not self._is_woken:
            self._is_woken = True
            try:
                loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # closed since we looked
                return False
        return True

    def _deliver(self) -> None:
        """Called in the loop's thread."""
        self._is_woken = False  # first, so that what comes from now on wakes it again
        for _ in range(min(len(self._arrived), MAX_AT_ONCE)):
            take, event = self._arrived.popleft()
            take(event)
        loop = self._loop()
        if self._arrived and not self._is_woken and loop is not None:
            self._is_woken = True  # one call at a time is due, or others would add up to no limit
            loop.call_soon(self._deliver)
