"""A report as text: one table for each group of steps, then what to know about it."""

from collections.abc import Iterator, Sequence

from freehold.amounts import amount
from freehold.observe.report import PhaseRow, Report, StepGroup

_HEADER = ("phase", "time", "ms a step", "MB a step", "Mop a step", "GB/s", "Gop/s", "of the limit")


def text(report: Report) -> str:
    """For a file or program, which have no width."""
    parts = [summary(report)]
    for group in report.groups:
        parts.append("\n".join([title(group), *table(group)]))
    return "\n\n".join([*parts, "\n".join(notes(report))]) + "\n"


def summary(report: Report) -> str:
    """All steps in a sentence or two."""
    found = report.summary
    idle = f"The engine was idle for {found.idle_s:.2f} s." if found.idle_s >= 0.005 else ""
    if not found.num_steps:
        return f"No step ran. {idle}".strip()
    steps = amount(found.num_steps, "step")
    total_s = found.steps_s + found.between_s
    return (
        f"{steps}, {found.num_tokens} tokens computed in {total_s:.2f} s: {found.tokens_per_s:.0f} tokens/s, "
        f"{found.limit_share:.0%} of the limit. {idle}"
    ).strip()


def title(group: StepGroup) -> str:
    """What a group's steps have in common, and how they did."""
    span = str(group.min_tokens) if group.min_tokens == group.max_tokens else f"{group.min_tokens}–{group.max_tokens}"
    what = {
        "decode": f"Decode, {span} request{'s' if group.max_tokens > 1 else ''} a step",
        "prefill": f"With prefill, {span} tokens a step",
    }[group.kind]
    steps = amount(group.num_steps, "step")
    return (
        f"{what}: {steps} of {group.step_s * 1e3:.2f} ms, {group.tokens_per_s:.0f} tokens/s, "
        f"{group.limit_share:.0%} of the limit"
    )


def table(group: StepGroup) -> Iterator[str]:
    """A group's phases, one a line; those that took no time are left out."""
    yield from _aligned([_HEADER, *(_cells(row) for row in group.phases if row.step_s > 0)])


def notes(report: Report) -> Iterator[str]:
    """What the limit is, and what is missing."""
    limits, missing = report.limits, report.missing
    threads = f"{limits.num_threads} thread{'s' if limits.num_threads > 1 else ''}"
    peaks = (limits.linear, limits.attention)
    linear, attention = (f"{peak.operations_per_s / 1e9:.0f} Gop/s of {peak.format}" for peak in peaks)
    yield (
        f"The limit, as this engine measured it with {threads} and {limits.isa}, {report.limits_age_s:.0f} s before: "
        f"reading memory at {limits.bytes_per_s / 1e9:.1f} GB/s, {linear} in linear layers, {attention} in attention."
    )
    if not all(peak.holds for peak in peaks):
        yield "Clock, width and units don't explain these peaks: something else ran while they were measured."
    for number, what in (
        (missing.failed_steps, "steps failed and aren't counted"),
        (missing.skipped_steps, "steps found no room in the profile"),
        (missing.lost_spans, "spans found no room in the trace; profile fewer steps"),
        (missing.lost_beats, "changes in the engine's loop found no room, so that idle time is too short"),
    ):
        if number:
            yield f"Missing: {number} {what}."


def _cells(row: PhaseRow) -> tuple[str, ...]:
    return (
        row.phase,
        f"{row.share:.1%}",
        f"{row.step_s * 1e3:.3f}",
        _number(row.step_bytes / 1e6),
        _number(row.step_operations / 1e6),
        _number(row.bytes_per_s / 1e9),
        _number(row.operations_per_s / 1e9),
        "" if row.limit_share is None else f"{row.limit_share:.0%} {row.bound}",
    )


def _number(value: float) -> str:
    """Three digits, or nothing for nothing."""
    if not value:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first and the last column to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    last = len(widths) - 1
    for row in rows:
        line = (
            cell.ljust(width) if column in {0, last} else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(line).rstrip()
