"""The scheduler: decides, step by step, which request computes which tokens in which blocks. Integers only.

There are no prefill and decode phases. A request has known ids (prompt and answer so far) and a number of computed
ones, and every step lets computed catch up with known under a budget of tokens. A chunk that reaches the last known id
samples the next. That one rule covers chunked prefill, decoding, drafts, recomputing after preemption, and going on
from what the prefix tree has.

Step N+1 is planned while step N runs, so an answer's newest id may not be known yet: the row is then fed by the earlier
row. If that row turns out to have ended the request, the later row is dropped when it arrives, and only then do the
blocks return, since until then the device may write to them.
"""

from collections.abc import Callable, Sequence

from freehold.backends.base import StepId
from freehold.kv.blocks import BlockPool
from freehold.protocol import Event, Finish, FinishReason, Generate, RequestId, Stages
from freehold.sched.admission import Limits
from freehold.sched.counts import DraftCounts, TokenCounts
from freehold.sched.deadlines import Deadlines
from freehold.sched.draft import Hindrance
from freehold.sched.memory import KVMemory
from freehold.sched.pace import StepPace
from freehold.sched.plan import PlannedRow, RowOutcome, StepPlan
from freehold.sched.planner import Proposer, StepPlanner
from freehold.sched.policy import Policy, UrgentFirst
from freehold.sched.request import Request, Status
from freehold.sched.roster import Roster
from freehold.sched.rows import ids_to_end, scores_of, take_ids
from freehold.sched.thrash import ThrashAlarm


class Scheduler:
    """All requests that were accepted and have not ended, and the block pool.

    Args:
        limits: every request added has passed `freehold.sched.admission.check` against them.
        clock: seconds, monotonic; tests inject their own.
        policy: who goes first.
        proposer: with one, requests aren't planned ahead of their newest id, since guessing needs to know it.
        prefix_caching: reuse what was computed before for the same ids.
        alarm: told of every step.

    Attributes, for reading only:
        memory: the blocks that requests hold and the prefix tree.
        counts: the ledger of tokens.
        drafts: how many guesses were right.
        live: all requests that have not ended; each is either in `waiting` or in `running`.
        waiting: new and preempted requests, in the policy's order.
        running: requests that hold blocks and may get a row in every step, in the same order.
        in_flight: by submitted step that is not applied, the requests of its rows.
    """

    def __init__(  # noqa: PLR0913
        self,
        pool: BlockPool,
        limits: Limits,
        *,
        clock: Callable[[], float],
        policy: Policy | None = None,
        proposer: Proposer | None = None,
        prefix_caching: bool = True,
        alarm: ThrashAlarm | None = None,
        pace: StepPace | None = None,
    ) -> None:
        if limits.max_model_len > pool.num_blocks * limits.block_size:
            sizes = f"{pool.num_blocks} blocks of {limits.block_size}"
            raise ValueError(f"a request of {limits.max_model_len} tokens doesn't fit in {sizes}")
        self.pool = pool
        self.memory = KVMemory(pool, limits.block_size, prefix_caching=prefix_caching, clock=clock)
        self.counts = TokenCounts()
        self.drafts = DraftCounts()
        self.limits = limits
        self.alarm = alarm
        self._clock = clock
        self._policy: Policy = policy or UrgentFirst()
        self._roster = Roster(self.memory, self._policy, limits.max_num_seqs)
        self._planner = StepPlanner(
            self._roster, self.memory, self.counts, limits, clock=clock, proposer=proposer, pace=pace
        )
        self._deadlines = Deadlines()
        self._num_arrivals = 0
        self._next_step_id = 0
        self.live: dict[RequestId, Request] = {}
        self.waiting, self.running, self.in_flight = (
            self._roster.waiting, self._roster.running, self._roster.in_flight,
        )  # fmt: skip

    @property
    def num_preemptions(self) -> int:
        """Since start-up."""
        return self._roster.num_preemptions

    @property
    def hindrance(self) -> Hindrance | None:
        """What kept waiting requests from starting in the step planned last; None if nothing did."""
        return self._planner.hindrance

    @property
    def has_work(self) -> bool:
        """Some request has not ended, or a step is still to be applied."""
        return bool(self.live or self.in_flight)

    # ------------------------------------------------------------------ requests come and go

    def add(self, generate: Generate, *, is_held: bool = False) -> None:
        """Queue an admitted request. Its id differs from those of all requests that have not ended.

        Args:
            is_held: it doesn't start before `let_go`.
        """
        now_s = self._clock()
        rank = self._policy.rank(generate, now_s, self._num_arrivals)
        self._num_arrivals += 1
        request = Request(generate, max_total=self.limits.max_total(generate), arrival_s=now_s, rank=rank)
        request.is_held = is_held
        self.live[generate.request_id] = request
        self.counts.accept(request)
        if generate.deadline_s is not None:
            self._deadlines.add(request, now_s + generate.deadline_s)
        self._roster.enter(request)

    def holds(self, generate: Generate) -> bool:
        """Whether this very request was added as held, and has neither ended nor been let go."""
        request = self.live.get(generate.request_id)
        return request is not None and request.generate is generate and request.is_held

    def let_go(self, generate: Generate) -> None:
        """A request that is held may start."""
        request = self.live[generate.request_id]
        request.is_held, request.held_s = False, self._clock() - request.arrival_s

    @property
    def is_read(self) -> bool:
        """A request that isn't of the class batch has come since start-up: somebody may wait for a step."""
        return self._roster.is_read

    @property
    def only_holds(self) -> bool:
        """There is nothing to do but to wait until a request may start."""
        return bool(self.live) and not self.in_flight and all(request.is_held for request in self.live.values())

    def abort(self, request_id: RequestId) -> list[Event]:
        """End a request as cancelled. Unknown and ended ids are ignored."""
        request = self.live.get(request_id)
        return [] if request is None else [self._end(request, "cancelled")]

    def fail(self, request_id: RequestId, *, code: str, message: str) -> list[Event]:
        """End a request as failed. Unknown and ended ids are ignored."""
        request = self.live.get(request_id)
        return [] if request is None else [self._end(request, "failed", code=code, message=message)]

    def end_overdue(self) -> list[Event]:
        """End the requests whose deadline has passed, in whatever state. To be called before each `plan`."""
        events: list[Event] = []
        now_s = self._clock()
        while (request := self._deadlines.overdue(now_s)) is not None:
            message = (
                f"the request was to end within {request.generate.deadline_s:g} s and has not after "
                f"{now_s - request.arrival_s:.3g} s; {request.num_output} tokens were generated"
            )
            events.append(self._end(request, "failed", code="deadline_exceeded", message=message))
        return events

    @property
    def num_deadlines(self) -> int:
        """Requests that have not ended and must by some time."""
        return len(self._deadlines)

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks and let it wait. It happens by itself where rows or blocks run out."""
        self._roster.preempt(request)

    def end_all(self, reason: FinishReason, *, code: str | None = None, message: str | None = None) -> list[Event]:
        """End every request, for instance because the engine stops. Steps in flight must still be applied."""
        return [self._end(request, reason, code=code, message=message) for request in list(self.live.values())]

    # ------------------------------------------------------------------ plan

    def plan(self) -> StepPlan:
        """Decide the next step. One with rows counts as submitted: it must be applied or failed later, in order."""
        step = self._planner.plan(StepId(self._next_step_id))
        if step.rows:
            self._next_step_id += 1
            self.in_flight[step.step_id] = step.requests
        return StepPlan(step.step_id, step.rows, step.copies)

    def lengthen(self, plan: StepPlan, num_steps: int) -> StepPlan:
        """Make the step planned last, whose rows are plain decodes, a round of up to so many steps: of fewer if an
        answer is complete before, and of one if blocks are too few. Its further steps count as submitted too."""
        lengthened = self._planner.lengthen(plan, self.in_flight[plan.step_id], num_steps)
        self._next_step_id += lengthened.num_steps - 1
        return lengthened

    # ------------------------------------------------------------------ apply

    def apply(self, plan: StepPlan, outcomes: Sequence[RowOutcome]) -> list[Event]:
        """Take in what a step or a round produced: ids become known, requests end, blocks return.

        Returns:
            events in the order of the rows; a request's `Finish` comes after its last `Tokens`.
        """
        events: list[Event] = []
        for request, row, outcome in zip(self.in_flight.pop(plan.step_id), plan.rows, outcomes, strict=True):
            self._take_outcome(request, row, plan.num_steps, outcome, events)
            if request.status is Status.RUNNING:
                self.memory.keep(request)
            else:
                self._roster.release_if_left(request)
        if self.alarm is not None:
            self.alarm.look(self.counts, self.num_preemptions, self._runnable)
        return events

    def _runnable(self) -> list[Request]:
        """Requests that run, and those that would if there were blocks for them."""
        return self.running + self.waiting[: self.limits.max_num_seqs - len(self.running)]

    def fail_step(self, plan: StepPlan, *, code: str, message: str, before: Sequence[RowOutcome] = ()) -> list[Event]:
        """A step produced nothing: the requests that had rows in it end as failed, all others go on.

        Args:
            before: what the steps of its round before it produced, if there were any.
        """
        events: list[Event] = []
        outcomes = before or [RowOutcome(()) for _ in plan.rows]
        for request, row, outcome in zip(self.in_flight.pop(plan.step_id), plan.rows, outcomes, strict=True):
            if before:
                self._take_outcome(request, row, plan.num_steps, outcome, events)
            else:
                self._settle(request, row, plan.num_steps, 0)
            if request.status is not Status.ENDED:
                events.append(self._end(request, "failed", code=code, message=message))
            self._roster.release_if_left(request)
        return events

    def _settle(self, request: Request, row: PlannedRow, num_steps: int, num_valid: int) -> None:
        """A row of the request is no longer in flight, and has computed its first `num_valid` inputs."""
        self.counts.settle(request, row.start_pos, num_steps * row.num_inputs, num_valid)
        request.num_computed += num_valid
        request.num_in_flight -= 1
        if row.num_sampled == 1:
            request.num_pending -= num_steps
            if request.num_pending == 0:
                request.fed_by = None
        elif row.num_sampled > 1:
            request.is_drafting = False

    def _take_outcome(
        self, request: Request, row: PlannedRow, num_steps: int, outcome: RowOutcome, events: list[Event]
    ) -> None:
        """A row has come back: its request has what it computed, unless it has ended."""
        has_ended = request.status is Status.ENDED
        ids, reason = (outcome.token_ids, None) if has_ended else ids_to_end(request, outcome.token_ids)
        num_valid = 0
        if row.start_pos == request.num_computed:  # else it follows on a step that failed
            is_chunk = outcome.finite and num_steps == 1
            num_valid = len(ids) + (row.num_inputs - row.num_sampled if is_chunk else 0)
        self._settle(request, row, num_steps, num_valid)
        if has_ended:
            return
        if outcome.scored:
            events.extend(scores_of(request, row, outcome))
        if ids:
            self._take_ids(request, row, ids, outcome, events)
        if not outcome.finite and reason is None:
            pos = row.start_pos + row.num_inputs - 1 + len(ids)
            self.memory.distrust(request)
            message = f"the model's logits after position {pos} hold a NaN or an infinity"
            events.append(self._end(request, "failed", code="numeric_error", message=message))
        elif reason is not None:
            events.append(self._end(request, reason))
        elif not request.wants_answer and request.num_computed == request.num_prompt:
            events.append(self._end(request, "length"))

    def _take_ids(
        self, request: Request, row: PlannedRow, ids: Sequence[int], outcome: RowOutcome, events: list[Event]
    ) -> None:
        """The first ids of an outcome are the request's."""
        if request.first_token_s is None:
            request.first_token_s = self._clock()
        events.append(take_ids(request, ids, outcome))
        self.counts.sampled += len(ids)
        if row.num_sampled > 1:
            self.drafts.count(row.num_sampled - 1, len(ids) - 1)
            if request.status is Status.RUNNING:
                # What follows was computed from wrong guesses.
                request.num_planned = row.start_pos + row.num_inputs - row.num_sampled + len(ids)

    def _end(
        self, request: Request, reason: FinishReason, *, code: str | None = None, message: str | None = None
    ) -> Finish:
        """The one place where requests end, in whatever state."""
        del self.live[request.generate.request_id]
        self._roster.leave(request)
        self.counts.end(request)
        if self.alarm is not None:
            self.alarm.ended(request)
        if request.generate.deadline_s is not None:
            self._deadlines.ended()
        self._roster.release_if_left(request)
        return Finish(
            request_id=request.generate.request_id,
            reason=reason,
            num_prompt_tokens=request.num_prompt,
            num_output_tokens=request.num_output,
            num_cached_tokens=request.num_cached or 0,
            stop_id=request.ids[-1] if reason == "stop" else None,
            code=code,
            message=message,
            stages=Stages(
                request.arrival_s, request.started_s, request.first_token_s, self._clock(), request.num_preemptions
            ),
        )
