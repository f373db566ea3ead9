"""The runner: turns plans into a backend's rows and a backend's results into outcomes. Nothing else sees both."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from freehold.backends.base import (
    Backend,
    NumericFormat,
    Row,
    RowResult,
    Step,
    StepError,
    StepProfiler,
    StepResult,
)
from freehold.faults import Point, reach
from freehold.sched.pace import StepPace
from freehold.sched.plan import PlannedRow, RowOutcome, StepPlan


class RoundError(StepError):
    """A step failed, and with it the rest of its round.

    Attributes:
        before: what the steps of the round before it produced; empty if it is the first.
    """

    def __init__(self, message: str, before: Sequence[RowOutcome]) -> None:
        super().__init__(message)
        self.before = before


class Runner:
    """One backend, fed with plans.

    Args:
        pace: learns from every step.
    """

    def __init__(self, backend: Backend, pace: StepPace) -> None:
        self._backend = backend
        self._pace = pace

    def submit(self, plan: StepPlan) -> None:
        """Start a planned step, or all steps of a round, and return at once."""
        if plan.copies:
            reach(Point.COPY)
            self._backend.copy_blocks(plan.copies)
        self._backend.submit(step_of(plan), plan.num_steps)

    def bring_masks(self, plan: StepPlan, masks: Mapping[int, NDArray[np.uint32]]) -> None:
        """Let the deferred rows of a submitted step sample: row → masks, as `Backend.sample` takes them."""
        self._backend.sample(plan.step_id, masks)

    def collect(self, plan: StepPlan) -> list[RowOutcome]:
        """Wait for a step, or for all steps of a round.

        Raises:
            RoundError: this step failed, or one of the round. After any other exception the backend is broken.
        """
        step_ids, num_inputs = plan.step_ids, plan.num_inputs
        if plan.num_steps > 1:
            self._backend.wait(step_ids[-1])  # or the thread would wake up after each
        results: list[StepResult] = []
        failure: StepError | None = None
        for step_id in step_ids:
            try:
                result = self._backend.collect(step_id)
            except StepError as error:
                failure = failure or error
            else:
                self._pace.observe(num_inputs, result.run_s)
                if failure is None:
                    results.append(result)
        outcomes = outcomes_of(results)
        if failure is not None:
            raise RoundError(str(failure), outcomes) from failure
        return outcomes

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
    """A plan as the backend's step, the first of its round. Block tables and contexts stay where they are."""
    return Step(plan.step_id, [_row(planned) for planned in plan.rows])


def outcomes_of(results: Sequence[StepResult]) -> list[RowOutcome]:
    """What the scheduler needs to know of the results of a round's steps, in order."""
    return [_outcome(rows) for rows in zip(*(result.rows for result in results), strict=True)]


def _outcome(rows: Sequence[RowResult]) -> RowOutcome:
    """Of one row: what its steps produced, up to one that isn't finite."""
    if len(rows) == 1:
        (row,) = rows
        return RowOutcome(row.token_ids if row.finite else (), row.digests, row.finite, row.logprobs, row.scored)
    finite = list(takewhile(attrgetter("finite"), rows))
    return RowOutcome(
        [token_id for row in finite for token_id in row.token_ids],
        [digest for row in finite for digest in row.digests],
        len(finite) == len(rows),
        [one for row in finite for one in row.logprobs],
    )


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
