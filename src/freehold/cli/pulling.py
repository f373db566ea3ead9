"""Fetching models with a progress bar."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from freehold import resolve
from freehold.errors import ModelNotFoundError
from freehold.setting_kinds import format_size

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from freehold.files.progress import Progress

T = TypeVar("T")


def pull(name: str, home: Path) -> Path:
    """Fetch a model into the store unless it is there; shows progress on stderr. Returns what to open.

    Raises as `store.pull` does.
    """
    from freehold.files import store

    if not sys.stderr.isatty():
        return store.pull(name, home, _Phases(name))
    with _bars() as bars:
        task = bars.add_task(name, total=None)

        def show(progress: "Progress") -> None:
            bars.update(
                task,
                description=f"{name}: {progress.phase}",
                completed=progress.done_bytes,
                total=progress.total_bytes or None,
            )

        return store.pull(name, home, show)


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show how much of something is written: a bar on a terminal, a line each quarter elsewhere.

    Yields what takes the bytes that are done, and of how many.
    """
    if sys.stderr.isatty():
        with _bars() as bars:
            task = bars.add_task(name, total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)
        return
    next_quarter = 1

    def show(done: int, total: int) -> None:
        nonlocal next_quarter
        if next_quarter < 4 and done * 4 >= total * next_quarter:
            reached = min(3, done * 4 // max(1, total))
            print(f"{name}: {reached * 25} % of {format_size(total)}", file=sys.stderr)
            next_quarter = reached + 1

    yield show


def _bars() -> "Bars":
    # rich takes longer to import than most commands to run.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    return Bars(*columns, console=Console(file=sys.stderr), transient=True)


class _Phases:
    """Progress for logs: one line a phase."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._phase = ""

    def __call__(self, progress: "Progress") -> None:
        if progress.phase != self._phase:
            self._phase = progress.phase
            size = f", {format_size(progress.total_bytes)}" if progress.total_bytes else ""
            print(f"{self._name}: {progress.phase}{size}", file=sys.stderr)


def with_default_model(
    work: Callable[[Mapping[str, Any], Path | None], T], flags: Mapping[str, Any], config: Path | None
) -> T:
    """Do `work` with the settings; if it lacks the default model and nobody named another, fetch it and try again."""
    try:
        return work(flags, config)
    except ModelNotFoundError:
        asked = resolve.lookup("model", flags, config)
        if asked.source != "default":
            raise
        print(f"Fetching the default model, {asked.value}.", file=sys.stderr)
        pull(asked.value, resolve.lookup("home", flags, config).value)
        return work(flags, config)
