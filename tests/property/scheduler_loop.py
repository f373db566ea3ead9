"""The engine's loop around a scheduler, without threads: a scripted, refereed model lags one step behind."""

from collections.abc import Callable, Mapping, Sequence

from freehold.backends.base import BackendOptions, Step, StepError, StepId, StepResult, steps_of_round
from freehold.backends.referee import StepReferee
from freehold.backends.script import FailStep, Scripts
from freehold.backends.scripted import ScriptedModel
from freehold.engine.masks import Mask, Masks
from freehold.engine.runner import outcomes_of, step_of
from freehold.kv.blocks import BlockPool
from freehold.protocol import Event, Generate
from freehold.sched.admission import Limits, check
from freehold.sched.check import check_scheduler
from freehold.sched.plan import StepPlan
from freehold.sched.policy import Policy
from freehold.sched.scheduler import Proposer, Scheduler
from freehold.sched.thrash import ThrashAlarm

VOCAB_SIZE = 1000


class Loop:
    """Steps one at a time, or in rounds.

    Args:
        most_steps: of a round.

    Attributes:
        now_s: what the scheduler's clock says; changed by the tests alone.
        num_computed: inputs of all submitted steps.
        num_copies: blocks copied.
        masks: of the requests that may not sample every id.
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
        most_steps: int = 1,
    ) -> None:
        self.now_s = 0.0
        self._most_steps = most_steps
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
            alarm=ThrashAlarm(
                num_blocks=options.num_blocks,
                block_size=options.block_size,
                block_bytes=1 << 20,
                max_num_seqs=options.max_rows,
                clock=lambda: self.now_s,
            ),
        )
        self._options = options
        self.masks = Masks(VOCAB_SIZE)
        self._receive = take
        self._checks = checks
        self._model = ScriptedModel(VOCAB_SIZE, options, scripts)
        self._referee = StepReferee(VOCAB_SIZE, options)
        self._running: tuple[StepPlan, list[Step]] | None = None
        self._running_masks: Mapping[int, Mask] = {}
        self._newest = StepId(0)  # of those submitted
        self._spoilt: dict[StepId, Step] = {}  # failed steps, by the last that may have read what they wrote

    def add(self, generate: Generate) -> None:
        check(generate, self.limits)
        self.scheduler.add(generate)
        self.masks.add(generate)

    def step(self) -> None:
        """One turn: plan and submit the next step or round, collect and apply the one before."""
        self.take(self.scheduler.end_overdue())
        plan = self.scheduler.plan()
        if self._most_steps > 1 and plan.rows and all(row.is_plain_decode for row in plan.rows):
            plan = self.scheduler.lengthen(plan, self._most_steps)
        submitted = self._submit(plan) if plan.rows else None
        assert submitted or self._running or not self.scheduler.has_work, "stuck"
        if self._running:
            self._collect(*self._running)
        self._running = submitted
        self._fill_masks(plan)
        if self._checks:
            check_scheduler(self.scheduler)

    def take(self, events: Sequence[Event]) -> None:
        """Pass events on."""
        self.masks.follow(events)
        self._receive(events)

    def _fill_masks(self, plan: StepPlan) -> None:
        self._running_masks, failures = self.masks.fill(plan)
        if self._running_masks:
            self._referee.masked(plan.step_id, self._running_masks)
        for failure in failures:
            self.take(self.scheduler.fail(failure.request_id, code=failure.code, message=failure.message))

    def _submit(self, plan: StepPlan) -> tuple[StepPlan, list[Step]]:
        assert plan.num_inputs <= self._options.max_tokens
        assert len(plan.rows) <= self._options.max_rows
        steps = list(steps_of_round(step_of(plan), plan.num_steps))
        self._referee.copied(plan.copies)
        for step in steps:
            self._referee.submitted(step)
        self._newest = steps[-1].step_id
        self.num_submitted += plan.num_steps
        self.num_computed += plan.num_steps * plan.num_inputs
        self.num_copies += len(plan.copies)
        return plan, steps

    def _collect(self, plan: StepPlan, steps: Sequence[Step]) -> None:
        self._model.cells.copy(plan.copies)
        results: list[StepResult] = []
        has_failed = False
        for step in steps:
            self._referee.collected(step.step_id)
            result, effects = self._model.run(step, self._running_masks)
            if any(isinstance(effect, FailStep) for effect in effects):
                has_failed = True
                self._spoilt.setdefault(self._newest, step)
            elif not has_failed:
                results.append(result)
            self._spoil(step.step_id)
        outcomes = outcomes_of(results)
        if has_failed:
            message = str(StepError())
            self.take(self.scheduler.fail_step(plan, code="step_failed", message=message, before=outcomes))
        else:
            self.take(self.scheduler.apply(plan, outcomes))

    def _spoil(self, done: StepId) -> None:
        """What a failed step's rows wrote is undefined. Steps after it that were in flight have read it already; their
        rows that were fed by the failed one mean nothing, so the model needn't see it."""
        spoilt = self._spoilt.pop(done, None)
        for row in spoilt.rows if spoilt else ():
            end_pos = row.start_pos + len(row.token_ids) + (row.fed_by is not None)
            cells = self._model.cells.cells(row.block_ids, end_pos)[row.start_pos :]
            self._model.cells.before[cells] = self._model.cells.after[cells] = 0
