"""Over-saturation: requests come faster than the server answers, so that its queue grows as long as one looks."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile

import numpy as np

from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load
from freehold.loadtest.statistics import slope
from freehold.loadtest.traffic import Traffic

MIN_S = 30.0
"""A shorter look doesn't tell a queue that grows from one that comes and goes."""

WINDOW_S = 120.0
"""While a measurement runs, no further back is looked."""

_LOOK_S = 0.25
_JUDGE_S = 1.0
_FEWEST = 20  # requests
_SIGNIFICANT = 3.0  # standard errors
_LEAST_RISE = 0.25  # by the mean
_FILLING = 2.0  # times that answers take from their first token on


def is_over_saturated(load: Load, records: Sequence[RequestRecord], duration_s: float) -> bool:
    """Requests came at a rate, and both those in flight and their TTFT grew through a measurement."""
    if load.kind == "closed" or duration_s < MIN_S:
        return False
    answered = [each for each in records if each.succeeded]
    numbers = in_flight(answered, records)
    return _grow(answered, [(each.intended_s, number) for each, number in zip(answered, numbers, strict=True)])


def in_flight(moments: Sequence[RequestRecord], records: Sequence[RequestRecord]) -> list[float]:
    """How many requests had been meant to start and had not ended, whenever one of these was meant to start."""
    starts = np.sort([each.intended_s for each in records])
    ends = np.sort([each.ended_s for each in records])
    at = np.asarray([each.intended_s for each in moments])
    return [float(each) for each in np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "right")]


class SaturationWatch:
    """Looks at a measurement while it runs.

    Requests that haven't ended have no record. So their number is taken down as time goes by, and TTFT is that of the
    requests that have ended: what is slowest is missing, so that over-saturation is seen later rather than too early.
    """

    def __init__(self, traffic: Traffic, records: Sequence[RequestRecord]) -> None:
        """
        Args:
            records: of requests as they end, in that order.
        """
        self._traffic = traffic
        self._records = records
        self._looks: deque[tuple[float, float]] = deque(maxlen=int(WINDOW_S / _LOOK_S))

    async def wait(self) -> None:
        """Return once the server is over-saturated."""
        judged_s = 0.0
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = self._traffic.now_s()
            self._looks.append((now_s, self._traffic.num_in_flight + self._traffic.num_waiting))
            if now_s >= MIN_S and now_s - judged_s >= _JUDGE_S:
                judged_s = now_s
                if self._is_over_saturated(now_s):
                    return

    def _is_over_saturated(self, now_s: float) -> bool:
        recent = takewhile(lambda each: each.ended_s > now_s - WINDOW_S, reversed(self._records))
        return _grow([each for each in recent if each.succeeded], self._looks)


def _grow(answered: Sequence[RequestRecord], looks: Iterable[tuple[float, float]]) -> bool:
    """Whether requests waited longer and longer the later they came, while more and more were in flight.

    Args:
        looks: moments, and how many were in flight.
    """
    if not answered:
        return False
    # Until the first long answers end, more and more are in flight in any case.
    filled_s = _FILLING * float(np.median([each.ended_s - _first_s(each) for each in answered]))
    waits = sorted((each.intended_s, _first_s(each) - each.intended_s) for each in answered)
    waits = [each for each in waits if each[0] >= filled_s]
    numbers = [each for each in looks if each[0] >= filled_s]
    if len(waits) < _FEWEST or waits[-1][0] - waits[0][0] < MIN_S / 2:
        return False  # too little, or a burst: its queue is the point of it
    return _grows(waits) and _grows(numbers)


def _first_s(record: RequestRecord) -> float:
    """When the first token came, or an answer that came whole."""
    return record.ended_s if record.first_s is None else record.first_s


def _grows(points: Sequence[tuple[float, float]]) -> bool:
    """Significantly, and by so much that it matters.

    Args:
        points: moments, in order, and values.
    """
    times_s, values = zip(*points, strict=True)
    rise, significance = slope(times_s, values)
    whole = rise * (times_s[-1] - times_s[0])
    return significance > _SIGNIFICANT and whole > _LEAST_RISE * float(np.mean(values))
