"""Over-saturation: requests come faster than the server answers.

Its queue grows as long as one looks; or, if the server limits its queue, it refuses some of them all the time.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from itertools import takewhile

import numpy as np

from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load, SaturationSign
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

_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_LEAST_REFUSED = 0.1  # of the requests of each part
_NUM_PARTS = 3
_FEWEST_REFUSED = 3  # in each part


def sign_of_saturation(load: Load, records: Sequence[RequestRecord], duration_s: float) -> SaturationSign | None:
    """What tells that a measurement was over-saturated: requests came at a rate, and both those in flight and their
    TTFT grew through it, or the server kept refusing some at its end.

    Args:
        records: all of them, by their intended start.
    """
    if load.kind == "closed" or duration_s < MIN_S:
        return None
    if _keeps_refusing((each.intended_s, each) for each in reversed(records)):
        return "refusals"
    answered = [each for each in records if each.succeeded]
    numbers = in_flight(answered, records)
    looks = [(each.intended_s, number) for each, number in zip(answered, numbers, strict=True)]
    return "queue" if _grow(answered, looks) else None


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

    async def wait(self) -> SaturationSign:
        """Return once the server is over-saturated, with what tells so."""
        judged_s = 0.0
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = self._traffic.now_s()
            self._looks.append((now_s, self._traffic.num_in_flight + self._traffic.num_waiting))
            if now_s >= MIN_S and now_s - judged_s >= _JUDGE_S:
                judged_s = now_s
                if (sign := self._sign(now_s)) is not None:
                    return sign

    def _sign(self, now_s: float) -> SaturationSign | None:
        # By their ends: of those that began of late, only what was refused has ended.
        if _keeps_refusing((each.ended_s, each) for each in reversed(self._records)):
            return "refusals"
        recent = takewhile(lambda each: each.ended_s > now_s - WINDOW_S, reversed(self._records))
        return "queue" if _grow([each for each in recent if each.succeeded], self._looks) else None


def _keeps_refusing(latest: Iterable[tuple[float, RequestRecord]]) -> bool:
    """Whether the server refused a good share of the requests as too many in each part of the last `MIN_S` seconds.

    In each part, as a burst that doesn't fit its queue is refused too, and then all is well.

    Args:
        latest: moments and requests, the latest first.
    """
    nums, nums_refused = [0] * _NUM_PARTS, [0] * _NUM_PARTS
    last_s: float | None = None
    for at_s, record in latest:
        last_s = at_s if last_s is None else last_s
        part = int((last_s - at_s) / MIN_S * _NUM_PARTS)
        if part >= _NUM_PARTS:
            break
        nums[part] += 1
        nums_refused[part] += record.status in _BUSY
    return all(
        refused >= max(_FEWEST_REFUSED, _LEAST_REFUSED * num) for num, refused in zip(nums, nums_refused, strict=True)
    )


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
