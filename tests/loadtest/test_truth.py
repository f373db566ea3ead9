"""What the load tester reports, beside what the stub server knows: within 2 % or 2 ms, tokens exactly."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.loadtest.runs import Run

Against = Callable[..., Run]


def check_against_truth(run: Run) -> None:
    """Every figure of a point whose requests all succeeded."""
    point, truths = run.point, [truth for _, truth in run.pairs]
    assert (point.completed, point.failed) == (len(truths), 0)
    assert point.total_input_tokens == sum(each.prompt_tokens for each in truths)
    assert point.total_output_tokens == sum(each.output_tokens for each in truths)
    run.check_distribution("ttft", [each.chunks_s[0] - each.received_s for each in truths])
    run.check_distribution("ttfot", [_of(each.output_s) - each.received_s for each in truths])
    run.check_distribution("e2el", [_of(each.ended_s) - each.received_s for each in truths])
    run.check_distribution("itl", [late - early for each in truths for early, late in pairwise(each.chunks_s)])
    tpots = [
        (_of(each.ended_s) - each.chunks_s[0]) / (each.output_tokens - 1) for each in truths if each.output_tokens > 1
    ]
    run.check_distribution("tpot", tpots)
    duration_s = max(_of(each.ended_s) for each in truths) - min(each.received_s for each in truths)
    run.check("duration", point.duration * 1000, duration_s * 1000)
    assert point.request_throughput == pytest.approx(point.completed / point.duration)
    assert point.output_throughput == pytest.approx(point.total_output_tokens / point.duration)


def _of(moment_s: float | None) -> float:
    assert moment_s is not None
    return moment_s


SHAPES = {
    "fixed delays": {"first_token_s": 0.05, "gap_s": 0.01},
    "slow first byte": {"first_s": 0.1},
    "multi-token chunks": {"gap_s": 0.01, "per_chunk": 5},
    "a token over several events": {"gap_s": 0.01, "pieces": 3},
    "an event over several segments": {"gap_s": 0.005, "segments": 4},
    "comments": {"gap_s": 0.005, "comments": True},
    "late usage": {"gap_s": 0.005, "late_usage_s": 0.1},
    "carriage returns": {"gap_s": 0.002, "line_end": "\r\n"},
}


@pytest.mark.parametrize("behaviour", SHAPES.values(), ids=SHAPES)
def test_figures_are_true(against: Against, behaviour: dict[str, object]) -> None:
    check_against_truth(against(behaviour, num_prompts=8, concurrency=4))
