"""A step while it is being planned, and whose turn it is in it."""

from collections.abc import Sequence
from typing import Literal

from freehold.backends.base import StepId
from freehold.sched.memory import Copy
from freehold.sched.plan import PlannedRow
from freehold.sched.request import Request

Hindrance = Literal["rows", "blocks", "tokens", "order"]
"""What keeps the first of those that wait from starting: every row of a step is taken, or every token; free blocks are
too few; or others go first, if only for one step."""

Turn = tuple[Request, int]
"""A running request, and inputs that it could compute now."""


class StepDraft:
    """What is planned of a step so far.

    Attributes:
        budget: inputs that may still be planned.
        num_owed: of those, kept for requests that decode and come later in order.
        num_passed: waiting requests, from the first on, that needn't be looked at again.
        num_lookups: prefixes looked up.
        hindrance: why nobody may start any more; None while somebody may.
    """

    __slots__ = (
        "budget",
        "copies",
        "hindrance",
        "num_lookups",
        "num_owed",
        "num_passed",
        "requests",
        "rows",
        "step_id",
    )

    def __init__(self, step_id: StepId, budget: int) -> None:
        self.step_id = step_id
        self.budget = budget
        self.rows: list[PlannedRow] = []
        self.copies: list[Copy] = []
        self.requests: list[Request] = []
        self.num_owed = 0
        self.num_passed = 0
        self.num_lookups = 0
        self.hindrance: Hindrance | None = None

    @property
    def room(self) -> int:
        """Inputs that whoever comes next in order may have; his own is not among those kept for others."""
        return self.budget - self.num_owed


def whose_turn(ready: Sequence[Turn], budget: int) -> list[Turn]:
    """The running requests that get tokens in a step, in their order. That is all who have something to compute, unless
    the budget doesn't even hold one token for each that decodes and one more: then those who have waited longest get
    one each, so that of N requests everyone has a turn in N / budget steps, rounded up."""
    turns = [turn for turn in ready if turn[1]]
    num_decoding = sum(num_inputs == 1 for _, num_inputs in turns)
    if len(turns) <= budget or num_decoding < budget:
        return turns
    longest = sorted(turns, key=lambda turn: turn[0].last_step_id)[:budget]
    return [(request, 1) for request, _ in sorted(longest, key=lambda turn: turn[0].rank)]
