"""How many steps the loop submits and collects in one round.

Between steps the loop's code and data have left the caches: a step streams all weights through them. So a step's work
on the host takes 0.3 ms, of which 0.05 ms are work, and where no processor is left over, the step that runs waits for
it. Short steps are therefore planned, submitted and collected some at a time, while nothing but the ids that they
sample can change what comes next.
"""

from collections.abc import Sequence

from freehold.faults import Switch, is_forced
from freehold.sched.pace import StepPace
from freehold.sched.plan import StepPlan
from freehold.sched.request import Request
from freehold.sched.scheduler import Scheduler

MOST_STEPS = 6

ROUND_S = 0.016
"""A round lasts no longer: a reader sees its tokens at once, and whoever comes next waits for two rounds at most."""

BATCH_ROUND_S = 0.14
"""The same of a program that has nothing but batch requests, where nobody reads."""

LEAST_STEP_S = 0.0005
"""Shorter steps wait for the loop, however it goes about it."""

OUTPUT_PER_STEP = 32
"""Ids that an answer that may stop early has for each further step of a round: what is computed past its end stays
little beside it."""


class Rounds:
    """Decides over the scheduler's requests, by how long steps take.

    Args:
        pace: learns from every step.
    """

    def __init__(self, scheduler: Scheduler, pace: StepPace) -> None:
        self._scheduler = scheduler
        self._pace = pace

    def num_steps(self, first: StepPlan) -> int:
        """Steps of the round that begins with a planned one: 1 unless that only lets answers grow and nobody waits."""
        if self._scheduler.waiting or not all(row.is_plain_decode for row in first.rows):
            return 1
        return min(self._num_affordable(), _num_harmless(self._scheduler.running))

    def _num_affordable(self) -> int:
        """By the time that a step takes."""
        if is_forced(Switch.ROUNDS):
            return MOST_STEPS
        step_s = self._pace.newest_s
        round_s = ROUND_S if self._scheduler.is_read else BATCH_ROUND_S
        return 1 if step_s < LEAST_STEP_S else min(MOST_STEPS, max(1, int(round_s / step_s)))


def _num_harmless(running: Sequence[Request]) -> int:
    """By what would be computed in vain if an answer stopped at once."""
    may_stop = (request for request in running if request.generate.sampling.stop_ids)
    return min((1 + request.num_output // OUTPUT_PER_STEP for request in may_stop), default=MOST_STEPS)
