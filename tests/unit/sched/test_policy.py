"""The order of requests: classes, priorities, ageing."""

import itertools
from typing import Any

import pytest

from freehold.errors import RequestError
from freehold.protocol import MAX_PRIORITY, Generate, RequestId, Sampling, ServiceClass
from freehold.sched.admission import Limits, check
from freehold.sched.policy import CLASS_ALLOWANCE_S, PRIORITY_S, FirstComeFirstServed, UrgentFirst

CLASSES: tuple[ServiceClass, ...] = ("interactive", "agent", "batch")


def generate(service: ServiceClass = "interactive", priority: int = 0, deadline_s: float | None = None) -> Generate:
    return Generate(
        request_id=RequestId("a"),
        prompt_ids=(1,),
        sampling=Sampling(),
        service=service,
        priority=priority,
        deadline_s=deadline_s,
    )


def test_of_those_that_come_together_the_more_urgent_class_is_first_whatever_the_priorities() -> None:
    rank = UrgentFirst().rank
    priorities = (-MAX_PRIORITY, -1, 0, 1, MAX_PRIORITY)
    order = [(service, priority) for service in CLASSES for priority in priorities]
    ranks = [rank(generate(*kind), 7.0, 0) for kind in order]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


@pytest.mark.parametrize("late", CLASSES)
@pytest.mark.parametrize("early", CLASSES)
def test_an_allowance_later_nobody_passes_any_more(early: ServiceClass, late: ServiceClass) -> None:
    rank = UrgentFirst().rank
    ahead_s = CLASS_ALLOWANCE_S[early] - CLASS_ALLOWANCE_S[late]
    assert rank(generate(early), 100.0, 0) > rank(generate(late), 100.0 + ahead_s - 0.01, 1)
    assert rank(generate(early), 100.0, 0) < rank(generate(late), 100.0 + ahead_s, 1)


def test_a_unit_of_priority_is_worth_its_seconds() -> None:
    rank = UrgentFirst().rank
    assert rank(generate(priority=1), 0.0, 0) > rank(generate(), 0.99 * PRIORITY_S, 1)
    assert rank(generate(priority=1), 0.0, 0) < rank(generate(), PRIORITY_S, 1)


def test_nobody_of_the_same_class_is_displaced_and_nobody_who_has_waited_long() -> None:
    policy = UrgentFirst()
    for service, low, high in itertools.product(CLASSES, (-MAX_PRIORITY, 0), (0, MAX_PRIORITY)):
        running, waiting = policy.rank(generate(service, high), 0.0, 0), policy.rank(generate(service, low), 0.0, 1)
        assert not policy.displaces(waiting, running)
    batch = policy.rank(generate("batch"), 0.0, 0)
    assert policy.displaces(policy.rank(generate(), 500.0, 1), batch)
    assert not policy.displaces(policy.rank(generate(), CLASS_ALLOWANCE_S["batch"], 1), batch)


def test_first_come_first_served_knows_no_classes() -> None:
    policy = FirstComeFirstServed()
    ranks = [policy.rank(generate("batch", 100), 0.0, 0), policy.rank(generate("interactive", -100), 0.0, 1)]
    assert ranks == sorted(ranks)
    assert not policy.displaces(*ranks)


LIMITS = Limits(max_model_len=64, vocab_size=100, block_size=4, max_num_seqs=2, max_num_batched_tokens=16)


@pytest.mark.parametrize("priority", [MAX_PRIORITY + 1, -MAX_PRIORITY - 1, 10**30, float("nan"), 1.5, "1", None])
def test_priorities_beyond_the_limit_are_refused(priority: Any) -> None:
    with pytest.raises(RequestError, match="from -100 to 100") as refusal:
        check(generate(priority=priority), LIMITS)
    assert refusal.value.param == "priority"
    check(generate(priority=MAX_PRIORITY), LIMITS)


@pytest.mark.parametrize("service", ["urgent", "", None, ["batch"]])
def test_classes_that_there_are_not_are_refused(service: Any) -> None:
    with pytest.raises(RequestError, match="it may be interactive, agent, batch") as refusal:
        check(generate(service), LIMITS)
    assert refusal.value.param == "service"


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, float("nan"), float("inf"), 10**400, "1"])
def test_deadlines_that_are_no_time_are_refused(deadline_s: Any) -> None:
    with pytest.raises(RequestError, match="deadline_s") as refusal:
        check(generate(deadline_s=deadline_s), LIMITS)
    assert refusal.value.param == "deadline_s"
    check(generate(deadline_s=0.001), LIMITS)
