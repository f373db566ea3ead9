"""``freehold limits``."""

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from freehold.limits import Limits, Peak

_LABELS = {"float32": "float32 multiply-add", "bf16": "bf16 pair products", "int8": "int8 dot products"}


@click.command()
@click.option("--threads", type=click.IntRange(1), help="Threads. Default: the cores it may use.")
@click.option("--isa", help="Instruction-set level. Default: the best one.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON: bytes, operations and cycles a second.")
def limits(threads: int | None, isa: str | None, is_json: bool) -> None:
    """Measure what this machine can do at most: memory bandwidth and peaks of arithmetic. Takes about a second."""
    from freehold.backends.cpu.loading import choose_isa
    from freehold.limits import measure_limits

    if isa is not None:
        choose_isa(isa)  # refuse before measuring
    found = measure_limits(threads, isa)
    print(_as_json(found) if is_json else "\n".join(_table(found)))
    if wrong := [name for name, peak in found.peaks.items() if not peak.holds]:
        print(
            f"freehold: {', '.join(wrong)} isn't clock x width x units; something else ran, so measure again",
            file=sys.stderr,
        )


def _as_json(found: "Limits") -> str:
    import msgspec

    checks = {
        name: {"units": peak.units, "deviation": peak.deviation, "holds": peak.holds}
        for name, peak in found.peaks.items()
    }
    values = msgspec.to_builtins(found) | {"checks": checks}
    return msgspec.json.format(msgspec.json.encode(values)).decode()


def _table(found: "Limits") -> list[str]:
    threads = f"{found.num_threads} thread{'s' if found.num_threads > 1 else ''}"
    clock_hz = max(peak.clock_hz for peak in found.peaks.values())
    rows = [
        (f"{found.isa}, {threads}", f"{clock_hz / 1e9:.2f}", "GHz", ""),
        ("DRAM read, 1 thread", f"{found.dram_one_thread_bytes_per_s / 1e9:.1f}", "GB/s", ""),
        (f"DRAM read, {threads}", f"{found.dram_bytes_per_s / 1e9:.1f}", "GB/s", ""),
        (f"L3 read, {threads}", f"{found.l3_bytes_per_s / 1e9:.1f}", "GB/s", ""),
        *(
            (_LABELS[name], f"{peak.operations_per_s / 1e9:.1f}", "Gop/s", _check(peak))
            for name, peak in found.peaks.items()
        ),
    ]
    return [f"{label:24}{value:>8} {unit:6} {note}".rstrip() for label, value, unit, note in rows]


def _check(peak: "Peak") -> str:
    """The peak in its factors."""
    kind = "" if peak.num_instructions == 1 else f", {peak.num_instructions} instructions"
    verdict = "" if peak.holds else f", {peak.deviation:+.0%} off"
    return f"{peak.width} operations{kind} x {peak.units:.3f} a cycle{verdict}"
