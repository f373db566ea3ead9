"""What waits ahead of a request, and for how long: an estimate from outside, by what went in and what came out."""

import math
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, Tokens
from freehold.sched.policy import Policy, Rank

RECENT_S = 20.0
"""What was measured so long ago counts for a third of what is measured now."""

MEASURED_S = 1.0
"""Seconds of work before there is an estimate at all."""

UNKNOWN_OUTPUT = 128
"""Tokens that an answer is taken to have before any has ended, if it may have so many."""

_TICK_S = 0.01
_UNKNOWN = Generate(request_id=RequestId(""), prompt_ids=(), sampling=Sampling())
_NEW_SHARE = 0.05  # of one more answer in the averages
_rank = attrgetter("rank")


@dataclass(slots=True)
class _Entry:
    """A request that has not ended. `num_tokens` are those to compute until it starts to answer."""

    generate: Generate
    rank: Rank
    num_tokens: int
    num_output: int = 0
    has_started: bool = False


class Throughput:
    """Tokens per second of work, idle time left out; recent ones count for more.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._noted_s = clock()
        self._num_tokens = 0.0
        self._busy_s = 0.0

    def note(self, num_tokens: int, *, was_busy: bool) -> None:
        """So many tokens are done. `was_busy`: there was work since the last call."""
        now_s = self._clock()
        if was_busy and now_s - self._noted_s < _TICK_S:  # its time is counted with the next
            self._num_tokens += num_tokens
            return
        if was_busy:
            kept = math.exp((self._noted_s - now_s) / RECENT_S)
            self._num_tokens *= kept
            self._busy_s = self._busy_s * kept + RECENT_S * (1 - kept)
        self._num_tokens += num_tokens
        self._noted_s = now_s

    @property
    def per_s(self) -> float | None:
        """None until enough was measured."""
        return self._num_tokens / self._busy_s if self._busy_s >= MEASURED_S and self._num_tokens else None


class Backlog:
    """The requests that were let in and have not ended.

    A request counts as started with its first event. Not safe between threads.

    Args:
        num_rows: requests that run at once.
        kv_tokens: tokens that those may hold together.
        policy: a copy of the scheduler's.
        clock: seconds, monotonic.
    """

    def __init__(self, *, num_rows: int, kv_tokens: int, policy: Policy, clock: Callable[[], float]) -> None:
        self._num_rows = num_rows
        self._kv_tokens = kv_tokens
        self._policy = policy
        self._clock = clock
        self._throughput = Throughput(clock)
        self._entries: dict[RequestId, _Entry] = {}
        self._queue: list[_Entry] = []  # those that have not started, in order
        self._families: dict[str, int] = {}
        self._num_entered = 0
        self._num_output: float | None = None  # on average
        self._cached_share = 0.0  # of prompts, on average
        self.num_waiting_tokens = 0

    def __len__(self) -> int:
        return len(self._entries)

    def enter(self, generate: Generate) -> None:
        """A request was let in."""
        self._note(0)
        self._num_entered += 1
        rank = self._policy.rank(generate, self._clock(), self._num_entered)
        entry = _Entry(generate, rank, self.num_tokens(generate))
        self._entries[generate.request_id] = entry
        insort(self._queue, entry, key=_rank)
        self.num_waiting_tokens += entry.num_tokens
        if generate.family:
            self._families[generate.family] = self._families.get(generate.family, 0) + 1

    def take(self, event: Event) -> None:
        """An event of one of them."""
        entry = self._entries.get(event.request_id)
        if entry is None:
            return
        num_done = 0
        if not entry.has_started:
            num_done += entry.num_tokens if not isinstance(event, Finish) else 0
            self._start(entry)
        if isinstance(event, Tokens):
            entry.num_output += len(event.token_ids)
            num_done += len(event.token_ids)
        elif isinstance(event, Finish):
            self._end(entry, event)
        self._note(num_done)

    def num_tokens(self, generate: Generate) -> int:
        """Tokens to compute for a request until it starts to answer: its prompt, unless another of its family does."""
        return 1 if generate.family in self._families else len(generate.prompt_ids)

    def forget(self, request_id: RequestId) -> None:
        """One of them won't come after all."""
        entry = self._entries[request_id]
        if not entry.has_started:
            self._start(entry)
        self._remove(entry)

    def wait_s(self, generate: Generate = _UNKNOWN) -> float | None:
        """How many seconds a request that came now would wait for its turn; None if nothing was measured yet.

        Whoever comes before it in order and has a place is only to be prefilled. Once places are out, each that waits
        ahead must get one from somebody who ends, and by then as much work is done as those and one more have.
        """
        rate = self._throughput.per_s
        if rate is None:
            return None
        rank = self._policy.rank(generate, self._clock(), self._num_entered + 1)
        ahead = self._queue[: bisect_left(self._queue, rank, key=_rank)]
        num_rows = self._num_rows - (len(self._entries) - len(self._queue))
        held = sum(e.num_tokens + e.num_output for e in self._entries.values() if e.has_started)
        room = self._kv_tokens - held * (1 - self._cached_share)
        num_prefill = num_others = 0.0
        is_full = False
        for entry in ahead:
            room -= entry.num_tokens * (1 - self._cached_share)
            num_rows -= 1
            is_full = is_full or num_rows < 0 or room < 0
            num_prefill += entry.num_tokens
            num_others += self._work(entry) if is_full else 0.0
        if not is_full and num_rows > 0 and room >= self.num_tokens(generate) * (1 - self._cached_share):
            return num_prefill / rate
        work = sum(map(self._work, self._entries.values())) / max(1, len(self._entries))
        return (num_others + work) / rate

    def _work(self, entry: _Entry) -> float:
        """Tokens of a request from its beginning to its end, as far as one can know."""
        max_tokens = entry.generate.sampling.max_tokens
        expected = UNKNOWN_OUTPUT if self._num_output is None else self._num_output
        return entry.num_tokens + max(entry.num_output, min(max_tokens, expected))

    def _start(self, entry: _Entry) -> None:
        entry.has_started = True
        del self._queue[bisect_left(self._queue, entry.rank, key=_rank)]
        self.num_waiting_tokens -= entry.num_tokens

    def _end(self, entry: _Entry, finish: Finish) -> None:
        self._remove(entry)
        if finish.reason in ("stop", "length"):
            known = finish.num_output_tokens if self._num_output is None else self._num_output
            self._num_output = known + _NEW_SHARE * (finish.num_output_tokens - known)
            share = finish.num_cached_tokens / max(1, finish.num_prompt_tokens)
            self._cached_share += _NEW_SHARE * (share - self._cached_share)

    def _remove(self, entry: _Entry) -> None:
        self._note(0)
        del self._entries[entry.generate.request_id]
        family = entry.generate.family
        if family and self._families[family] > 1:
            self._families[family] -= 1
        elif family:
            del self._families[family]

    def _note(self, num_tokens: int) -> None:
        self._throughput.note(num_tokens, was_busy=bool(self._entries))
