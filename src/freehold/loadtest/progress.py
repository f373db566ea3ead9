"""What a person sees while a load test runs."""

import sys
from collections import deque
from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING

from freehold.loadtest import table
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load, PointResult

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_LATEST = 100  # requests whose latencies are shown
_REFRESHES_PER_S = 2


class Progress(AbstractContextManager["Progress"]):
    """A bar with live figures on stderr if that is a terminal, and a line for each point that is done."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._label = ""
        self._began_s = 0.0
        self._num_failed = self._num_tokens = 0
        self._ttfts_s: deque[float] = deque(maxlen=_LATEST)
        self._bar = None if is_quiet or not sys.stderr.isatty() else _bar()
        self._task: TaskID | None = None

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, load: Load, repeat: int, num_requests: int) -> None:
        """As `freehold.loadtest.run.Watcher`."""
        self._label = load.label + (f", repeat {repeat + 1}" if repeat else "")
        self._began_s = perf_counter()
        self._num_failed = self._num_tokens = 0
        self._ttfts_s.clear()
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(self._label, total=num_requests, figures="")

    def record(self, record: RequestRecord) -> None:
        """As `freehold.loadtest.run.Watcher`."""
        self._num_failed += not record.succeeded
        self._num_tokens += record.num_output or 0
        if record.ttft_s is not None:
            self._ttfts_s.append(record.ttft_s)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, figures=self._figures())

    def point(self, result: PointResult) -> None:
        """As `freehold.loadtest.run.Watcher`."""
        if self._is_quiet:
            return
        if self._bar is not None:
            self._bar.console.print(table.line(result), markup=False, highlight=False)
        else:
            print(table.line(result), file=sys.stderr, flush=True)

    def _figures(self) -> str:
        elapsed_s = perf_counter() - self._began_s
        cells = [f"{self._num_tokens / elapsed_s:.0f} tok/s"] if elapsed_s > 0 else []
        if self._ttfts_s:
            latest = sorted(self._ttfts_s)
            cells.append(f"TTFT {latest[len(latest) // 2] * 1000:.0f} ms")
        if self._num_failed:
            cells.append(f"{self._num_failed} failed")
        return "  ".join(cells)


def _bar() -> "Bar":
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[figures]}"),
        progress.TimeElapsedColumn(),
    )
    return progress.Progress(*columns, console=Console(stderr=True), refresh_per_second=_REFRESHES_PER_S)
