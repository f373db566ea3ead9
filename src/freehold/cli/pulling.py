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
    from tqdm import tqdm

    from freehold.files.progress import Progress

T = TypeVar("T")


def pull(name: str, home: Path) -> Path:
    """Fetch a model into the store unless it is there; shows progress on stderr. Returns what to open.

    Raises as `store.pull` does.
    """
    from freehold.files import store

    if not sys.stderr.isatty():
        return store.pull(name, home, _Phases(name))
    phase = ""
    with _bar(name) as bar:

        def show(progress: "Progress") -> None:
            nonlocal phase
            bar.total = progress.total_bytes or None
            if progress.phase != phase:
                phase = progress.phase
                bar.set_description(f"{name}: {phase}", refresh=False)
                bar.reset()
            bar.update(progress.done_bytes - bar.n)

        return store.pull(name, home, show)


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show how much of something is written: a bar on a terminal, a line each quarter elsewhere.

    Yields what takes the bytes that are done, and of how many.
    """
    if sys.stderr.isatty():
        with _bar(name) as bar:

            def advance(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield advance
        return
    next_quarter = 1

    def show(done: int, total: int) -> None:
        nonlocal next_quarter
        if next_quarter < 4 and done * 4 >= total * next_quarter:
            reached = min(3, done * 4 // max(1, total))
            print(f"{name}: {reached * 25} % of {format_size(total)}", file=sys.stderr)
            next_quarter = reached + 1

    yield show


def _bar(name: str) -> "tqdm":
    """Of bytes, on stderr; it is gone when it is done."""
    from tqdm import tqdm  # it takes longer to import than most commands to run

    return tqdm(desc=name, unit="B", unit_scale=True, unit_divisor=1024, leave=False, dynamic_ncols=True)


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
