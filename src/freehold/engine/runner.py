"""The runner: turns plans into a backend's rows and a backend's results into outcomes. Nothing else sees both."""

import numpy as np

from freehold.backends.base import Backend, Row, Step
from freehold.faults import Point, reach
from freehold.sched.plan import PlannedRow, RowOutcome, StepPlan


class Runner:
    """One backend, fed with plans."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def submit(self, plan: StepPlan) -> None:
        """Start a planned step and return at once."""
        if plan.copies:
            reach(Point.COPY)
            self._backend.copy_blocks(plan.copies)
        self._backend.submit(Step(plan.step_id, [_row(planned) for planned in plan.rows]))

    def collect(self, plan: StepPlan) -> list[RowOutcome]:
        """Wait for a step.

        Raises:
            StepError: this step alone failed. After any other exception the backend is broken.
        """
        result = self._backend.collect(plan.step_id)
        return [RowOutcome(row.token_ids, row.digests, row.finite) for row in result.rows]

    def close(self) -> None:
        """Wait for submitted steps and free the backend's memory."""
        self._backend.close()


def _row(planned: PlannedRow) -> Row:
    return Row(
        start_pos=planned.start_pos,
        token_ids=planned.token_ids,
        block_ids=np.frombuffer(planned.block_buffer, np.int32, planned.num_blocks),
        num_sampled=planned.num_sampled,
        sampling=planned.sampling,
        fed_by=planned.fed_by,
        want_digests=planned.want_digests,
    )
