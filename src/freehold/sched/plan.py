"""The step plan: what the scheduler decided for one step, as plain data.

A plan names requests, positions, token ids and blocks. Only `freehold.engine.runner` turns it into a backend's rows.
"""

from array import array
from collections.abc import Sequence

import msgspec

from freehold.backends.base import FedBy, RowSampling, StepId
from freehold.protocol import Logprobs, RequestId


class PlannedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request's share of a step: compute ``num_inputs`` tokens from `start_pos` on, then sample.

    Attributes:
        token_ids: the inputs that are known, drafts included; the one from `fed_by`, if any, comes before them.
        fed_by: the first input is what this earlier row samples; its step may still run.
        block_buffer, num_blocks: the request's block table: the first `num_blocks` int32 entries of the buffer.
        num_sampled: 0 if known tokens remain to be computed after this chunk, else 1 plus the number of drafts.
        sampling: None if and only if `num_sampled` is 0.
        deferred: sampling waits for masks, one for each id that may be sampled.
        context_buffer: int32; its first `start_pos` entries are the ids before the row. None unless sampling asks for
            them.
        scored_ids: the ids after the first inputs whose log probabilities are to be reported.
        num_scored: likeliest ids to report beside each of them.
    """

    request_id: RequestId
    start_pos: int
    token_ids: Sequence[int]
    fed_by: FedBy | None
    block_buffer: "array[int]"
    num_blocks: int
    num_sampled: int
    sampling: RowSampling | None
    want_digests: bool
    deferred: bool = False
    context_buffer: "array[int] | None" = None
    scored_ids: Sequence[int] = ()
    num_scored: int = 0

    @property
    def num_inputs(self) -> int:
        """Tokens that the row computes."""
        return len(self.token_ids) + (1 if self.fed_by else 0)

    @property
    def is_plain_decode(self) -> bool:
        """It samples one id after one input, and needs nothing of the host for that but the ids before."""
        needs_host = self.deferred or self.context_buffer is not None or self.scored_ids
        return self.num_sampled == 1 == self.num_inputs and not needs_host


class StepPlan(msgspec.Struct, frozen=True):
    """The rows of one step, at most one a request. A plan without rows is never submitted.

    It may stand for a round of steps, if all rows are plain decodes: in each step after the first, every row's input is
    what it sampled in the step before.

    Attributes:
        step_id: the first step's. The others' follow.
        copies: blocks to be copied before the step and after all earlier ones, (source, destination) in order.
    """

    step_id: StepId
    rows: Sequence[PlannedRow]
    copies: Sequence[tuple[int, int]] = ()
    num_steps: int = 1

    @property
    def num_inputs(self) -> int:
        """Tokens that each step computes, never more than the budget."""
        return sum(row.num_inputs for row in self.rows)

    @property
    def step_ids(self) -> list[StepId]:
        """Of all its steps, in order."""
        return [StepId(self.step_id + number) for number in range(self.num_steps)]


class RowOutcome(msgspec.Struct, frozen=True):
    """What one planned row produced: 0 ids if it sampled nothing, else 1 to `num_sampled`; in a round, one a step.

    Attributes:
        digests, logprobs: one for each id if the request wants them.
        scored: one for each of the row's `scored_ids`.
        finite: False if logits held a NaN or an infinity; the ids are those of the steps before.
    """

    token_ids: Sequence[int]
    digests: Sequence[int] = ()
    finite: bool = True
    logprobs: Sequence[Logprobs] = ()
    scored: Sequence[Logprobs] = ()
