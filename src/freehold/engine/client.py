"""The engine as others see it: start it, submit requests, receive events, ask how it is, shut it down.

The core runs in a thread of this process. All that crosses are the messages of `freehold.protocol`.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary, ref

from freehold.backends.script import Scripts
from freehold.config import EngineConfig
from freehold.engine.core import Core
from freehold.engine.ledger import Ledger
from freehold.engine.start import load
from freehold.errors import EngineError, RequestError
from freehold.protocol import Abort, Drain, EngineInfo, Event, Finish, FinishReason, Generate, RequestId
from freehold.sched.admission import Limits, check

OnEvent = Callable[[Event], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the engine can generate now, and if not, why."""

    ok: bool
    reason: str = ""


@dataclass(slots=True)
class _Live:
    """An accepted request that has not ended."""

    num_prompt: int
    on_event: OnEvent
    num_output: int = 0


class Engine:
    """One model, loaded and served by one core. All methods may be called from any thread.

    Attributes:
        info: what the engine decided at start-up.
    """

    def __init__(self, config: EngineConfig, *, scripts: Scripts | None = None) -> None:
        """Load and start; see `start`."""
        self._stall_timeout_s = config.stall_timeout_s
        self._lock = threading.Lock()
        self._live: dict[RequestId, _Live] = {}
        self._ledger = Ledger()
        self._is_closing = False
        self._is_ended = False
        self._closed = threading.Event()  # waited for instead of the thread: CPython's join forgets a thread on Ctrl-C
        loaded = load(config, scripts=scripts, publish=self._publish)
        self.info: EngineInfo = loaded.info
        self._limits: Limits = loaded.limits
        self._core: Core = loaded.core
        self._thread = threading.Thread(target=self._run, name="engine-core", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, config: EngineConfig, *, scripts: Scripts | None = None) -> Self:
        """Load the model and start the core; returns when requests can be answered.

        Args:
            scripts: what the ``scripted`` backend answers; other backends ignore it.

        Raises:
            UserError: the model can't be found, read or run, or it doesn't fit; says which setting would help.
        """
        return cls(config, scripts=scripts)

    def check(self, generate: Generate) -> None:
        """Refuse what can never be served, without submitting it.

        Raises:
            RequestError: as from `submit`.
        """
        check(generate, self._limits)

    def submit(self, generate: Generate, on_event: OnEvent) -> None:
        """Accept a request, or refuse it at once.

        Args:
            on_event: gets the request's `Tokens` and, last and exactly once, its `Finish`. Called in the core's thread:
                it must return quickly. If it raises, the request is aborted.

        Raises:
            RequestError: the request can never be served; nothing will be called.
            EngineError: the engine is shutting down (``engine_stopping``) or has ended (``engine_stopped``).
        """
        with self._lock:
            self._ledger.received += 1
            try:
                self._admit(generate)
            except Exception:
                self._ledger.refused += 1
                raise
            self._ledger.accepted += 1
            self._live[generate.request_id] = _Live(len(generate.prompt_ids), on_event)
            self._core.inbox.put(generate)

    def abort(self, request_id: RequestId) -> None:
        """End a request early, in whatever state it is; its `Finish` still comes. Unknown and ended ids are ignored."""
        if not self._is_ended:
            self._core.inbox.put(Abort(request_id))

    def health(self) -> Health:
        """Whether requests can be answered now. Never waits."""
        progress = self._core.progress
        if progress.fault:
            return Health(False, progress.fault)
        if self._is_ended:
            return Health(False, "the engine has stopped")
        if self._is_closing:
            return Health(False, "the engine is shutting down")
        still_s = time.monotonic() - progress.moved_s
        if progress.is_busy and still_s > self._stall_timeout_s:
            return Health(False, f"the engine is busy but has finished no step for {still_s:.0f} s")
        return Health(True)

    def ledger(self) -> Ledger:
        """A copy of the counts, after checking that they balance.

        Raises:
            InvariantError: they don't.
        """
        with self._lock:
            self._ledger.check(len(self._live))
            return replace(self._ledger)

    @property
    def num_live(self) -> int:
        """Accepted requests that have not ended."""
        return len(self._live)

    def shutdown(self, deadline_s: float = 0.0) -> None:
        """Refuse new requests, let accepted ones finish for `deadline_s` seconds, cancel the rest, stop.

        Returns when every request has had its `Finish`. A second call, with a shorter deadline, overrules the first,
        and so does Ctrl-C: it cancels at once, and is raised again when the running step has ended.
        """
        with self._lock:
            self._is_closing = True
            self._core.inbox.put(Drain(deadline_s))
        try:
            is_closed = self._closed.wait(deadline_s + self._stall_timeout_s)
        except KeyboardInterrupt:
            # Native code can't be broken off, and must not find the interpreter gone when it returns.
            self._core.inbox.put(Drain(0.0))
            self._closed.wait(self._stall_timeout_s)
            raise
        if not is_closed:
            self._end_rest("failed", "engine_stalled", "the engine hangs and was abandoned at shutdown")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _admit(self, generate: Generate) -> None:
        if self._is_ended:
            raise EngineError(self._core.progress.fault or "the engine has stopped", code="engine_stopped")
        if self._is_closing:
            raise EngineError("the engine is shutting down and takes no new requests", code="engine_stopping")
        if generate.request_id in self._live:
            raise RequestError(f"a request with id {generate.request_id!r} is running", code="duplicate_request_id")
        self.check(generate)

    def _run(self) -> None:
        """The core's thread, from first to last. Whoever waits is told before the backend is closed, which may take
        long or fail where it is broken."""
        try:
            self._core.run()
        finally:
            if self._core.progress.fault:
                self._end_rest("failed", "engine_failed", "the engine failed while it worked on this request")
            else:
                self._end_rest("cancelled", None, None)
            try:
                self._core.close()
            finally:
                self._closed.set()

    def _end_rest(self, reason: FinishReason, code: str | None, message: str | None) -> None:
        """End what the core can no longer end."""
        with self._lock:
            self._is_ended = True
            rest = [
                Finish(
                    request_id=request_id,
                    reason=reason,
                    num_prompt_tokens=live.num_prompt,
                    num_output_tokens=live.num_output,
                    code=code,
                    message=message,
                )
                for request_id, live in self._live.items()
            ]
        self._publish(rest)

    def _publish(self, events: Sequence[Event]) -> None:
        """Pass events on. The first `Finish` of a request is its last event, whoever sends it."""
        calls: list[tuple[OnEvent, Event]] = []
        with self._lock:
            for event in events:
                live = self._live.get(event.request_id)
                if live is None:
                    continue
                if isinstance(event, Finish):
                    del self._live[event.request_id]
                    self._ledger.count_end(event.reason)
                else:
                    live.num_output += len(event.token_ids)
                calls.append((live.on_event, event))
        for on_event, event in calls:
            try:
                on_event(event)
            except Exception:
                _log.exception("the receiver of request %s failed; the request is aborted", event.request_id)
                self.abort(event.request_id)


class AsyncEngine:
    """An `Engine` for coroutines."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = WeakKeyDictionary()

    async def generate(self, generate: Generate) -> AsyncGenerator[Event, None]:
        """Submit a request and yield its events, `Finish` last. Closing the iterator early aborts the request.

        Raises:
            RequestError, EngineError: refused; raised at the first step of the iteration, before any event.
        """
        loop = asyncio.get_running_loop()
        bridge = self._bridges.setdefault(loop, _Bridge(loop))
        events: asyncio.Queue[Event] = asyncio.Queue()
        self.engine.submit(generate, lambda event: bridge.pass_on(events, event))
        is_finished = False
        try:
            while not is_finished:
                event = await events.get()
                is_finished = isinstance(event, Finish)
                yield event
        finally:
            if not is_finished:
                self.engine.abort(generate.request_id)


class _Bridge:
    """Carries events from the core's thread into an event loop, waking it once for all that a step brings."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._arrived: deque[tuple[asyncio.Queue[Event], Event]] = deque()
        self._is_woken = False

    def pass_on(self, events: "asyncio.Queue[Event]", event: Event) -> None:
        """Called in the core's thread. Raises RuntimeError if the loop is gone."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            raise RuntimeError("the event loop that waits for this request is closed")
        self._arrived.append((events, event))
        if not self._is_woken:
            self._is_woken = True
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Called in the loop's thread."""
        self._is_woken = False  # first, so that what comes from now on wakes it again
        while self._arrived:
            events, event = self._arrived.popleft()
            events.put_nowait(event)
