"""All experiments, and what they found as text and as a page."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from freehold import __version__
from freehold.errors import ConfigError
from freehold.loadtest.experiments.base import Experiment, Outcome, Setting
from freehold.loadtest.experiments.cached_decoding import CACHED_DECODING
from freehold.loadtest.experiments.concurrency import CONCURRENCY
from freehold.loadtest.experiments.kv_occupancy import KV_OCCUPANCY
from freehold.loadtest.experiments.max_num_seqs import MAX_NUM_SEQS
from freehold.loadtest.experiments.warm_prefix import WARM_PREFIX
from freehold.loadtest.report import html
from freehold.loadtest.report.draw import draw
from freehold.loadtest.report.files import write_page
from freehold.loadtest.report.html import Table

EXPERIMENTS = {each.name: each for each in (CACHED_DECODING, WARM_PREFIX, KV_OCCUPANCY, CONCURRENCY, MAX_NUM_SEQS)}
"""By name, in the order in which a workshop takes them."""


def measured(experiment: Experiment, setting: Setting) -> Outcome:
    """What an experiment finds, with a word on figures that tell nothing."""
    outcome = experiment.run(setting)
    if not setting.is_quick:
        return outcome
    return replace(outcome, found=[*outcome.found, "--quick is too short for these figures to tell anything."])


def outcome_text(outcome: Outcome) -> str:
    """Tables and sentences for a terminal."""
    return "\n".join(line for part in _parts(outcome) for line in part) + "\n"


def write_outcome(experiment: Experiment, setting: Setting, outcome: Outcome, folder: Path) -> list[Path]:
    """Write the page, and each plot as an SVG file.

    Returns:
        What was written, the page first.

    Raises:
        ConfigError: a file can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output can't be {folder}: {error.strerror}") from None
    page = folder / f"{experiment.name}.html"
    write_page(outcome_page(experiment, setting, outcome), page)
    written = [page]
    for name, plot in outcome.plots:
        path = folder / f"{experiment.name}-{name}.svg"
        write_page(draw(plot, name, alone=True) + "\n", path)
        written.append(path)
    return written


def outcome_page(experiment: Experiment, setting: Setting, outcome: Outcome) -> str:
    """A self-contained page: what to expect and why, what was found, tables, plots."""
    drawn = [html.plotted(plot, name) for name, plot in outcome.plots]
    return html.page(
        experiment.title,
        html.paragraph(f"Model: {setting.model}", "dim"),
        *(html.paragraph(sentence, "lead") for sentence in outcome.found),
        html.section("What to expect, and why", html.paragraph(experiment.expect)),
        html.section("What was measured", *(html.table(each) for each in outcome.tables), html.figures(*drawn)),
        footer=f"Made by freehold experiment {experiment.name}, version {__version__}. This page loads nothing.",
    )


def _parts(outcome: Outcome) -> Iterator[list[str]]:
    for each in outcome.tables:
        yield [f"{each.caption}:", *_lines(each), ""]
    yield list(outcome.found)


def _lines(table: Table) -> Iterator[str]:
    """A table's rows in columns."""
    rows = [list(table.header), *([html.written(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        numbers = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([f"{row[0]:{widths[0]}}", *numbers]).rstrip()
