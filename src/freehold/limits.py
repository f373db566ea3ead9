"""What this machine can do at most, measured: how fast it reads memory, and its peaks of arithmetic.

The peaks check themselves. A processor completes a whole number of vector instructions a cycle, so operations a second
divided by clock times operations of an instruction is close to 1 or 2, or the measurement is wrong. The clock is
measured beside them, by additions that wait for each other.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path

from freehold import _native
from freehold.backends.cpu.loading import choose_isa
from freehold.errors import ConfigError
from freehold.machine import Machine, read_machine

TOLERANCE = 0.03
"""How far a peak may be from clock times width times units."""

_NUM_BURSTS = 24
_NUM_ROUNDS = 9
_NUM_FEW_ROUNDS = 5
_BYTES_IN_BURST = 64 << 20
_LEAST_BUFFER_BYTES = 256 << 20
_USUAL_CACHES = {2: 1 << 20, 3: 32 << 20}
"""By level, where the kernel doesn't say."""


@dataclass(frozen=True, slots=True)
class Peak:
    """One kind of arithmetic on all threads. A multiplication and an addition are two operations.

    Attributes:
        width: operations of one vector instruction, or of the shortest sequence where there is no single one.
        num_instructions: of that sequence.
        clock_hz: of one thread, measured while all of them ran.
    """

    operations_per_s: float
    width: int
    num_instructions: int
    clock_hz: float
    num_threads: int

    @property
    def units(self) -> float:
        """Instructions, or sequences, a cycle and thread."""
        return self.operations_per_s / (self.clock_hz * self.width * self.num_threads)

    @property
    def deviation(self) -> float:
        """From the nearest whole number of units, 1 at least, as a fraction of it."""
        whole = max(1, round(self.units))
        return self.units / whole - 1

    @property
    def holds(self) -> bool:
        """Clock, width and units explain the peak. A sequence may take a fraction of a cycle; it isn't judged."""
        return self.num_instructions > 1 or abs(self.deviation) <= TOLERANCE


@dataclass(frozen=True, slots=True)
class Limits:
    """What one instruction-set level can do with so many threads.

    Attributes:
        dram_bytes_per_s: reading with all threads, from a buffer that no cache holds.
        dram_one_thread_bytes_per_s: the same with one thread.
        l3_bytes_per_s: reading with all threads what the third-level cache holds and the second doesn't.
        float32: fused multiply-add; on ``generic``, a multiplication and an addition.
        bf16: products of pairs; None if the level has none.
        int8: dot products of four; None if the level has none.
    """

    isa: str
    num_threads: int
    dram_bytes_per_s: float
    dram_one_thread_bytes_per_s: float
    l3_bytes_per_s: float
    float32: Peak
    bf16: Peak | None = None
    int8: Peak | None = None

    @property
    def peaks(self) -> dict[str, Peak]:
        """Those that the level has, by name."""
        named = {"float32": self.float32, "bf16": self.bf16, "int8": self.int8}
        return {name: peak for name, peak in named.items() if peak is not None}


def measure_limits(num_threads: int | None = None, isa: str | None = None) -> Limits:
    """Measure for about a second. Other work on the machine lowers what is found.

    Args:
        num_threads: None means all cores that may be used.
        isa: instruction-set level; None means the best one.

    Raises:
        ConfigError: a level that the processor lacks, no thread, or too little memory for a buffer beyond the caches.
    """
    machine = read_machine()
    if num_threads is None:
        num_threads = machine.num_cores
    _check_threads(num_threads)
    isa = choose_isa(isa)
    found = _native.limits.compute_peaks(isa, num_threads, _NUM_BURSTS)
    clock_hz = max(hz for *_, hz in found)  # on a busy machine some bursts were interrupted
    peaks = {
        kind: Peak(rate, width, num_instructions, clock_hz, num_threads)
        for kind, width, num_instructions, rate, _ in found
    }
    # For the third level: beyond the second one, well within the third.
    l2_bytes, l3_bytes = cache_bytes(2), cache_bytes(3)
    part_bytes = min(max(l3_bytes // (2 * num_threads), 2 * l2_bytes), 4 * l2_bytes)
    buffer_bytes = _buffer_bytes(machine)
    jobs = [
        (buffer_bytes, buffer_bytes, 1),
        (buffer_bytes, buffer_bytes, num_threads),
        (part_bytes * num_threads, _BYTES_IN_BURST * num_threads, num_threads),
    ]
    dram_one, dram, l3 = map(statistics.median, _native.limits.read_rates(isa, jobs, _NUM_ROUNDS))
    return Limits(
        isa=isa,
        num_threads=num_threads,
        dram_bytes_per_s=dram,
        dram_one_thread_bytes_per_s=dram_one,
        l3_bytes_per_s=l3,
        float32=peaks["float32"],
        bf16=peaks.get("bf16"),
        int8=peaks.get("int8"),
    )


def measure_dram(num_threads: int, isa: str | None = None) -> float:
    """Bytes a second from DRAM alone, in a few rounds: for following it while something else is measured in turns.

    Raises as `measure_limits` does.
    """
    _check_threads(num_threads)
    buffer_bytes = _buffer_bytes(read_machine())
    job = (buffer_bytes, buffer_bytes, num_threads)
    (rates,) = _native.limits.read_rates(choose_isa(isa), [job], _NUM_FEW_ROUNDS)
    return statistics.median(rates)


def _check_threads(num_threads: int) -> None:
    if num_threads < 1:
        raise ConfigError(f"{num_threads} threads can't measure anything; name 1 or more")


def _buffer_bytes(machine: Machine) -> int:
    """A buffer that no cache holds.

    Raises:
        ConfigError: too little memory.
    """
    buffer_bytes = max(_LEAST_BUFFER_BYTES, 4 * cache_bytes(3))
    if machine.available_bytes < 2 * buffer_bytes:
        needed, free = 2 * buffer_bytes >> 20, machine.available_bytes >> 20
        raise ConfigError(f"measuring memory needs {needed} MiB and {free} MiB are free; close something else")
    return buffer_bytes


def cache_bytes(level: int, root: Path = Path("/")) -> int:
    """Size of the first processor's unified cache of a level, or what is usual if the kernel doesn't say.

    Args:
        root: where ``sys`` is; tests bring their own.
    """
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            found = int((folder / "level").read_text())
            kind = (folder / "type").read_text().strip()
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if found == level and kind == "Unified" and size[:-1].isdigit():
            return int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 0)
    return _USUAL_CACHES[level]
