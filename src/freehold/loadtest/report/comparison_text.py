"""A comparison of two load tests in words: for terminals, and at the top of its page."""

from collections.abc import Iterator, Sequence

from freehold.loadtest.comparison import Comparison, Difference, Verdict

BASES = {"requests": "equal requests", "repeats": "repeats", "runs": "separate runs"}
"""What a `Difference.basis` is in a table."""

_BEGINNINGS: dict[Verdict, str] = {
    "incomparable": "Not comparable, as the warnings say",
    "cached": "Of the cache, neither better nor worse", "worse": "B is worse", "unclear": "No difference seen",
    "better": "B is better",
}  # fmt: skip


def comparison_text(found: Comparison) -> str:
    """Tables and verdicts, as lines."""
    return "\n".join(_lines(found)) + "\n"


def verdicts(differences: Sequence[Difference], kind: Verdict) -> str:
    """All differences of one verdict, as a sentence; "" if there are none."""
    found = "; ".join(_said(each) for each in differences if each.verdict == kind)
    return f"{_BEGINNINGS[kind]}: {found}." if found else ""


def _said(each: Difference) -> str:
    if each.interval is None or each.ratio_interval is None:
        return f"{each.name} {each.ratio - 1:+.1%}, of one repeat, which may be chance"
    change = (
        f"{each.name} {each.ratio - 1:+.1%} ({each.ratio_interval[0] - 1:+.1%} to {each.ratio_interval[1] - 1:+.1%})"
    )
    if each.verdict == "unclear" and each.detectable is not None:
        return f"{change}, where {each.detectable:.1%} would most likely have shown"
    return change


def label_of(found: Comparison) -> tuple[str, str]:
    """Names for the two runs: their labels, else their models, with A and B where they would be equal."""
    names = [run.facts.label or run.facts.model_id for run in (found.a, found.b)]
    if names[0] == names[1]:
        return "A", "B"
    return f"A: {names[0]}", f"B: {names[1]}"


def _lines(found: Comparison) -> Iterator[str]:
    first, second = label_of(found)
    yield f"{first}, {found.a.facts.date}, against {second}, {found.b.facts.date}"
    for warning in found.warnings:
        yield f"WARNING: {warning}"
    for note in found.notes:
        yield f"Note: {note}"
    if not found.points:
        yield "Nothing to compare: the runs have no load in common."
    for point in found.points:
        yield ""
        yield f"== {point.a.load.label} =="
        header = ("", "A", "B", "B - A", "95 % CI", "B / A", "n", "")
        rows = [header, *(_row(each) for each in point.differences)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        for row in rows:
            cells = (f"{cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:-1], strict=True))
            yield "  ".join([f"{row[0]:{widths[0]}}", *cells, row[-1]]).rstrip()
        yield ""
        for kind in _BEGINNINGS:
            if sentence := verdicts(point.differences, kind):
                yield sentence


def _row(each: Difference) -> tuple[str, ...]:
    interval = "-" if each.interval is None else f"{each.interval[0]:+.2f} to {each.interval[1]:+.2f}"
    return (
        f"{each.name} ({each.unit})", f"{each.a:.2f}", f"{each.b:.2f}", f"{each.difference:+.2f}", interval,
        f"{each.ratio:.3f}", str(each.num), BASES[each.basis],
    )  # fmt: skip
