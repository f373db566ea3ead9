"""Recordings of many requests: found one by one, in order, in little memory."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.unit.observe.recordings import header, record_one, recorder

from freehold.observe.record import open_recording
from freehold.observe.record.format import Encoder, Stepped, preface


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "recording"


def small_records(folder: Path, num: int) -> None:
    """A folder of so many requests, beside each other: each ends after the next has begun."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = Encoder()
    with recorder(folder.parent / "one") as writing:
        record_one(writing, detail="metadata")
    with open_recording(folder.parent / "one") as recording:
        (one,) = recording.requests()
    assert one.ended is not None
    per_segment = 20_000
    for start in range(0, num, per_segment):
        frames = [encoder.encode(header(1))]
        for number in range(start + 1, min(start + per_segment, num) + 1):
            begun = msgspec.structs.replace(
                one.begun, number=number, request_id=f"r{number}", at_s=float(number), key_id=f"key{number % 1000}"
            )
            frames.append(encoder.encode(begun))
            if number > 1:
                frames.append(encoder.encode(msgspec.structs.replace(one.ended, number=number - 1)))
            if number % 10 == 0:
                step = Stepped(step_id=number, ended_s=float(number), numbers=(number - 1, number), num_inputs=(1, 1))
                frames.append(encoder.encode(step))
        (folder / f"{start // per_segment + 1:08d}.fhr").write_bytes(preface() + b"".join(frames))


LOOK = """
import resource, sys, time
import freehold.observe.record.export, freehold.observe.record.listing  # what they take isn't the recording's
from freehold.cli.record import record

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20),) * 2)
for command in (
    ["ls", sys.argv[1], "--limit", "3"],
    ["ls", sys.argv[1], "--key", "key7", "--limit", "2"],
    ["show", "1-123450", sys.argv[1]],
    ["export", sys.argv[1], "--format", "mooncake", "--output", sys.argv[2]],
):
    began = time.process_time()
    record.main(command, standalone_mode=False)
    print(f"{time.process_time() - began:.1f} s", file=sys.stderr)
"""


@pytest.mark.slow
def test_two_hundred_thousand_requests_are_read_in_little_memory(tmp_path: Path) -> None:
    folder, trace = tmp_path / "many", tmp_path / "trace.jsonl"
    small_records(folder, 200_000)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder), str(trace)], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("1-")]
    assert listed == ["1-199998", "1-199999", "1-200000", "1-198007", "1-199007"]
    assert "step 123450 ended" in done.stdout
    assert trace.read_bytes().count(b"\n") == 199_999, "the last one hasn't ended"


def test_requests_come_in_order_and_the_other_way_round(folder: Path) -> None:
    small_records(folder, 700)
    (folder / "00000001.fhr").rename(folder / "00000007.fhr")
    with open_recording(folder) as recording:
        found = [each.begun.number for each in recording.requests()]
        assert found == list(range(1, 701))
        assert [each.begun.number for each in recording.requests(newest_first=True)] == found[::-1]
        last = recording.find("1-700")
        assert last is not None
        assert last.ended is None
        assert [step.step_id for step in recording.steps_of(last)] == [700]
        steps, others = recording.steps(1), recording.steps(1)
        assert [next(steps).step_id, next(others).step_id, next(steps).step_id] == [10, 10, 20]
        assert recording.find("1-701") is recording.find("2-1") is recording.find("1-99999999999999999999") is None
