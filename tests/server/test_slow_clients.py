"""T13: connections that send or read as slowly as they can hold nobody up."""

from pathlib import Path

import pytest
from slow_clients import parse, run


@pytest.mark.slow
@pytest.mark.alone
def test_slow_clients_hold_nobody_up(smollm2_path: Path) -> None:
    """Beside 1,000 that trickle and 200 that read nothing, first tokens come as soon for others, give or take 20 %."""
    found = run(parse([str(smollm2_path), "--seconds", "12"]))
    assert found["requests"] > 100
    assert found["p99_growth"] < 0.2, found
