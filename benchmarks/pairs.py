"""Two things measured in turns, and what can be said of their ratio.

Machines drift: a rate of now and one of ten minutes ago don't compare. So both are measured in pairs, one right after
the other, with the order A B, B A, A B…, and the ratio is taken within a pair.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """A sample in three numbers."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


def in_turns(measures: Mapping[str, Callable[[int], float]], num_pairs: int) -> dict[str, list[float]]:
    """Call each once to warm up, then `num_pairs` times with the order turned round each time.

    Args:
        measures: by name; each gets the number of the turn, from 0 for the warm-up.
    """
    found: dict[str, list[float]] = {name: [] for name in measures}
    for turn in range(num_pairs + 1):
        names = list(measures) if turn % 2 else list(reversed(measures))
        for name in names:
            value = measures[name](turn)
            if turn:
                found[name].append(value)
    return found


def ratios(firsts: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Pair by pair."""
    return [first / second for first, second in zip(firsts, seconds, strict=True)]
