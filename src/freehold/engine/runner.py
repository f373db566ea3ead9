"""The runner: turns plans into a backend's rows and a backend's results into outcomes. Nothing else sees both."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from freehold.backends.base import Backend, NumericFormat, Row, Step, StepProfiler, StepResult
from freehold.faults import Point, reach
from freehold.sched.pace import StepPace
from freehold.sched.plan import PlannedRow, RowOutcome, StepPlan


class Runner:
    """One backend, fed with plans.

    Args:
        pace: learns from every step.
    """

    def __init__(self, backend: Backend, pace: StepPace) -> None:
        self._backend = backend
        self._pace = pace

    def submit(self, plan: StepPlan) -> None:
        """Start a planned step and return at once."""
        if plan.copies:
            reach(Point.COPY)
            self._backend.copy_blocks(plan.copies)
        self._backend.submit(step_of(plan))

    def bring_masks(self, plan: StepPlan, masks: Mapping[int, NDArray[np.uint32]]) -> None:
        """Let the deferred rows of a submitted step sample: row → masks, as `Backend.sample` takes them."""
        self._backend.sample(plan.step_id, masks)

    def wait(self, plan: StepPlan) -> None:
        """Wait for a step, and so for all before it."""
        self._backend.wait(plan.step_id)

    def collect(self, plan: StepPlan) -> list[RowOutcome]:
        """Wait for a step.

        Raises:
            StepError: this step alone failed. After any other exception the backend is broken.
        """
        result = self._backend.collect(plan.step_id)
        self._pace.observe(plan.num_inputs, result.run_s)
        return outcomes_of(result)

    @property
    def profiler(self) -> StepProfiler | None:
        """The backend's, if it can be profiled."""
        return self._backend.profiler

    @property
    def numeric_format(self) -> NumericFormat:
        """The backend's."""
        return self._backend.numeric_format

    def close(self) -> None:
        """Wait for submitted steps and free the backend's memory."""
        self._backend.close()


def step_of(plan: StepPlan) -> Step:
    """A plan as the backend's step. Block tables and contexts stay where they are."""
    return Step(plan.step_id, [_row(planned) for planned in plan.rows])


def outcomes_of(result: StepResult) -> list[RowOutcome]:
    """What the scheduler needs to know of a step's results."""
    return [RowOutcome(row.token_ids, row.digests, row.finite, row.logprobs, row.scored) for row in result.rows]


def _row(planned: PlannedRow) -> Row:
    context = planned.context_buffer
    return Row(
        start_pos=planned.start_pos,
        token_ids=planned.token_ids,
        block_ids=np.frombuffer(planned.block_buffer, np.int32, planned.num_blocks),
        num_sampled=planned.num_sampled,
        sampling=planned.sampling,
        fed_by=planned.fed_by,
        want_digests=planned.want_digests,
        deferred=planned.deferred,
        context_ids=None if context is None else np.frombuffer(context, np.int32, planned.start_pos),
        scored_ids=planned.scored_ids,
        num_scored=planned.num_scored,
    )
