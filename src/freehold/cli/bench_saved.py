"""``freehold bench --show`` and ``--compare``: results that were saved."""

import sys
from pathlib import Path

from freehold.cli.bench_run import Shown
from freehold.cli.main import EXIT_FAILED
from freehold.loadtest import table
from freehold.loadtest.comparison import compare
from freehold.loadtest.report.comparison_page import comparison_page
from freehold.loadtest.report.comparison_text import comparison_text
from freehold.loadtest.report.files import write_page
from freehold.loadtest.report.run_page import run_page
from freehold.loadtest.result_file import read_result


def show(result: Path, report: Path | None, shown: Shown) -> None:
    """Print a saved result again.

    Args:
        report: also write its page there.

    Raises:
        ConfigError: no such result, or the page can't be written.
    """
    found = read_result(result)
    print(table.text(found, shown.metrics, shown.percents), end="")
    if report is not None:
        write_page(run_page(found), report)


def show_comparison(first: Path, second: Path, report: Path | None) -> None:
    """Print what the second of two saved results has more or less than the first.

    Args:
        report: also write it as a page there.

    Raises:
        ConfigError: no such result, or the page can't be written.
        SystemExit: with 1, if the two have no load in common.
    """
    found = compare(read_result(first), read_result(second))
    print(comparison_text(found), end="")
    if report is not None:
        write_page(comparison_page(found), report)
    if not found.points:
        sys.exit(EXIT_FAILED)
