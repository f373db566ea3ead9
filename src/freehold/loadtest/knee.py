"""Where more load stops paying: the knee, and the operating point."""

from collections.abc import Sequence
from itertools import pairwise

from freehold.loadtest.results import PointResult

KNEE_SLOPE = 0.1
KNEE_TTFT = 2.0


def knee(points: Sequence[PointResult]) -> int | None:
    """The first point of a closed loop whose further requests at a time brought less than a tenth of the throughput
    that further ones brought at first, while TTFT at p95 is more than double that of the first point.

    Returns:
        Its index; None if there is none, or fewer than three points.
    """
    closed = sorted(
        (index for index, each in enumerate(points) if each.load.kind == "closed" and each.completed),
        key=lambda index: points[index].load.concurrency or 0,
    )
    if len(closed) < 3:
        return None
    first = points[closed[0]]
    initial = _slope(first, points[closed[1]])
    for before, index in pairwise(closed[1:]):
        pays_little = _slope(points[before], points[index]) < KNEE_SLOPE * initial
        if pays_little and _ttft(points[index]) > KNEE_TTFT * _ttft(first):
            return index
    return None


def operating_point(points: Sequence[PointResult]) -> int | None:
    """The valid point with the most goodput under its limits: where to run. Not the knee.

    Returns:
        Its index; None without limits, or if no valid point has any good request.
    """
    good = {
        index: each.goodput.requests_per_s
        for index, each in enumerate(points)
        if each.goodput and each.goodput.num_good and each.is_valid
    }
    return max(good, key=lambda index: good[index]) if good else None


def _slope(lower: PointResult, upper: PointResult) -> float:
    """Throughput gained for each further request at a time."""
    step = (upper.load.concurrency or 0) - (lower.load.concurrency or 0)
    return (upper.output_throughput - lower.output_throughput) / step if step else 0.0


def _ttft(point: PointResult) -> float:
    found = point.latencies.get("ttft")
    return found.percentiles["95"] if found else 0.0
