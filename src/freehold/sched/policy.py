"""Who goes first. One interface, one file: whoever wants another order adds a policy here.

A policy decides by what is known when a request arrives, and its decisions never change: so two copies of it, one at
the engine's door and one in the scheduler, agree, and no list ever has to be sorted anew.
"""

from typing import Protocol

from freehold.config import PolicyName
from freehold.protocol import Generate, ServiceClass

Rank = tuple[float, int]
"""A place in the order, smaller first: a time in seconds, and the number of the arrival, which makes all differ."""

CLASS_ALLOWANCE_S: dict[ServiceClass, float] = {"interactive": 0.0, "agent": 60.0, "batch": 600.0}
"""How long each class lets interactive requests pass that came after it."""

PRIORITY_S = 0.25
"""One unit of priority, in seconds of allowance."""

MAX_PRIORITY = 100
"""Priorities reach from minus this to this. So of two requests that came together, the more urgent class is first,
whatever their priorities."""

DISPLACING_S = 2 * MAX_PRIORITY * PRIORITY_S
"""Who runs gives way only to somebody who is more urgent by more than priorities can make up."""


class Policy(Protocol):
    """Orders requests: for starting, for tokens and blocks, and (backwards) for preemption."""

    def rank(self, generate: Generate, arrival_s: float, arrival_number: int) -> Rank:
        """A request's place. It never changes: ageing is an allowance added to the arrival time, so that a less urgent
        request passes a more urgent one that came that much later. What a policy needs to know of earlier requests,
        such as what each key has asked for lately, it keeps itself.

        Args:
            arrival_s: the scheduler's clock when the request came.
            arrival_number: counts up; makes ranks differ.
        """
        ...

    def displaces(self, waiting: Rank, running: Rank) -> bool:
        """Whether a request that waits may take the place of one that runs, which then waits."""
        ...


class UrgentFirst:
    """By service class and priority, with ageing: in the order of arrival plus allowance."""

    def rank(self, generate: Generate, arrival_s: float, arrival_number: int) -> Rank:
        allowance_s = CLASS_ALLOWANCE_S[generate.service] + PRIORITY_S * generate.priority
        return arrival_s + allowance_s, arrival_number

    def displaces(self, waiting: Rank, running: Rank) -> bool:
        """By the time alone, so that nobody is displaced who has waited out his allowance."""
        return waiting[0] + DISPLACING_S < running[0]


class FirstComeFirstServed:
    """In order of arrival, whatever a request says of itself."""

    def rank(self, generate: Generate, arrival_s: float, arrival_number: int) -> Rank:  # noqa: ARG002
        return arrival_s, arrival_number

    def displaces(self, waiting: Rank, running: Rank) -> bool:  # noqa: ARG002
        return False


POLICIES: dict[PolicyName, type[Policy]] = {"priority": UrgentFirst, "fcfs": FirstComeFirstServed}
