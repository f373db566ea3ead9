"""A progress bar for people who wait for a batch."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from freehold.llm.completion import Completion

OnCompletion = Callable[[Completion], None]

_FORM = "{bar} {n_fmt}/{total_fmt}{postfix}  {elapsed} eta {remaining}"


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
    from tqdm import tqdm

    began_s = perf_counter()
    num_tokens = 0
    with tqdm(total=total, bar_format=_FORM, dynamic_ncols=True) as bar:

        def advance(completion: Completion) -> None:
            nonlocal num_tokens
            num_tokens += completion.num_output_tokens
            bar.set_postfix_str(f"{num_tokens / max(1e-9, perf_counter() - began_s):.0f} tokens/s", refresh=False)
            bar.update()

        yield advance


def tell(line: str) -> None:
    """Write a line to stderr: above the bar, if there is one."""
    if not sys.stderr.isatty():
        print(line, file=sys.stderr)
        return
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)
