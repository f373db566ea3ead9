"""The load tester keeps up: at thousands of tokens a second it is neither late nor wrong."""

from collections.abc import Callable

import pytest
from tests.loadtest.runs import Run

Against = Callable[..., Run]


@pytest.mark.slow
@pytest.mark.alone
def test_two_thousand_tokens_a_second_take_a_fraction_of_a_core_without_lag(against: Against) -> None:
    """The machine may have had something else to do once, but not three times."""
    for attempt in range(3):
        run = against(
            {"first_token_s": 0.05, "gap_s": 0.015}, num_prompts=96, concurrency=48, lengths=(256, 200)
        )  # fmt: skip
        point = run.point
        assert point.total_output_tokens == 96 * 200
        sound = point.is_valid and point.client.lag_p99_ms < 10 and point.output_throughput > 2000
        per_core = point.output_throughput / point.client.cpu_fraction
        late_ms = sorted(run.lateness_s)[int(0.99 * len(run.lateness_s))] * 1000
        if (sound and per_core > 4000 and late_ms < 10) or attempt == 2:
            assert sound, point.invalid
            assert per_core > 4000, "twice what is promised"
            assert late_ms < 10
            return
