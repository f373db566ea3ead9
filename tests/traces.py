"""What holds for every Chrome trace of a profile."""

import itertools
from typing import Any


def check_trace(trace: dict[str, Any], num_steps: int) -> None:
    """Every span lies in its step; on each track one comes after the other."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    tracks = {name: [e for e in events if e["tid"] == tid] for tid, name in names.items()}
    assert len(tracks["steps"]) == num_steps
    assert {event["name"] for event in tracks["engine loop"]} >= {"plan", "submit", "collect", "apply"}
    steps = {event["args"]["step"]: event for event in tracks["steps"]}
    threads = [name for name in tracks if name.startswith("thread ")]
    assert threads
    for name in threads:
        assert tracks[name]
        for span in tracks[name]:
            step = steps[span["args"]["step"]]
            assert step["ts"] <= span["ts"]
            assert span["ts"] + span["dur"] <= step["ts"] + step["dur"] + 1e-3
    for events in tracks.values():
        for before, after in itertools.pairwise(events):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3
