"""How long prompts and answers are: fixed, evenly spread, or spread as real ones."""

import math
import random
from dataclasses import dataclass
from typing import Protocol

from freehold.errors import ConfigError


class Lengths(Protocol):
    """A distribution of numbers of tokens."""

    def draw(self, source: random.Random) -> int:
        """One length, at least 1."""
        ...

    def scaled(self, factor: float) -> "Lengths":
        """The same form, so many times as long."""
        ...

    def __str__(self) -> str:
        """For reports, such as ``128`` or ``log-normal, median 760, sigma 0.985``."""
        ...


@dataclass(frozen=True, slots=True)
class Even(Lengths):
    """All whole numbers between two are equally likely.

    Attributes:
        low, high: both included.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ConfigError(
                f"lengths from {self.low} to {self.high} tokens: the first must be at least 1, and no more"
            )

    @classmethod
    def around(cls, middle: int, ratio: float, flag: str) -> "Even":
        """From ``middle * (1 - ratio)`` to ``middle * (1 + ratio)``, as ``--random-range-ratio`` has it.

        Args:
            flag: that gave `middle`.

        Raises:
            ConfigError: fewer than 1 token, or a ratio that isn't in [0, 1).
        """
        if middle < 1:
            raise ConfigError(f"{flag} can't be {middle}; it is a number of tokens, at least 1")
        if not 0 <= ratio < 1:
            raise ConfigError(f"--random-range-ratio can't be {ratio}; it is at least 0 and below 1")
        return cls(max(math.floor(middle * (1 - ratio)), 1), math.ceil(middle * (1 + ratio)))

    def draw(self, source: random.Random) -> int:
        """As `Lengths.draw`."""
        return source.randint(self.low, self.high)

    def scaled(self, factor: float) -> "Even":
        """As `Lengths.scaled`."""
        return Even(_whole(self.low * factor), _whole(self.high * factor))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class LogNormal(Lengths):
    """The logarithm is normally distributed: many short ones, a long tail.

    Attributes:
        sigma: standard deviation of the natural logarithm.
    """

    median: float
    sigma: float

    def draw(self, source: random.Random) -> int:
        """As `Lengths.draw`."""
        return _whole(self.median * math.exp(source.gauss(0.0, self.sigma)))

    def scaled(self, factor: float) -> "LogNormal":
        """As `Lengths.scaled`."""
        return LogNormal(self.median * factor, self.sigma)

    def __str__(self) -> str:
        return f"log-normal, median {self.median:g}, sigma {self.sigma:g}"


@dataclass(frozen=True, slots=True)
class Gamma(Lengths):
    """A gamma distribution; with shape 1 an exponential one."""

    shape: float
    mean: float

    def draw(self, source: random.Random) -> int:
        """As `Lengths.draw`."""
        return _whole(source.gammavariate(self.shape, self.mean / self.shape))

    def scaled(self, factor: float) -> "Gamma":
        """As `Lengths.scaled`."""
        return Gamma(self.shape, self.mean * factor)

    def __str__(self) -> str:
        return f"gamma, shape {self.shape:g}, mean {self.mean:g}"


def _whole(length: float) -> int:
    return max(round(length), 1)
