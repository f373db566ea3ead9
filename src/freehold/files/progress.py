"""How a pull tells what it does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Phase = Literal["waiting", "resolving", "downloading", "checking", "unpacking"]

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of a pull.

    Attributes:
        phase: ``waiting`` for another pull of the same model, ``resolving`` its name, ``downloading``, ``checking``
            hashes, ``unpacking``.
        done_bytes, total_bytes: of this phase; a resumed download starts above 0. Both 0 where bytes mean nothing.
    """

    phase: Phase
    done_bytes: int = 0
    total_bytes: int = 0


OnProgress = Callable[[Progress], None]


@contextmanager
def watch_directory(directory: Path, total_bytes: int, on_progress: OnProgress) -> Iterator[None]:
    """Report the bytes below `directory` as downloaded, a few times a second from a thread, while the body runs.

    For downloads that another program or library makes into it.
    """
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(_POLL_S):
            on_progress(Progress("downloading", min(directory_bytes(directory), total_bytes), total_bytes))

    thread = threading.Thread(target=report, name="pull-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    on_progress(Progress("downloading", total_bytes, total_bytes))


def directory_bytes(directory: Path) -> int:
    """Bytes that the files below `directory` occupy on disk at this moment."""
    total = 0
    for path in directory.rglob("*"):
        try:
            status = path.lstat()
        except OSError:  # gone since it was listed
            continue
        total += min(status.st_blocks * 512, status.st_size)
    return total
