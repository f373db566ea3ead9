"""The process's standard streams, as they are handed to it: perhaps closed, perhaps a pipe that nobody reads."""

import io
import os
import select
import sys
from typing import Any, BinaryIO, cast

from freehold.errors import FreeholdError

WAIT_S = 2.0
"""So long may whoever reads a last word take for it."""

_CHUNK_BYTES = 4096  # a pipe that can be written takes as many without waiting


class OutputError(FreeholdError):
    """What a command prints can't be written: the disk behind it is full, say."""


def settle() -> None:
    """Have streams to write to. What was closed leads nowhere, so that no file or socket that is opened later gets its
    number; a terminal that can't show a character shows another one; and output that can't be written is told apart
    from other files that can't, by `OutputError`."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # becomes the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  as long as the process
    elif sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _telling(sys.stdout)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  as long as the process
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def flush() -> None:
    """Write what is left to write.

    Raises:
        BrokenPipeError: nobody reads it.
        OutputError: it can't be written.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def give_up() -> None:
    """Have output that can't be written go nowhere, where Python's own flush at the end may follow."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, OutputError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _telling(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream, which raises `OutputError`."""
    raw = _Output(stream.fileno(), "w", closefd=False)
    is_unbuffered = stream.write_through  # as with `python -u`
    return io.TextIOWrapper(
        cast(BinaryIO, raw if is_unbuffered else io.BufferedWriter(raw)),
        stream.encoding,
        line_buffering=stream.line_buffering,
        write_through=is_unbuffered,
    )


class _Output(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"can't write the output: {error.strerror}") from None


def last_word(text: str) -> None:
    """A line on stderr, unless nobody takes it: a process that is done must end."""
    try:
        descriptor = sys.stderr.fileno()
    except io.UnsupportedOperation:  # somebody took its place
        print(text, file=sys.stderr)
        return
    sys.stderr.flush()
    rest = memoryview(f"{text}\n".encode(sys.stderr.encoding, "replace"))
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    while rest and poll.poll(1000 * WAIT_S):
        try:
            rest = rest[os.write(descriptor, rest[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            continue
        except OSError:
            return
