"""T13: connections that send or read as slowly as they can hold nobody up."""

from pathlib import Path

import pytest
from slow_clients import parse, run


@pytest.mark.slow
@pytest.mark.alone
def test_slow_clients_hold_nobody_up(smollm2_path: Path) -> None:
    """Beside 1,000 that trickle and 200 that read nothing, first tokens come as soon for others, give or take 20 %.

    The slowest of a hundred requests is as slow as the machine was at that moment; slow clients would hold up some in
    every measurement.
    """
    arguments = parse([str(smollm2_path), "--seconds", "12"])

    def growth() -> float:
        found = run(arguments)
        assert found["requests"] > 100
        return float(found["p99_growth"])

    assert any(growth() < 0.2 for _ in range(3))
