"""Who goes first. One interface, one file: whoever wants another order adds a policy here.

A policy decides by what is known when a request arrives, and its decisions never change: so two copies of it, one at
the engine's door and one in the scheduler, agree, and no list ever has to be sorted anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from freehold.amounts import amount
from freehold.config import PolicyName
from freehold.protocol import MAX_PRIORITY, Generate, ServiceClass

Rank = tuple[float, int]
"""A place in the order, smaller first: a time in seconds, and the number of the arrival, which makes all differ."""

CLASS_ALLOWANCE_S: dict[ServiceClass, float] = {"interactive": 0.0, "agent": 60.0, "batch": 600.0}
"""How long each class lets interactive requests pass that came after it."""

PRIORITY_S = 0.25
"""One unit of priority, in seconds of allowance. With the bounds that priorities have, the more urgent class is first
of two requests that came together, whatever their priorities."""

DISPLACING_S = 2 * MAX_PRIORITY * PRIORITY_S
"""Who runs gives way only to somebody who is more urgent by more than priorities can make up."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait. None: as much as comes.

    Attributes:
        max_reqs: requests beyond those that run in one step.
        max_tokens: tokens to compute for requests that have not started to answer.
    """

    max_reqs: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits now, and what would with those that ask to be let in.

    Attributes:
        num_reqs, num_tokens: as in `QueueLimits`.
        num_new_reqs, num_new_tokens: of those that ask.
        wait_s: works out how many seconds they would probably wait; None if nobody knows.
    """

    num_reqs: int
    num_tokens: int
    num_new_reqs: int
    num_new_tokens: int
    wait_s: Callable[[], float | None]


class Policy(Protocol):
    """Decides who is let in, and orders those who are: for starting, for tokens and blocks, and (backwards) for
    preemption."""

    def refusal(self, generates: Sequence[Generate], queue: Queue) -> str | None:
        """Why requests that come together aren't let in; None if they are. It is asked at the door, once.

        Args:
            generates: empty while only their number is known.
        """
        ...

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


class _Limited:
    """Lets in as many as the limits say, all that come together or none of them."""

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self._limits = limits or QueueLimits()

    def refusal(self, generates: Sequence[Generate], queue: Queue) -> str | None:  # noqa: ARG002
        """Nobody is refused for the length of his own prompts while no tokens wait."""
        limits = self._limits
        if limits.max_reqs is not None and queue.num_reqs + queue.num_new_reqs > limits.max_reqs:
            return (
                f"{amount(queue.num_reqs, 'request waits', 'requests wait')} and {queue.num_new_reqs} more would; "
                f"{limits.max_reqs} may "
                "(--max-num-queued-reqs)"
            )
        num_tokens = queue.num_tokens + queue.num_new_tokens
        if limits.max_tokens is not None and queue.num_tokens and num_tokens > limits.max_tokens:
            return (
                f"{amount(queue.num_tokens, 'token of prompts waits', 'tokens of prompts wait')} to be computed and "
                f"{queue.num_new_tokens} more would; "
                f"{limits.max_tokens} may (--max-num-queued-tokens)"
            )
        return None


class UrgentFirst(_Limited):
    """By service class and priority, with ageing: in the order of arrival plus allowance."""

    def rank(self, generate: Generate, arrival_s: float, arrival_number: int) -> Rank:
        allowance_s = CLASS_ALLOWANCE_S[generate.service] + PRIORITY_S * generate.priority
        return arrival_s + allowance_s, arrival_number

    def displaces(self, waiting: Rank, running: Rank) -> bool:
        """By the time alone, so that nobody is displaced who has waited out his allowance."""
        return waiting[0] + DISPLACING_S < running[0]


class FirstComeFirstServed(_Limited):
    """In order of arrival, whatever a request says of itself."""

    def rank(self, generate: Generate, arrival_s: float, arrival_number: int) -> Rank:  # noqa: ARG002
        return arrival_s, arrival_number

    def displaces(self, waiting: Rank, running: Rank) -> bool:  # noqa: ARG002
        return False


POLICIES: dict[PolicyName, type[UrgentFirst] | type[FirstComeFirstServed]] = {
    "priority": UrgentFirst,
    "fcfs": FirstComeFirstServed,
}
