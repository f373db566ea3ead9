"""The thrash alarm: an engine that computes again and again what it has thrown away is badly sized, and says so."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from freehold.sched.counts import TokenCounts
from freehold.sched.request import Request

WINDOW_S = 30.0
"""How far back the alarm looks."""

LEAST_S = 10.0
"""How much of that must have passed before it judges."""

THRASH_SHARE = 0.1
"""Of the tokens computed, so many may have been computed before."""

LEAST_PREEMPTIONS = 3
"""So many must have happened meanwhile: one that hits a quiet engine, where little is computed, is no pattern."""

PERIOD_S = 60.0
"""It is said at most that often."""

_SAMPLE_S = 1.0
_MIB = 1 << 20

_log = logging.getLogger(__name__)


class _Sample(NamedTuple):
    """Counts at a time."""

    at_s: float
    num_computed: int
    num_again: int
    num_preemptions: int


class ThrashAlarm:
    """Watches how many of the tokens that are computed had been computed before, and were lost to preemption.

    Args:
        num_blocks, block_size, block_bytes: of the pool.
        max_num_seqs: requests that run at once.
        clock: seconds, monotonic.

    Attributes:
        share: of the tokens computed lately, those computed again.
        is_thrashing: it is too large.
        num_warnings: since start-up.
    """

    def __init__(
        self, *, num_blocks: int, block_size: int, block_bytes: int, max_num_seqs: int, clock: Callable[[], float]
    ) -> None:
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._block_bytes = block_bytes
        self._max_num_seqs = max_num_seqs
        self._clock = clock
        self._samples: deque[_Sample] = deque()
        self._warned_s: float | None = None
        self._num_ended = 0
        self._num_output = 0  # of those that have ended
        self.share = 0.0
        self.is_thrashing = False
        self.num_warnings = 0

    def ended(self, request: Request) -> None:
        """A request has ended: how long answers are tells how many blocks it takes."""
        self._num_ended += 1
        self._num_output += request.num_output

    def look(self, counts: TokenCounts, num_preemptions: int, live: Callable[[], Sequence[Request]]) -> None:
        """A step was applied. Costs nothing but once a second.

        Args:
            live: gives the requests that run, and those that would if there were blocks for them.
        """
        now_s = self._clock()
        if self._samples and now_s - self._samples[-1].at_s < _SAMPLE_S:
            return
        newest = _Sample(now_s, counts.computed + counts.recomputed, counts.recomputed, num_preemptions)
        self._samples.append(newest)
        while self._samples[0].at_s < now_s - WINDOW_S:
            self._samples.popleft()
        oldest = self._samples[0]
        num_again = newest.num_again - oldest.num_again
        self.share = num_again / max(1, newest.num_computed - oldest.num_computed)
        num_preemptions = newest.num_preemptions - oldest.num_preemptions
        is_judged = now_s - oldest.at_s >= LEAST_S and num_preemptions >= LEAST_PREEMPTIONS
        self.is_thrashing = is_judged and self.share > THRASH_SHARE
        is_due = self._warned_s is None or now_s - self._warned_s >= PERIOD_S
        if self.is_thrashing and is_due:
            self._warned_s = now_s
            self.num_warnings += 1
            _log.warning("%s", self._warning(newest, oldest, live()))

    def _warning(self, newest: _Sample, oldest: _Sample, live: Sequence[Request]) -> str:
        num_wanted = sum(map(self._num_wanted, live))
        num_fit = max(1, self._num_blocks * len(live) // max(1, num_wanted))
        kv_bytes = max(num_wanted, self._num_blocks + 1) * self._block_bytes
        remedy = f"raise --kv-cache-memory-bytes to at least {-(-kv_bytes // _MIB)}M"
        if num_fit < self._max_num_seqs:
            remedy += f", or lower --max-num-seqs from {self._max_num_seqs} to {num_fit}"
        return (
            f"the KV cache is too small: {100 * self.share:.0f} % of the tokens computed in the last "
            f"{newest.at_s - oldest.at_s:.0f} s had been computed before and were lost, as "
            f"{newest.num_preemptions - oldest.num_preemptions} times a request had to give up its blocks; "
            f"all that could run now ({len(live)}) would need about {num_wanted * self._block_size} tokens to their "
            f"ends, and {self._num_blocks * self._block_size} fit: {remedy}"
        )

    def _num_wanted(self, request: Request) -> int:
        """Blocks that a request will hold at its end, as far as one can know, and one to grow into."""
        num_output = request.max_total - request.num_prompt
        if self._num_ended:
            num_output = min(num_output, max(request.num_output, -(-self._num_output // self._num_ended)))
        return -(-(request.num_prompt + num_output) // self._block_size) + 1
