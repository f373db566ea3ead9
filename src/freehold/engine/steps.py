"""Who had rows in which step: told while a request that runs wants it told."""

from collections.abc import Callable, Sequence

from freehold.protocol import Event, Finish, Generate, RequestId, StepRows
from freehold.sched.plan import StepPlan

OnStep = Callable[[StepRows], None]
"""Takes the rows of a step. Called in the core's thread; must not block or raise."""


class StepReports:
    """Follows the requests that want their steps told. Costs nothing while there is none."""

    def __init__(self, tell: OnStep) -> None:
        self._tell = tell
        self._wanted: set[RequestId] = set()

    def add(self, generate: Generate) -> None:
        """A request was taken on."""
        if generate.steps:
            self._wanted.add(generate.request_id)

    def follow(self, events: Sequence[Event]) -> None:
        """Requests may have ended."""
        if self._wanted:
            self._wanted.difference_update(event.request_id for event in events if isinstance(event, Finish))

    def collected(self, plan: StepPlan, now_s: float) -> None:
        """A step or a round is done. To be called before what it brings is published."""
        if not self._wanted:
            return
        request_ids = tuple(row.request_id for row in plan.rows)
        if not self._wanted.isdisjoint(request_ids):
            num_inputs = tuple(row.num_inputs for row in plan.rows)
            for step_id in plan.step_ids:
                self._tell(StepRows(step_id, now_s, request_ids, num_inputs))
