"""Drives the scheduler through a trace of arrivals and aborts with a backend that lags one step behind, as a real one
does, and works out independently what each request must have produced."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler_loop import VOCAB_SIZE, Loop

from freehold.backends.base import BackendOptions
from freehold.backends.script import FailStep, Item, NotFinite, Scripts
from freehold.config import PolicyName
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, ServiceClass, Tokens
from freehold.sched.check import check_idle
from freehold.sched.policy import POLICIES

STOP_ID = 999
MAX_GUESSES = 5


@dataclass(frozen=True)
class Case:
    """One request of a trace.

    Attributes:
        arrives_at, abort_at: steps.
        num_answer: scripted ids; the script starts over after them unless `stops`.
        stops: the scripted answer ends with the stop id.
        fault_at: index of the answer's id where `fault` strikes.
        family, num_family: the prompt begins with so many ids that all of this family share; a prompt that is no longer
            than that is equal to others', and so is its answer. None: it differs from the first id on.
        namespace: of the prefix cache.
        siblings: those with the same name share even without a prefix cache.
        deadline_s: seconds, of which each step takes the trace's `step_s`.
    """

    num_prompt: int
    num_answer: int
    max_tokens: int
    arrives_at: int = 0
    abort_at: int | None = None
    stops: bool = True
    fault: NotFinite | FailStep | None = None
    fault_at: int = 0
    family: int | None = None
    num_family: int = 0
    namespace: str = ""
    siblings: str = ""
    service: ServiceClass = "interactive"
    priority: int = 0
    deadline_s: float | None = None


@dataclass(frozen=True)
class Trace:
    """A whole run.

    Attributes:
        step_s: what the clock goes on by with every step.
    """

    cases: Sequence[Case]
    num_blocks: int
    block_size: int = 4
    max_num_seqs: int = 4
    budget: int = 16
    guess_rate: float | None = None  # None: no proposer; else how often its guesses are right
    seed: int = 0
    prefix_caching: bool = True
    policy: PolicyName = "priority"
    step_s: float = 1.0
    most_steps: int = 1  # of a round


def prompt_of(index: int, case: Case) -> tuple[int, ...]:
    """The family's ids, then the request's own, which differ from all others' from the first on."""
    num_shared = 0 if case.family is None else min(case.num_family, case.num_prompt)
    family, own = random.Random(f"family {case.family}"), random.Random(index)
    shared = [family.randrange(STOP_ID) for _ in range(num_shared)]
    ids = [index, *(own.randrange(STOP_ID) for _ in range(case.num_prompt - 1))]
    return (*shared, *ids[: case.num_prompt - num_shared])


def answer_of(index: int, case: Case) -> list[int]:
    """The scripted ids. Equal prompts have equal answers, as far as they go."""
    source = random.Random(str(prompt_of(index, case)))
    ids = [source.randrange(STOP_ID) for _ in range(case.num_answer)]
    return [*ids[:-1], STOP_ID] if case.stops else ids


class Guesser:
    """A proposer that knows the answers and is wrong at times."""

    def __init__(self, trace: Trace) -> None:
        self._rate = trace.guess_rate or 0.0
        self._random = random.Random(trace.seed)
        self._answers = {prompt_of(i, case): answer_of(i, case) for i, case in enumerate(trace.cases)}

    def propose(self, ids: Sequence[int], max_drafts: int) -> Sequence[int]:
        num_prompt = next(n for n in range(len(ids), 0, -1) if tuple(ids[:n]) in self._answers)
        answer = self._answers[tuple(ids[:num_prompt])]
        drafts = [answer[(len(ids) - num_prompt + i) % len(answer)] for i in range(self._random.randint(0, max_drafts))]
        return [d if self._random.random() < self._rate else (d + 1) % VOCAB_SIZE for d in drafts][:MAX_GUESSES]


@dataclass
class Result:
    """What one request got."""

    token_ids: list[int] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)


class Run:
    """Runs a trace step by step, checking all invariants after each."""

    def __init__(self, trace: Trace, *, check_every_step: bool = True) -> None:
        self.trace = trace
        scripts = Scripts()
        for index, case in enumerate(trace.cases):
            items: list[Item] = [*answer_of(index, case)]
            if case.fault:
                items.insert(min(case.fault_at, len(items)), case.fault)
            scripts.add(prompt_of(index, case), items)
        self.loop = Loop(
            BackendOptions(trace.num_blocks, trace.block_size, trace.max_num_seqs, trace.budget),
            scripts,
            take=self._take,
            proposer=None if trace.guess_rate is None else Guesser(trace),
            prefix_caching=trace.prefix_caching,
            policy=POLICIES[trace.policy](),
            checks=check_every_step,
            most_steps=trace.most_steps,
        )
        self.scheduler, self.limits = self.loop.scheduler, self.loop.limits
        self.results = [Result() for _ in trace.cases]
        self.num_steps = 0
        self._arrivals = sorted(range(len(trace.cases)), key=lambda i: trace.cases[i].arrives_at)
        self._aborts = sorted((c.abort_at, i) for i, c in enumerate(trace.cases) if c.abort_at is not None)

    def run(self) -> "Run":
        """To the end. Fails if the scheduler takes more steps than the work can need."""
        work = sum(c.num_prompt + c.max_tokens for c in self.trace.cases)
        last = max((max(c.arrives_at, c.abort_at or 0) for c in self.trace.cases), default=0)
        while self.step():
            assert self.num_steps < last + 10 * work * (1 + len(self.trace.cases)), "no progress"
        check_idle(self.scheduler)
        return self

    def step(self) -> bool:
        """One turn of the engine's loop. False once nothing is left to come."""
        while self._arrivals and self.trace.cases[self._arrivals[0]].arrives_at <= self.num_steps:
            self.loop.add(self._generate(self._arrivals.pop(0)))
        while self._aborts and self._aborts[0][0] <= self.num_steps:
            self._take(self.scheduler.abort(_name(self._aborts.pop(0)[1])))
        self.num_steps += 1
        self.loop.step()
        self.loop.now_s += self.trace.step_s
        return bool(self._arrivals or self._aborts or self.scheduler.has_work)

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            result = self.results[int(event.request_id)]
            assert not result.finishes, "an event after the last"
            if isinstance(event, Tokens):
                assert len(event.digests) == len(event.token_ids) > 0
                result.token_ids.extend(event.token_ids)
                result.digests.extend(event.digests)
            else:
                result.finishes.append(event)

    def _generate(self, index: int) -> Generate:
        case = self.trace.cases[index]
        sampling = Sampling(max_tokens=case.max_tokens, stop_ids=frozenset({STOP_ID}))
        prompt = prompt_of(index, case)
        return Generate(
            request_id=_name(index),
            prompt_ids=prompt,
            sampling=sampling,
            digests=True,
            cache_namespace=case.namespace,
            family=case.siblings,
            service=case.service,
            priority=case.priority,
            deadline_s=case.deadline_s,
        )


def _name(index: int) -> RequestId:
    return RequestId(str(index))


def expected(trace: Trace, index: int) -> tuple[list[int], str]:
    """Ids and reason of a request that is neither aborted nor struck by a fault."""
    case, answer = trace.cases[index], answer_of(index, trace.cases[index])
    room = min(case.max_tokens, trace.num_blocks * trace.block_size - case.num_prompt)
    ids = [answer[i % len(answer)] for i in range(room)]
    if STOP_ID in ids:
        return ids[: ids.index(STOP_ID) + 1], "stop"
    return ids, "length"


def check_counts(run: Run) -> None:
    """The scheduler's ledger of tokens says what was seen from outside."""
    counts, cases = run.scheduler.counts, run.trace.cases
    finishes = [result.finishes[0] for result in run.results]
    assert counts.prompt == sum(case.num_prompt for case in cases)
    assert counts.submitted == run.loop.num_computed
    assert counts.sampled == counts.ended_sampled == sum(len(result.token_ids) for result in run.results)
    assert counts.prompt_reused >= sum(finish.num_cached_tokens for finish in finishes)
    if run.scheduler.num_preemptions == 0:
        assert counts.recomputed == 0
        assert counts.prompt_reused == counts.reused == sum(finish.num_cached_tokens for finish in finishes)
    if all(finish.reason in {"stop", "length"} for finish in finishes):
        assert counts.prompt_unreached == 0
        num_known = sum(case.num_prompt + len(r.token_ids) for case, r in zip(cases, run.results, strict=True))
        num_past = counts.ended_reached - (num_known - len(cases))  # the last id of each needs no keys and values
        assert num_past == 0 if run.trace.guess_rate is None else 0 <= num_past <= MAX_GUESSES * len(cases)


def check_results(run: Run) -> None:
    """Every request ended once, and got exactly what its script says."""
    check_counts(run)
    any_failing_step = any(isinstance(case.fault, FailStep) for case in run.trace.cases)
    for index, (case, result) in enumerate(zip(run.trace.cases, run.results, strict=True)):
        assert len(result.finishes) == 1
        finish = result.finishes[0]
        ids, reason = expected(run.trace, index)
        allowed = {reason}
        if case.abort_at is not None:
            allowed.add("cancelled")
        if case.deadline_s is not None:
            allowed.add("failed")
        if any_failing_step:
            allowed.add("failed")
        if isinstance(case.fault, NotFinite):
            # With guesses, one row samples several ids, and a fault behind any of them, even past the end, takes all.
            num_more = 0 if run.trace.guess_rate is None else MAX_GUESSES
            struck_at = min(case.fault_at, len(answer_of(index, case)))
            if struck_at < len(ids):
                allowed = (allowed - {reason}) | {"failed"}
            elif struck_at < len(ids) + num_more:
                allowed.add("failed")
        assert finish.reason in allowed
        assert finish.num_prompt_tokens == case.num_prompt
        assert finish.num_output_tokens == len(result.token_ids)
        if finish.reason == reason:
            assert result.token_ids == ids
        else:
            assert result.token_ids == ids[: len(result.token_ids)]
        if finish.code == "deadline_exceeded":
            assert case.deadline_s is not None
        elif finish.reason == "failed" and not any_failing_step:
            assert finish.code == "numeric_error"
            assert len(result.token_ids) <= case.fault_at
            if run.trace.guess_rate is None:
                assert len(result.token_ids) == min(case.fault_at, case.num_answer)
        assert (finish.stop_id == STOP_ID) if finish.reason == "stop" else finish.stop_id is None
