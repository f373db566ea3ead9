"""A run of ``freehold bench``: its files, its progress, what it prints."""

import asyncio
import datetime
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freehold import resolve
from freehold.cli.bench_paths import folder_of_results, writable
from freehold.cli.main import EXIT_FAILED, Terminated
from freehold.errors import ConfigError
from freehold.loadtest import table
from freehold.loadtest.bench import Surroundings, run_bench
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.progress import Progress
from freehold.loadtest.result_file import write_result
from freehold.loadtest.results import Metric, RunResult
from freehold.loadtest.run import InterruptedRunError, saved_run
from freehold.loadtest.store import RunStore


@dataclass(frozen=True, slots=True)
class Shown:
    """What is printed: percentiles of which latencies, and whether the progress too."""

    metrics: tuple[Metric, ...]
    percents: tuple[float, ...]
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class Files:
    """Where results go.

    Attributes:
        run: the SQLite file.
        result: the JSON; None writes none.
        is_detailed: with single requests.
        report: the page; None writes none.
    """

    run: Path
    result: Path | None
    is_detailed: bool
    report: Path | None = None


def files_of(folder: Path, name: str | None, *, is_saved: bool, is_detailed: bool) -> Files:
    """The files of a new run. Without a result to save, its SQLite file lies in the model store's folder ``bench``.

    Raises:
        ConfigError: the result can't be written there.
    """
    stem = f"bench-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    if name is None and not is_saved:
        return Files(resolve.home_directory() / "bench" / f"{stem}.sqlite", None, is_detailed)
    flag = "--result-dir" if name is None else "--result-filename"
    result = writable(flag, folder_of_results("--result-dir", folder) / (name or f"{stem}.json"))
    if result.suffix == ".sqlite":
        raise ConfigError(f"--result-filename can't be {name}: that is the name of the run's SQLite file")
    return Files(result.with_suffix(".sqlite"), result, is_detailed)


def execute(options: BenchOptions | None, files: Files, shown: Shown, headers: Sequence[str]) -> None:
    """Measure, print and save.

    Args:
        options: None goes on with the run in the file.
        headers: of every request, as ``Name=value``. They may hold secrets, so no file has them.

    Raises:
        UserError: the server, the files or the options are of no use.
        KeyboardInterrupt: interrupted, after what there is was printed and saved.
        Terminated: the same, by SIGTERM.
        SystemExit: no request succeeded.
    """
    with closing(RunStore(files.run, options)) as store:  # closed last: if its disk is full, results are told first
        loads = store.options.loads
        termination = _Termination()
        if store.is_finished():
            print(f"Nothing is missing in {files.run}: its results", file=sys.stderr)
            result = saved_run(store)
        else:
            result = _measure(store, headers, termination, is_quiet=shown.is_quiet)
        print(table.text(result, shown.metrics, shown.percents), end="")
        if files.result is not None:
            write_result(result, files.result, is_detailed=files.is_detailed)
        if files.report is not None:
            from freehold.loadtest.report.files import write_page
            from freehold.loadtest.report.run_page import run_page

            write_page(run_page(result), files.report)
    if not all(point.is_complete for point in result.points) or len(result.points) < len(loads):
        _tell_how_to_go_on(files.run)
        raise termination.as_error()
    if not any(point.completed for point in result.points):
        sys.exit(EXIT_FAILED)


class _Termination:
    """SIGTERM while a run goes on ends it as Ctrl-C does: with what there is."""

    def __init__(self) -> None:
        self._has_come = False

    async def ends(self, work: Coroutine[Any, Any, RunResult]) -> RunResult:
        """Await the work; the signal cancels it."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def come() -> None:
            self._has_come = True
            task.cancel()

        usual = signal.getsignal(signal.SIGTERM)
        loop.add_signal_handler(signal.SIGTERM, come)
        try:
            return await work
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, usual)

    def as_error(self) -> KeyboardInterrupt:
        """What to raise, by which signal came."""
        return Terminated() if self._has_come else KeyboardInterrupt()


def _measure(store: RunStore, headers: Sequence[str], termination: _Termination, *, is_quiet: bool) -> RunResult:
    """
    Raises:
        UserError: as from `execute`.
        KeyboardInterrupt: interrupted before there was anything to tell.
        Terminated: the same, by SIGTERM.
    """
    surroundings = Surroundings(resolve.home_directory(), resolve.client_key(), tuple(headers))
    try:
        with Progress(is_quiet=is_quiet) as progress:
            return asyncio.run(termination.ends(run_bench(store.options, store, surroundings, progress)))
    except (InterruptedRunError, KeyboardInterrupt, asyncio.CancelledError) as error:
        _tell_how_to_go_on(store.path)
        raise termination.as_error() from error


def _tell_how_to_go_on(run: Path) -> None:
    print(f"Interrupted; go on with `freehold bench --resume {run}`.")
