"""The machine's limits explain themselves: peaks by clock, width and units; memory by what lies between its levels."""

import itertools
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from freehold import _native
from freehold.cli.main import main
from freehold.errors import ConfigError
from freehold.limits import TOLERANCE, Limits, Peak, cache_bytes, measure_dram, measure_limits
from freehold.machine import read_machine

ISAS = _native.available_isas()
PATIENCE_S = 20.0
KINDS = {"avx512bf16": {"float32", "bf16", "int8"}, "avx512": {"float32", "int8"}, "avx2": {"float32", "int8"}}


def best_peaks(isa: str, num_threads: int) -> list[Peak]:
    """Peaks of one level, from the best bursts of some seconds: a test machine's processors have other work too."""
    peaks: dict[str, Peak] = {}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for kind, width, num_instructions, rate, clock_hz in _native.limits.compute_peaks(isa, num_threads, 4):
            before = peaks.get(kind, Peak(0, width, num_instructions, 0, num_threads))
            best = max(rate, before.operations_per_s), max(clock_hz, before.clock_hz)
            peaks[kind] = Peak(best[0], width, num_instructions, best[1], num_threads)
        if all(peak.holds and peak.units > 1 - TOLERANCE for peak in peaks.values()):
            break
    return list(peaks.values())


@pytest.mark.parametrize("isa", ISAS)
def test_peaks_are_clock_times_width_times_units(isa: str) -> None:
    peaks = best_peaks(isa, 1)
    for peak in peaks:
        assert peak.holds, f"{isa}: {peak} has {peak.units:.3f} units"
        # Sequences too: what spills runs at a fraction.
        assert peak.units > 1 - TOLERANCE


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("isa", ISAS)
def test_two_threads_do_twice_as_much(isa: str) -> None:
    if read_machine().num_cores < 2:
        pytest.skip("one processor")
    for peak in best_peaks(isa, 2):
        assert peak.holds, f"{isa}: {peak} has {peak.units:.3f} units"


def test_wider_levels_are_no_slower() -> None:
    """A level whose chains spill would fall behind the one below it."""
    found = {isa: {p.width: p for p in best_peaks(isa, 1)} for isa in ISAS}
    best = {isa: max(peak.operations_per_s for peak in peaks.values()) for isa, peaks in found.items()}
    for wider, narrower in itertools.pairwise(ISAS):
        assert best[wider] > (1 - TOLERANCE) * best[narrower]


def test_a_level_has_its_kinds() -> None:
    for isa in ISAS:
        kinds = {kind for kind, *_ in _native.limits.compute_peaks(isa, 1, 1)}
        assert kinds == KINDS.get(isa, {"float32"})


@pytest.mark.parametrize(("rate", "holds"), [(1.0, True), (1.98, True), (2.05, True), (0.45, False), (1.5, False)])
def test_a_peak_that_nothing_explains_does_not_hold(rate: float, holds: bool) -> None:
    peak = Peak(operations_per_s=rate * 32 * 4e9 * 2, width=32, num_instructions=1, clock_hz=4e9, num_threads=2)
    assert peak.units == pytest.approx(rate)
    assert peak.holds is holds


def test_memory_is_slower_than_the_cache_before_it() -> None:
    found = measure_limits()
    assert 1e9 < found.dram_one_thread_bytes_per_s < found.l3_bytes_per_s
    assert found.dram_bytes_per_s < found.l3_bytes_per_s


def test_a_rate_does_not_depend_on_the_number_of_passes() -> None:
    job, twice = (8 << 20, 32 << 20, 1), (8 << 20, 64 << 20, 1)
    for isa in ISAS:
        (short, long) = _native.limits.read_rates(isa, [job, twice], 7)
        assert max(long) == pytest.approx(max(short), rel=0.4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: _native.limits.compute_peaks("sse9", 1, 1),
        lambda: _native.limits.compute_peaks("generic", 0, 1),
        lambda: _native.limits.read_rates("generic", [(1 << 20, 0, 0)], 1),
        lambda: _native.limits.read_rates("generic", [(4096, 0, 2)], 1),
        lambda: _native.limits.read_rates("sse9", [(1 << 20, 0, 1)], 1),
    ],
)
def test_native_refuses_what_it_cannot_measure(call: object) -> None:
    with pytest.raises(ValueError, match=r"sse9|at least"):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(("threads", "isa"), [(0, None), (1, "sse9")])
def test_what_cannot_be_measured_is_a_user_error(threads: int, isa: str | None) -> None:
    with pytest.raises(ConfigError, match=r"0 threads|sse9"):
        measure_limits(threads, isa)
    with pytest.raises(ConfigError, match=r"0 threads|sse9"):
        measure_dram(threads, isa)


def test_too_little_memory_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = replace(read_machine(), available_bytes=100 << 20)
    monkeypatch.setattr("freehold.limits.read_machine", lambda: poor)
    for measure in (measure_limits, lambda: measure_dram(1)):
        with pytest.raises(ConfigError, match="100 MiB are free"):
            measure()


def test_cache_sizes_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate([(1, "Data", "32K"), (2, "Unified", "1024K"), (3, "Unified", "32M")]):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert cache_bytes(2, tmp_path) == 1 << 20
    assert cache_bytes(3, tmp_path) == 32 << 20
    assert cache_bytes(3, tmp_path / "nothing here") == 32 << 20


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["freehold", "limits", *arguments])
    main()


def test_command_prints_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "--threads", "1")
    out = capsys.readouterr().out
    assert f"{ISAS[0]}, 1 thread " in out
    for label in ("DRAM read, 1 thread", "L3 read", "float32 multiply-add"):
        assert label in out


def test_command_prints_json_with_its_checks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "--threads", "1", "--isa", "generic", "--json")
    values = json.loads(capsys.readouterr().out)
    checks = values.pop("checks")
    peak = Peak(**values.pop("float32"))
    found = Limits(float32=peak, **values)
    assert (found.isa, found.num_threads, found.bf16, found.int8) == ("generic", 1, None, None)
    assert checks["float32"]["units"] == pytest.approx(peak.units)
