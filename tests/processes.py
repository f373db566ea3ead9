"""Processes that tests start. None outlives its test, or the run if a fixture of several tests started it: one that a
failed test left would take time and memory from all later ones."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_started: list["Started"] = []


class Started(subprocess.Popen[Any]):
    """As a context manager it ends with the block: an assertion that fails doesn't wait for a server that goes on."""

    def __exit__(self, *error: Any) -> None:
        self.kill()
        super().__exit__(*error)


def start(command: Sequence[Any], **options: Any) -> Started:
    """As `subprocess.Popen`."""
    process = Started(command, **options)
    _started.append(process)
    return process


@contextmanager
def ending() -> Iterator[None]:
    """Whatever is started meanwhile and still runs at the end is killed."""
    num_before = len(_started)
    try:
        yield
    finally:
        for process in _started[num_before:]:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        del _started[num_before:]
