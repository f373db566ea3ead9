"""A progress bar for people who wait for a batch."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from freehold.llm.completion import Completion

OnCompletion = Callable[[Completion], None]


@contextmanager
def progress_bar(total: int | None, *, wanted: bool) -> Iterator[OnCompletion]:
    """A bar on stderr while the context is open; it gives what to call with each completion.

    Args:
        total: completions to come, None if nobody knows.
        wanted: if not, or if stderr is no terminal, nothing is shown, and nothing imported.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda _completion: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("eta"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total, speed="")
        num_tokens = 0

        def advance(completion: Completion) -> None:
            nonlocal num_tokens
            num_tokens += completion.num_output_tokens
            elapsed_s = progress.tasks[0].elapsed or 0.0
            speed = f"{num_tokens / elapsed_s:.0f} tokens/s" if elapsed_s else ""
            progress.update(task, advance=1, speed=speed)

        yield advance
