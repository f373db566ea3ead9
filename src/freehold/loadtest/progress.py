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
    from tqdm import tqdm

_LATEST = 100  # requests whose latencies are shown
_REFRESH_S = 0.5
_FORM = "{desc} {bar} {n_fmt}/{total_fmt}{postfix}  {elapsed}"


class Progress(AbstractContextManager["Progress"]):
    """A bar with live figures on stderr if that is a terminal, and a line for each point that is done."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._label = ""
        self._began_s = 0.0
        self._num_failed = self._num_tokens = 0
        self._ttfts_s: deque[float] = deque(maxlen=_LATEST)
        self._has_bar = not is_quiet and sys.stderr.isatty()
        self._bar: tqdm | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, load: Load, repeat: int, num_requests: int) -> None:
        """As `freehold.loadtest.run.Watcher`."""
        self._label = load.label + (f", repeat {repeat + 1}" if repeat else "")
        self._began_s = perf_counter()
        self._num_failed = self._num_tokens = 0
        self._ttfts_s.clear()
        if self._bar is not None:
            self._bar.close()
        if self._has_bar:
            self._bar = _bar(self._label, num_requests)

    def record(self, record: RequestRecord) -> None:
        """As `freehold.loadtest.run.Watcher`."""
        self._num_failed += not record.succeeded
        self._num_tokens += record.num_output or 0
        if record.ttft_s is not None:
            self._ttfts_s.append(record.ttft_s)
        if self._bar is not None:
            self._bar.set_postfix_str(self._figures(), refresh=False)
            self._bar.update()

    def point(self, result: PointResult) -> None:
        """As `freehold.loadtest.run.Watcher`."""
        if self._is_quiet:
            return
        if self._bar is not None:
            self._bar.write(table.line(result), file=sys.stderr)  # above it
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


def _bar(label: str, num_requests: int) -> "tqdm":
    from tqdm import tqdm  # it takes longer to import than the rest of the command

    return tqdm(
        desc=label, total=num_requests, bar_format=_FORM, mininterval=_REFRESH_S, leave=False, dynamic_ncols=True
    )
