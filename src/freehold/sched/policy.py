"""Who goes first. One interface; service classes and fairness between keys come in as further policies."""

from typing import Protocol

from freehold.protocol import Generate


class Policy(Protocol):
    """Orders requests: for starting, for blocks, and (backwards) for preemption."""

    def rank(self, generate: Generate, arrival_s: float, arrival_number: int) -> tuple[float, ...]:
        """A request's place, smaller first. It never changes: ageing is an allowance added to the arrival time, so that
        a less urgent request passes a more urgent one that came that much later.

        Args:
            arrival_s: the scheduler's clock when the request came.
            arrival_number: counts up; makes ranks differ.
        """
        ...


class FirstComeFirstServed:
    """In order of arrival."""

    def rank(self, generate: Generate, arrival_s: float, arrival_number: int) -> tuple[float, ...]:  # noqa: ARG002
        """The arrival number alone; the clock isn't needed to tell earlier from later."""
        return (arrival_number,)
