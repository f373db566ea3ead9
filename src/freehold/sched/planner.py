"""Fills steps: who gets how many tokens of the next one, who starts, and who must wait for what."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import structs

from freehold.backends.base import FedBy, StepId
from freehold.faults import Switch, is_forced
from freehold.sched.admission import Limits
from freehold.sched.counts import TokenCounts
from freehold.sched.draft import Hindrance, StepDraft, Turn, whose_turn
from freehold.sched.memory import KVMemory
from freehold.sched.pace import StepPace
from freehold.sched.plan import StepPlan
from freehold.sched.policy import Rank
from freehold.sched.request import Request, Status
from freehold.sched.roster import Roster
from freehold.sched.rows import plan_row
from freehold.sched.sharing import follows

MAX_LOOKUPS = 64
"""Prefixes looked up in one step. More requests than that may follow, but finding that out takes some steps then."""


class Proposer(Protocol):
    """Guesses how an answer goes on; the guesses are verified within the ordinary step."""

    def propose(self, ids: Sequence[int], max_drafts: int) -> Sequence[int]:
        """Up to `max_drafts` ids that may follow `ids`."""
        ...


class StepPlanner:
    """Plans one step after the other, over the queues and the memory of a scheduler.

    Args:
        clock: seconds, monotonic.

    Attributes:
        hindrance: what kept waiting requests from starting in the step planned last; None if nothing did.
    """

    def __init__(
        self,
        roster: Roster,
        memory: KVMemory,
        counts: TokenCounts,
        limits: Limits,
        *,
        clock: Callable[[], float],
        proposer: Proposer | None,
        pace: StepPace | None,
    ) -> None:
        self._roster = roster
        self._memory = memory
        self._counts = counts
        self._limits = limits
        self._clock = clock
        self._proposer = proposer
        self._pace = pace
        self._waiting, self._running = roster.waiting, roster.running
        self.hindrance: Hindrance | None = None

    def plan(self, step_id: StepId) -> StepDraft:
        """Plan a step. Its rows count as in flight from here on.

        Running and waiting requests come in the policy's order, each with as many of its uncomputed tokens as the
        budget holds after keeping one for every later request that is decoding: a long prompt never holds up others'
        answers, nor the prompt of somebody more urgent.
        """
        self._force()
        self._roster.just_preempted.clear()
        step = StepDraft(step_id, self._budget())
        self._plan_rows(step)
        self.hindrance = step.hindrance
        return step

    def lengthen(self, plan: StepPlan, requests: Sequence[Request], num_steps: int) -> StepPlan:
        """A round of up to so many steps that begins with a planned one, of these requests' plain decodes: as many as
        all answers go on for, and one if blocks are too few, or if somebody guesses. Its rows count as in flight from
        here on."""
        num_more = min(num_steps - 1, *(request.max_total - request.num_total for request in requests))
        missing = [self._memory.num_blocks(request.num_planned + num_more) - len(request.table) for request in requests]
        num_missing = sum(num_blocks for num_blocks in missing if num_blocks > 0)
        if num_more == 0 or num_missing > self._memory.pool.num_available or self._proposer is not None:
            return plan
        rows = plan.rows
        if num_missing:
            for request, num_blocks in zip(requests, missing, strict=True):
                self._memory.grow(request, max(0, num_blocks))
            rows = [
                structs.replace(row, block_buffer=request.table.buffer, num_blocks=len(request.table))
                for row, request in zip(rows, requests, strict=True)
            ]
        last_step_id = StepId(plan.step_id + num_more)
        self._counts.submit(num_more * len(requests))
        for number, request in enumerate(requests):
            request.num_planned += num_more
            request.num_pending += num_more
            request.last_step_id = last_step_id
            request.fed_by = FedBy(last_step_id, number)
        return StepPlan(plan.step_id, rows, plan.copies, num_more + 1)

    def _budget(self) -> int:
        """Tokens that the next step may compute: all that fit where nobody waits for it, as in a program that has
        nothing but batch requests."""
        budget = self._limits.max_num_batched_tokens
        if self._pace is None or not self._roster.is_read:
            return budget
        num_decoding = sum(request.num_output > 0 for request in self._running)
        return self._pace.most_tokens(max(num_decoding, self._roster.has_batch), budget)

    def _force(self) -> None:
        """Do what tests have switched on."""
        if is_forced(Switch.PREEMPT):
            for request in self._running[1:]:
                self._roster.preempt(request)
        if is_forced(Switch.EVICT):
            self._memory.evict_all()

    def _plan_rows(self, step: StepDraft) -> None:
        ready = [(request, self._num_ready(request)) for request in self._running]
        self._roster.look_for_urgent()
        self._plan_turns(step, whose_turn([turn for turn in ready if not self._roster.yields(turn[0])], step.budget))
        if not step.rows:  # those whose turn it is wait for the blocks of others, who must get on
            self._plan_turns(step, [turn for turn in ready if turn[1]])

    def _plan_turns(self, step: StepDraft, turns: Sequence[Turn]) -> None:
        step.num_owed = sum(num_ready == 1 for _, num_ready in turns)
        for request, num_ready in turns:
            if step.hindrance is None and step.num_passed < len(self._waiting):
                self._start_before(step, request.rank)
            if request.status is not Status.RUNNING:
                break  # preempted just now by one before it, and so are all after it
            step.num_owed -= num_ready == 1
            num_inputs = min(num_ready, max(1, step.room)) if step.budget else 0
            if num_inputs and self._roster.reserve(request, request.num_planned + num_inputs):
                self._add_row(step, request, num_inputs, max_drafts=step.room - num_inputs)
        step.num_owed = 0
        self._start_before(step, None)

    def _start_before(self, step: StepDraft, rank: Rank | None) -> None:
        """Start waiting requests that are before `rank` in order, while rows, blocks and budget last. Nobody passes one
        that can't start, but for those that are held, or that follow a running request, to reuse what that one
        computes. Who was preempted in this step starts in a later one."""
        while step.hindrance is None:
            if step.num_passed == len(self._waiting):
                return
            request = self._waiting[step.num_passed]
            if rank is not None and request.rank > rank:
                return
            if step.room <= 0:
                step.hindrance = "tokens" if self._roster.may_have_row(request) else "rows"
            elif self._roster.yields(request):
                step.hindrance = "order"
            elif request.is_held or follows(request):
                step.num_passed += 1
            elif request.num_in_flight or request in self._roster.just_preempted or step.num_lookups == MAX_LOOKUPS:
                step.hindrance = "order"
            elif not self._roster.may_have_row(request):
                step.hindrance = "rows"
            else:
                self._start(step, request)

    def _start(self, step: StepDraft, request: Request) -> None:
        """Give a waiting request blocks for all its known tokens at once, and its first row; or make room, so that it
        can be tried again. Every running request keeps one block to grow into, so that starting one seldom preempts
        another."""
        num_spare = len(self._running)
        if self._memory.must_wait(request, num_spare) and not self._roster.may_displace(request):
            step.hindrance = "blocks"
            return
        step.num_lookups += 1
        found = self._memory.find(request, self._running)
        if self._memory.find_leader(request, found, self._running):
            step.num_passed += 1
            return
        if self._roster.is_full:
            self._roster.preempt(self._running[-1])
            return  # to be looked at again: what was found may have changed
        copies = self._memory.start(request, found, num_spare)
        if copies is None:
            step.hindrance = None if self._roster.displace(request) else "blocks"
            return
        self._counts.reuse(request, request.num_computed)
        if request.started_s is None:
            request.started_s = self._clock()
        self._roster.start(request)
        step.copies.extend(copies)
        self._add_row(step, request, min(request.num_uncomputed, step.room), max_drafts=0)

    def _num_ready(self, request: Request) -> int:
        """Inputs of a running request that this step could compute."""
        return 0 if self._proposer is not None and request.num_pending else request.num_uncomputed

    def _add_row(self, step: StepDraft, request: Request, num_inputs: int, *, max_drafts: int) -> None:
        """Plan `num_inputs` tokens of a request whose blocks are reserved, and drafts after them if there is room."""
        is_sampling = request.num_planned + num_inputs == request.num_total and request.wants_answer
        drafts = self._drafts(self._proposer, request, max_drafts) if is_sampling and self._proposer else ()
        step.rows.append(plan_row(request, num_inputs, drafts))
        self._counts.submit(num_inputs + len(drafts))
        request.num_planned += num_inputs + len(drafts)
        request.num_in_flight += 1
        request.last_step_id = step.step_id
        if drafts:
            request.is_drafting = True
        elif is_sampling:
            request.num_pending += 1
            request.fed_by = FedBy(step.step_id, len(step.requests))
        step.requests.append(request)
        step.budget -= num_inputs + len(drafts)

    def _drafts(self, proposer: Proposer, request: Request, max_drafts: int) -> Sequence[int]:
        """What the proposer guesses, as budget, length and free blocks allow. Nobody is preempted for a guess."""
        max_drafts = min(max_drafts, request.max_total - request.num_total - 1)
        if request.num_pending or max_drafts <= 0:
            return ()
        drafts = proposer.propose(request.ids, max_drafts)[:max_drafts]
        missing = self._memory.num_blocks(request.num_total + len(drafts)) - len(request.table)
        if missing > self._memory.pool.num_available:
            return ()
        self._memory.grow(request, max(0, missing))
        return drafts
