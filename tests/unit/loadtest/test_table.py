"""Results as text."""

from made_up_results import distribution, facts, point

from freehold.loadtest import table
from freehold.loadtest.results import RunResult


def test_every_figure_stands_under_the_heading_of_its_latency():
    queued = point(8, client_queue=distribution([500.0] * 60))
    lines = table.text(RunResult(facts(), (queued,)), ("ttft", "itl", "e2el"), (99.0,)).splitlines()
    heading = ""
    found = {}
    for line in lines:
        if line.startswith("--"):
            heading = line
        elif "(ms):" in line:
            found.setdefault(heading, []).append(line.split()[1])
    assert found == {
        "-- Time to first token --": ["TTFT"] * 3,
        "-- Inter-token latency (between chunks) --": ["ITL"] * 3,
        "-- End-to-end latency --": ["E2EL"] * 3,
        "-- End-to-end latency, from the intended start --": ["E2EL"],
    }
