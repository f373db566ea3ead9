"""The process's standard streams, as they are handed to it: perhaps closed, perhaps a pipe that nobody reads."""

import io
import os
import select
import sys

WAIT_S = 2.0
"""So long may whoever reads a last word take for it."""

_CHUNK_BYTES = 4096  # a pipe that can be written takes as many without waiting


def settle() -> None:
    """Have streams to write to. What was closed leads nowhere, so that no file or socket that is opened later gets its
    number; and a terminal that can't show a character shows another one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # becomes the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  as long as the process
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


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
