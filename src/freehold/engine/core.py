"""The engine's loop: plan → submit → collect the round before → apply. It runs in a thread of its own."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from freehold.amounts import amount
from freehold.backends.base import StepError
from freehold.engine.grammars import Compiled, Grammars
from freehold.engine.masks import Masks
from freehold.engine.place import LoopPlace
from freehold.engine.profiling import Profiling
from freehold.engine.rounds import Rounds
from freehold.engine.runner import RoundError, Runner
from freehold.engine.snapshot import LoopCounts, Snapshots
from freehold.engine.steps import StepReports
from freehold.faults import Point, Switch, is_forced, reach
from freehold.kv.check import InvariantError
from freehold.observe.profile import IDLE, StartProfile, StopProfile
from freehold.observe.state import EngineState
from freehold.protocol import Abort, Drain, Event, Generate, TokenTexts
from freehold.sched.check import check_idle, check_scheduler
from freehold.sched.plan import StepPlan
from freehold.sched.scheduler import Scheduler

Message = Generate | Abort | Drain | StartProfile | StopProfile | TokenTexts | Compiled
Publish = Callable[[Sequence[Event]], None]
_log = logging.getLogger(__name__)


class Inbox:
    """Messages on their way to the core, in order. Safe between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._messages: deque[Message] = deque()
        self._arrived = threading.Condition()
        self._clock = clock
        self._oldest_s = 0.0  # when the oldest message came, if there is any

    def put(self, message: Message) -> None:
        """Add a message and wake the core."""
        with self._arrived:
            if not self._messages:
                self._oldest_s = self._clock()
            self._messages.append(message)
            self._arrived.notify()

    def waiting_s(self) -> float:
        """For how many seconds the oldest message has waited; 0 if there is none."""
        oldest_s = self._oldest_s
        return max(0.0, self._clock() - oldest_s) if self._messages else 0.0

    def take(self, *, wait: bool) -> list[Message]:
        """All messages that are there; with `wait`, sleep until there is one."""
        reach(Point.INBOX_TAKE)
        if not wait and not self._messages:
            return []
        with self._arrived:
            self._arrived.wait_for(lambda: self._messages or not wait)
            messages = list(self._messages)
            self._messages.clear()
        return messages


class Progress:
    """Whether the core moves. Written by the core alone, read by anyone.

    Attributes:
        is_busy: there is work to do.
        moved_s: when a step last finished, or when work last came to an idle engine.
        place: where in its loop the core is.
        fault: why the core ended for good, in words; empty while it hasn't.
    """

    def __init__(self, now_s: float) -> None:
        self.is_busy = False
        self.moved_s = now_s
        self.place: LoopPlace = "inbox"
        self.fault = ""


class Core:
    """Scheduler and backend, and the loop that drives them.

    Args:
        publish: takes the events of one step, in order. Called in the core's thread; must not block or raise.
        rounds: says how many steps a round has. Most have one.
        profiling: over the same runner.
        steps: tells of steps.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        rounds: Rounds,
        publish: Publish,
        profiling: Profiling,
        steps: StepReports,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inbox = Inbox(clock)
        self.progress = Progress(clock())
        self._scheduler = scheduler
        self._runner = runner
        self._masks = Masks(scheduler.limits.vocab_size)
        self._grammars = Grammars(self.inbox.put)
        self._rounds = rounds
        self._publish = publish
        self._profiling = profiling
        self._steps = steps
        self._clock = clock
        self._counts = LoopCounts(clock)
        self._snapshots = Snapshots(scheduler, self._counts, clock)
        self._deadline_s: float | None = None  # set once draining
        self._running: StepPlan | None = None  # submitted and not yet collected

    def run(self) -> None:
        """Serve until drained. A fault that can't be confined to some requests ends the loop; `progress` then says so,
        and whoever runs this ends the requests that are left."""
        self._snapshots.begin()
        try:
            while self._take_messages():
                if overdue := self._scheduler.end_overdue():
                    self._tell(overdue)
                planned, running = self._submit_next(), self._running
                if not planned and not running and self._scheduler.has_work and not self._scheduler.only_holds:
                    raise InvariantError("nothing runs, nothing was planned, and yet requests wait")
                if running:
                    self._running = None
                    self._finish(running)
                if planned:
                    self._bring_masks(planned)
                self._running = planned
                self._snapshots.take_if_due()
        except Exception as error:
            _log.exception("the engine failed")
            self.progress.fault = f"the engine failed: {type(error).__name__}: {error}"
        finally:
            self.progress.is_busy = False
            self._snapshots.end()

    def still_s(self) -> float:
        """For how many seconds there has been work and no step has finished; 0 if there is none. Any thread may ask."""
        if self.progress.is_busy:
            return max(0.0, self._clock() - self.progress.moved_s)
        return self.inbox.waiting_s()

    def state(self) -> EngineState:
        """How it is, or was a moment ago. Any thread may ask."""
        return self._snapshots.newest()

    def close(self) -> None:
        """Free the backend's memory, after waiting for submitted steps. Call it when `run` has ended."""
        reach(Point.CLOSE)
        self._runner.close()

    def _submit_next(self) -> StepPlan | None:
        """Plan and submit the next step or round; None if there is nothing to compute now."""
        self._enter("plan", Point.PLAN)
        plan = self._scheduler.plan()
        if not plan.rows:
            return None
        num_steps = self._rounds.num_steps(plan)
        if num_steps > 1:
            plan = self._scheduler.lengthen(plan, num_steps)
        self._enter("submit", Point.SUBMIT)
        self._runner.submit(plan)
        self._counts.submitted(self._scheduler.counts.submitted, plan.num_steps)
        self._profiling.submitted(plan.step_id)
        return plan

    def _finish(self, plan: StepPlan) -> None:
        """Collect a step or a round, and apply what it produced."""
        try:
            self._enter("collect")
            with self._snapshots.resting():
                outcomes = self._runner.collect(plan)
            reach(Point.COLLECT)
        except StepError as error:
            _log.warning("step %d failed and ends %s: %s", plan.step_id, amount(len(plan.rows), "request"), error)
            message, before = f"a step failed: {error}", error.before if isinstance(error, RoundError) else ()
            events = self._scheduler.fail_step(plan, code="step_failed", message=message, before=before)
        else:
            self._enter("apply", Point.APPLY)
            events = self._scheduler.apply(plan, outcomes)
        self._profiling.collected(plan.step_id, plan.num_steps)
        self._steps.collected(plan, self._clock())
        self._tell(events)
        if is_forced(Switch.CHECK):
            check_scheduler(self._scheduler)
        self.progress.moved_s = self._clock()

    def _bring_masks(self, plan: StepPlan) -> None:
        """Say what rows of the newest step may sample, now that all ids before them are known."""
        self._enter("masks", Point.MASKS)
        masks, failures = self._masks.fill(plan)
        if masks:
            self._runner.bring_masks(plan, masks)
        for failure in failures:
            self._tell(self._scheduler.fail(failure.request_id, code=failure.code, message=failure.message))

    def _enter(self, place: LoopPlace, point: Point | None = None) -> None:
        self.progress.place = place
        self._counts.enter(place)
        self._profiling.enter(place)
        if point is not None:
            reach(point)

    def _tell(self, events: Sequence[Event]) -> None:
        self._enter("publish", Point.PUBLISH)
        self._masks.follow(events)
        self._steps.follow(events)
        self._publish(events)

    def _take_messages(self) -> bool:
        """Hand new messages to the scheduler, asleep while there is nothing to do. False once the core shall end."""
        self._profiling.end_if_complete()
        is_idle = not self._scheduler.has_work
        if is_idle:
            check_idle(self._scheduler)
            self.progress.is_busy = False
            if self._deadline_s is not None:
                return False
        self._enter("inbox")
        messages = self._wait() if is_idle or self._scheduler.only_holds else self.inbox.take(wait=False)
        if is_idle:
            self.progress.moved_s = self._clock()
            self.progress.is_busy = True
        for message in messages:
            self._handle(message)
        if self._deadline_s is not None and self._clock() >= self._deadline_s:
            self._tell(self._scheduler.end_all("cancelled"))
        return True

    def _wait(self) -> list[Message]:
        """Sleep until there are messages."""
        self._counts.enter(IDLE)
        self._profiling.enter(IDLE)
        with self._snapshots.resting():
            messages = self.inbox.take(wait=True)
        self._counts.enter("inbox")
        self._profiling.enter("inbox")
        return messages

    def _handle(self, message: Message) -> None:
        match message:
            case Generate():
                self._accept(message)
            case TokenTexts():
                self._grammars.learn(message)
            case Compiled():
                self._go_on_with(message)
            case Abort(request_id):
                self._tell(self._scheduler.abort(request_id))
            case StartProfile():
                self._profiling.start(message, is_idle=not self._scheduler.has_work)
            case StopProfile(profile_id):
                self._profiling.stop(profile_id)
            case Drain(deadline_s):
                deadline_s += self._clock()
                self._deadline_s = deadline_s if self._deadline_s is None else min(self._deadline_s, deadline_s)

    def _accept(self, generate: Generate) -> None:
        """Take a request on, or hold it back until its grammar is compiled."""
        self._steps.add(generate)
        grammar = generate.grammar
        compiled = None if grammar is None else self._grammars.find(grammar.source)
        if grammar is None:
            self._scheduler.add(generate)
            self._masks.add(generate)
        elif compiled is not None:
            self._scheduler.add(generate)
            self._masks.add(generate, compiled.begin(grammar, generate.sampling))
        else:
            self._scheduler.add(generate, is_held=True)
            self._grammars.order(generate)

    def _go_on_with(self, compiled: Compiled) -> None:
        """Let requests go on that were held back for a grammar, unless they have ended meanwhile."""
        for generate in self._grammars.take(compiled):
            if not self._scheduler.holds(generate):
                continue
            if isinstance(compiled.result, str):
                message = f"the grammar can't be compiled: {compiled.result}"
                self._tell(self._scheduler.fail(generate.request_id, code="grammar_failed", message=message))
                continue
            assert generate.grammar is not None
            self._masks.add(generate, compiled.result.begin(generate.grammar, generate.sampling))
            self._scheduler.let_go(generate)
