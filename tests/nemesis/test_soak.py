"""The soak run of `benchmarks/soak.py`, briefly, and what it concludes from its samples."""

import os
import random
import subprocess
import sys

import msgspec
import pytest
from soak import Load, Sample, Slope, Use, growth, settled, slope

SOAK = """
import sys, msgspec, soak
load = msgspec.json.decode(sys.argv[1], type=soak.Load)
sys.stdout.buffer.write(msgspec.json.encode(soak.soak(load)))
"""


def soak(load: Load) -> list[Sample]:
    """Run all rounds in a process of its own: in this one, what other tests have left comes and goes."""
    command = [sys.executable, "-c", SOAK, msgspec.json.encode(load).decode()]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[Sample])


def check_flat(samples: list[Sample], most_kib: int) -> None:
    """Threads and descriptors stay as they are, and memory within a bound."""
    for name in ("server", "engine"):
        uses: list[Use] = [getattr(sample, name) for sample in settled(samples)]
        assert len({use.num_threads for use in uses}) == 1, (name, uses)
        assert max(use.num_descriptors for use in uses) - min(use.num_descriptors for use in uses) <= 1, (name, uses)
        assert uses[-1].memory_kib - uses[0].memory_kib < most_kib, (name, uses)


def test_a_short_soak_leaves_nothing_behind() -> None:  # op-05
    samples = soak(Load(num_requests=2400, num_rounds=12))
    check_flat(samples, most_kib=1500)
    assert growth(samples)["objects"].value < 0.6, "not an object each is kept of the requests"


def test_few_requests_with_many_tokens_leave_nothing_behind() -> None:  # op-04
    check_flat(soak(Load(num_requests=16, most_tokens=400, num_rounds=8)), most_kib=1500)


@pytest.mark.slow
@pytest.mark.alone
def test_a_long_soak_is_flat() -> None:
    """After 100,000 to warm up, 200,000 requests keep no objects, and cost less than two bytes of memory each: how the
    allocator lays things out moves by that much."""
    samples = soak(Load())
    check_flat(samples, most_kib=400)
    found = growth(samples)
    assert found["objects"].value < 0.01
    assert max(found[name].value for name in ("server", "engine")) * 1024 < 2.0, found


def test_the_slope_is_that_of_the_points_and_its_margin_that_of_their_scatter() -> None:
    xs = [float(x) for x in range(50)]
    assert slope(xs, [3 * x + 7 for x in xs]) == Slope(pytest.approx(3.0), pytest.approx(0.0, abs=1e-9))
    assert slope(xs, [5.0] * 50) == Slope(0.0, 0.0)
    source = random.Random(1)
    noisy = slope(xs, [2 * x + source.gauss(0, 10) for x in xs])
    assert abs(noisy.value - 2) < 2 * noisy.margin
    assert 0.1 < noisy.margin < 0.4
    assert noisy.times(10).value == pytest.approx(10 * noisy.value)


def test_a_leak_shows() -> None:
    """100 bytes for each request, under noise of 50 KiB."""
    source = random.Random(2)
    samples = [
        Sample(n, n / 500, Use(12000, 3, 7), Use(round(20000 + n * 100 / 1024 + source.gauss(0, 50)), 6, 4))
        for n in range(0, 100_000, 2000)
    ]
    leak = growth(samples)["engine"]
    assert leak.value - leak.margin > 90 / 1024
    assert growth(samples)["server"].value == 0
