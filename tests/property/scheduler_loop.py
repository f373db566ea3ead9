"""The engine's loop around a scheduler, without threads: a scripted, refereed model lags one step behind."""

from collections.abc import Callable, Sequence

import numpy as np

from freehold.backends.base import BackendOptions, Row, Step, StepError
from freehold.backends.referee import StepReferee
from freehold.backends.script import FailStep, Scripts
from freehold.backends.scripted import ScriptedModel
from freehold.kv.blocks import BlockPool
from freehold.protocol import Event, Generate
from freehold.sched.admission import Limits, check
from freehold.sched.check import check_scheduler
from freehold.sched.plan import PlannedRow, RowOutcome, StepPlan
from freehold.sched.policy import Policy
from freehold.sched.scheduler import Proposer, Scheduler

VOCAB_SIZE = 1000


class Loop:
    """Steps one at a time.

    Attributes:
        now_s: what the scheduler's clock says; changed by the tests alone.
        num_computed: inputs of all submitted steps.
        num_copies: blocks copied.
    """

    def __init__(
        self,
        options: BackendOptions,
        scripts: Scripts,
        *,
        take: Callable[[Sequence[Event]], None],
        proposer: Proposer | None = None,
        prefix_caching: bool = True,
        policy: Policy | None = None,
        checks: bool = True,
    ) -> None:
        self.now_s = 0.0
        self.num_submitted = 0
        self.num_computed = 0
        self.num_copies = 0
        self.limits = Limits(
            max_model_len=options.num_blocks * options.block_size,
            vocab_size=VOCAB_SIZE,
            block_size=options.block_size,
            max_num_seqs=options.max_rows,
            max_num_batched_tokens=options.max_tokens,
        )
        self.scheduler = Scheduler(
            BlockPool(options.num_blocks),
            self.limits,
            clock=lambda: self.now_s,
            policy=policy,
            proposer=proposer,
            prefix_caching=prefix_caching,
        )
        self._options = options
        self._take = take
        self._checks = checks
        self._model = ScriptedModel(VOCAB_SIZE, options, scripts)
        self._referee = StepReferee(VOCAB_SIZE, options)
        self._running: tuple[StepPlan, Step] | None = None
        self._spoilt: Step | None = None

    def add(self, generate: Generate) -> None:
        check(generate, self.limits)
        self.scheduler.add(generate)

    def step(self) -> None:
        """One turn: plan and submit the next step, collect and apply the one before."""
        self._take(self.scheduler.end_overdue())
        plan = self.scheduler.plan()
        submitted = self._submit(plan) if plan.rows else None
        assert submitted or self._running or not self.scheduler.has_work, "stuck"
        if self._running:
            self._collect(*self._running)
        self._running = submitted
        if self._checks:
            check_scheduler(self.scheduler)

    def _submit(self, plan: StepPlan) -> tuple[StepPlan, Step]:
        assert plan.num_inputs <= self._options.max_tokens
        assert len(plan.rows) <= self._options.max_rows
        step = Step(plan.step_id, [_row(planned) for planned in plan.rows])
        self._referee.copied(plan.copies)
        self._referee.submitted(step)
        self.num_submitted += 1
        self.num_computed += plan.num_inputs
        self.num_copies += len(plan.copies)
        return plan, step

    def _collect(self, plan: StepPlan, step: Step) -> None:
        self._referee.collected(step.step_id)
        self._model.cells.copy(plan.copies)
        result, effects = self._model.run(step, {})
        self._spoil()
        if any(isinstance(effect, FailStep) for effect in effects):
            self._spoilt = step
            if not self._referee.in_flight:
                self._spoil()
            self._take(self.scheduler.fail_step(plan, code="step_failed", message=str(StepError())))
            return
        outcomes = [RowOutcome(row.token_ids, row.digests, row.finite) for row in result.rows]
        self._take(self.scheduler.apply(plan, outcomes))

    def _spoil(self) -> None:
        """What a failed step's rows wrote is undefined. The step after it, if in flight, has read it already; its rows
        that were fed by the failed one mean nothing, so the model needn't see it."""
        rows, self._spoilt = self._spoilt.rows if self._spoilt else (), None
        for row in rows:
            end_pos = row.start_pos + len(row.token_ids) + (row.fed_by is not None)
            cells = self._model.cells.cells(row.block_ids, end_pos)[row.start_pos :]
            self._model.cells.before[cells] = self._model.cells.after[cells] = 0


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
