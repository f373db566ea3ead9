"""What the server sees of itself: requests from their coming to their end, and once a second all its numbers.

Everything happens in the event loop's thread.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from freehold.access.keys import KeyId
from freehold.access.usage import Usage
from freehold.engine.handle import EngineHandle
from freehold.observe.history import History, Moment
from freehold.serve.entrance.record import AnswerProgress, Record, Watcher
from freehold.serve.live.requests import RequestList
from freehold.serve.live.uses import SlidingUse
from freehold.serve.operation.counts import Counts

TICK_S = 1.0

_log = logging.getLogger(__name__)


class Board(Watcher):
    """Requests, and the last hour.

    Args:
        name_of: a key's name.

    Attributes:
        history: of all numbers.
        requests: those that run, and the last ones that ended.
        minute, hour: what keys used.
    """

    def __init__(self, engine: EngineHandle, counts: Counts, name_of: Callable[[str], str]) -> None:
        self.history = History()
        self.requests = RequestList(name_of, self.at_s)
        self.minute, self.hour = SlidingUse(60), SlidingUse(3600)
        self._wall_s = time.time() - time.monotonic()
        self._engine = engine
        self._counts = counts
        self._num_output = 0
        self._num_cached = 0
        self._num_requests = 0
        self._ticked_s = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self.tick(0.0)  # so that there is always something to tell

    def start(self) -> None:
        """Look once a second from now on, in the running event loop."""
        self._task = asyncio.ensure_future(self._run())

    @contextmanager
    def following(self, record: Record, surface: str) -> Iterator[None]:
        """List a request until the context is left."""
        record.watchers += (self,)
        self.requests.enter(record, surface)
        try:
            yield
        finally:
            self.requests.leave(record)
            self._measure(record)

    def saw_use(self, key_id: KeyId, used: Usage) -> None:
        """A request of a key has ended, and that is what it used."""
        self.minute.add(key_id, used)
        self.hour.add(key_id, used)

    def saw_tokens(self, record: Record, answer: AnswerProgress, num_tokens: int, gap_s: float | None) -> None:
        self._num_output += num_tokens
        if record.num_output_tokens == num_tokens:  # the first of any of its answers
            self._measure_first(record, answer.first_s)
        if gap_s is not None:
            for _ in range(num_tokens):
                self.history.measured("itl", gap_s / num_tokens)

    async def _run(self) -> None:
        while True:
            due_s = self._ticked_s + TICK_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            try:
                self.tick(time.monotonic() - due_s)
            except Exception:
                _log.exception("a second is missing on the live page")

    def tick(self, lag_s: float) -> None:
        """A second has passed.

        Args:
            lag_s: and so much more.
        """
        now_s = time.monotonic()
        span_s, self._ticked_s = now_s - self._ticked_s, now_s
        num_seconds = max(1, round(span_s / TICK_S))
        num_slow_clients = self._watch_clients(span_s)
        self.history.close(self._moment(lag_s, num_slow_clients), num_seconds)
        for _ in range(num_seconds):
            self.minute.pass_second()
            self.hour.pass_second()

    def now_s(self) -> float:
        """Unix seconds that never jump."""
        return time.monotonic() + self._wall_s

    def at_s(self, monotonic_s: float) -> float:
        """The same of a time of the monotonic clock."""
        return monotonic_s + self._wall_s

    def _moment(self, lag_s: float, num_slow_clients: int) -> Moment:
        return Moment(
            at_s=self.now_s(),
            engine=self._engine.state(),
            num_engine_starts=self._engine.num_starts,
            num_running=self._engine.num_live,
            num_preparing=sum(record.tokenized_s is None for record in self.requests.live),
            num_compiling=sum(record.is_compiling for record in self.requests.live),
            num_slow_clients=num_slow_clients,
            cpu_s=time.process_time(),
            lag_s=lag_s,
            requests_total=self._num_requests,
            rejected_total=self._counts.rejected.total(),
            queue_full_total=self._counts.rejected["queue_full"],
            output_total=self._num_output,
            cached_total=self._num_cached,
        )

    def _watch_clients(self, span_s: float) -> int:
        """Clients that had no room for what there was, now and a second ago."""
        num_slow = 0
        for record in self.requests.live:
            num_bytes = record.count_unread() if record.first_s is not None else 0
            if num_bytes and record.num_unread_bytes:
                record.unread_s += span_s
                num_slow += 1
            record.num_unread_bytes = num_bytes
        return num_slow

    def _measure_first(self, record: Record, first_s: float) -> None:
        """The first token of any answer has come: how long its stages took."""
        measured = self.history.measured
        measured("ttft", first_s - record.started_s)
        if record.tokenized_s is not None and record.begun_s is not None:
            measured("tokenize", record.tokenized_s - record.started_s)
            compile_s = record.compile_s
            if compile_s is not None:
                measured("compile", compile_s)
            measured("queue", record.begun_s - record.tokenized_s - (compile_s or 0.0))
            measured("prefill", first_s - record.begun_s)

    def _measure(self, record: Record) -> None:
        """A request has ended: how long its stages took."""
        self._num_requests += 1
        self._num_cached += record.num_cached_tokens
        if record.first_s is not None and record.last_s is not None and record.ended_s is not None:
            self.history.measured("e2e", record.ended_s - record.started_s)
            self.history.measured("decode", record.last_s - record.first_s)
