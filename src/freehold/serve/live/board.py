"""What the server sees of itself: requests from their coming to their end, and once a second all its numbers.

Everything happens in the event loop's thread.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from freehold.access.keys import KeyId
from freehold.access.usage import Usage
from freehold.engine.handle import EngineHandle
from freehold.observe.history import History, Moment
from freehold.serve.entrance.record import AnswerProgress, Record, Watcher
from freehold.serve.operation.counts import Counts

MAX_ENDED = 128
"""Requests that are remembered after their end."""

TICK_S = 1.0
NUM_USE_MINUTES = 60

_Used = dict[KeyId, Usage]


@dataclass(frozen=True, slots=True)
class Followed:
    """A request, and what it asks for."""

    record: Record
    surface: str


class Board(Watcher):
    """Requests, and the last hour.

    Attributes:
        history: of all numbers.
        live: requests that have not ended, by arrival.
        ended: the last ones that have.
        used_by_minute: what keys had used in all at the ends of the last minutes, oldest first.
    """

    def __init__(self, engine: EngineHandle, counts: Counts) -> None:
        self.history = History()
        self.live: dict[int, Followed] = {}
        self.ended: deque[Followed] = deque(maxlen=MAX_ENDED)
        self.used_by_minute: deque[_Used] = deque([{}], maxlen=NUM_USE_MINUTES + 1)
        self._wall_s = time.time() - time.monotonic()
        self._engine = engine
        self._counts = counts
        self._num_output = 0
        self._num_cached = 0
        self._num_requests = 0
        self._ticked_s = time.monotonic()
        self._num_ticks = 0
        self._task: asyncio.Task[None] | None = None
        self.tick(0.0)  # so that there is always something to tell

    def start(self) -> None:
        """Look once a second from now on, in the running event loop."""
        self._task = asyncio.ensure_future(self._run())

    @contextmanager
    def following(self, record: Record, surface: str) -> Iterator[None]:
        """List a request until the context is left."""
        followed = Followed(record, surface)
        record.watchers += (self,)
        self.live[id(record)] = followed
        try:
            yield
        finally:
            del self.live[id(record)]
            record.ended_s = time.monotonic()
            self.ended.append(followed)
            self._measure(record)

    def saw_tokens(self, record: Record, answer: AnswerProgress, num_tokens: int, gap_s: float | None) -> None:
        self._num_output += num_tokens
        if record.num_output_tokens == num_tokens:  # the first of any of its answers
            self._measure_first(record, answer.first_s)
        if gap_s is not None:
            for _ in range(num_tokens):
                self.history.measured("itl", gap_s / num_tokens)

    @property
    def used(self) -> _Used:
        """What requests of each key that have ended used, whatever their outcome."""
        sums: _Used = {}
        for (key_id, _), used in self._counts.used.items():
            sums.setdefault(key_id, Usage()).add(used)
        return sums

    @property
    def running_by_key(self) -> Counter[KeyId]:
        """Requests that have not ended."""
        return Counter(KeyId(followed.record.key_id) for followed in self.live.values())

    async def _run(self) -> None:
        while True:
            due_s = self._ticked_s + TICK_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            self.tick(time.monotonic() - due_s)

    def tick(self, lag_s: float) -> None:
        """A second has passed.

        Args:
            lag_s: and so much more.
        """
        now_s = time.monotonic()
        span_s, self._ticked_s = now_s - self._ticked_s, now_s
        moment = self.moment(lag_s=lag_s, num_slow_clients=self._watch_clients(span_s))
        self.history.close(moment, max(1, round(span_s / TICK_S)))
        self._num_ticks += 1
        if self._num_ticks % 60 == 0:
            self.used_by_minute.append(self.used)

    def now_s(self) -> float:
        """Unix seconds that never jump."""
        return time.monotonic() + self._wall_s

    def at_s(self, monotonic_s: float) -> float:
        """The same of a time of the monotonic clock."""
        return monotonic_s + self._wall_s

    def moment(self, *, lag_s: float, num_slow_clients: int) -> Moment:
        """How it is now."""
        return Moment(
            at_s=self.now_s(),
            engine=self._engine.state(),
            num_running=self._engine.num_live,
            num_preparing=sum(followed.record.tokenized_s is None for followed in self.live.values()),
            num_slow_clients=num_slow_clients,
            cpu_s=time.process_time(),
            lag_s=lag_s,
            requests_total=self._num_requests,
            rejected_total=self._counts.rejected.total(),
            output_total=self._num_output,
            cached_total=self._num_cached,
        )

    def used_before(self, seconds: int) -> _Used:
        """What keys had used so many seconds ago, to the minute, or at the start of the server."""
        minutes = self.used_by_minute
        return minutes[max(0, len(minutes) - seconds // 60)] if seconds // 60 <= len(minutes) else minutes[0]

    def _watch_clients(self, span_s: float) -> int:
        """Clients that had no room for what there was, now and a second ago."""
        num_slow = 0
        for followed in self.live.values():
            record = followed.record
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
            measured("queue", record.begun_s - record.tokenized_s)
            measured("prefill", first_s - record.begun_s)

    def _measure(self, record: Record) -> None:
        """A request has ended: how long its stages took."""
        self._num_requests += 1
        self._num_cached += record.num_cached_tokens
        if record.first_s is not None and record.last_s is not None and record.ended_s is not None:
            self.history.measured("e2e", record.ended_s - record.started_s)
            self.history.measured("decode", record.last_s - record.first_s)
