"""Starts, feeds, watches and ends a worker."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from freehold.errors import FreeholdError, ResourceError

_BOOT = "import sys; from importlib import import_module; sys.path[:] = sys.argv[2:]; import_module(sys.argv[1]).main()"


_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT})
"""Signals that no limit of a worker's sends: the system was short of memory, or someone tidied up."""


class WorkerEndedError(FreeholdError):
    """The worker was ended, by the kernel or from here, because it took too much time or memory."""


class _KilledError(FreeholdError):
    """The worker was ended from outside, whatever it was asked."""


class Worker:
    """A process that answers one request after the other, started when first needed and again after it died. For one
    thread at a time.

    The process runs ``main()`` of a module, with nothing but Python's own start-up, no environment, and what
    `freehold.workers.confined` leaves it. Frames in both directions are bytes after a length of four bytes, big-endian.
    The first one sets it up, and it answers that too.

    Args:
        module: its name.
        setup: the first frame.
        wall_s: seconds for one answer, after which the process is ended. Long, because a loaded machine is no one's
            fault; processor time is limited inside.
        task: what the process does, for messages, as in ``renders chat templates``.
    """

    def __init__(self, module: str, setup: Callable[[], bytes], *, wall_s: float, task: str) -> None:
        self._module = module
        self._setup = setup
        self._wall_s = wall_s
        self._task = task
        self._opening: bytes | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_alive(self) -> bool:
        """The process is there."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process if it isn't there, without waiting for it.

        Raises:
            ResourceError: no process can be started.
        """
        if self.is_alive:
            return
        self.close()
        path = [entry for entry in (str(Path(__file__).parents[2]), *sys.path) if entry]
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, self._module, *path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},  # it needs none, and so can tell none
            )
        except OSError as error:
            raise ResourceError(f"can't start the process that {self._task}: {error.strerror}") from None
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self.process = process
        self._end = weakref.finalize(self, _end, process, os.getpid())
        _write(process, self._setup(), time.monotonic() + self._wall_s)

    def open(self) -> bytes:
        """The answer to the setup of the process that runs, which is started if it isn't there.

        Raises:
            WorkerEndedError: it took too much.
            ResourceError: the process can't be started, ends by itself, or is ended from outside each time.
        """
        return self._again_if_killed(self._open)

    def ask(self, request: bytes) -> bytes:
        """The answer to a request. Blocks, at worst for twice `wall_s`.

        Raises:
            WorkerEndedError, ResourceError: as from `open`.
        """
        return self._again_if_killed(lambda: self._ask(request))

    def close(self) -> None:
        """End the process. A later request starts another."""
        if self._end is not None:
            self._end()
        self.process = self._opening = self._end = None

    def _again_if_killed(self, exchange: Callable[[], bytes]) -> bytes:
        """A second try if the process is ended from outside, which is no fault of what it was asked."""
        try:
            return exchange()
        except _KilledError:
            try:
                return exchange()
            except _KilledError as error:
                raise ResourceError(f"{error} twice; see whether this machine is short of memory") from None

    def _open(self) -> bytes:
        self.start()
        if self._opening is None:
            self._opening = self._receive(time.monotonic() + self._wall_s)
        return self._opening

    def _ask(self, request: bytes) -> bytes:
        self._open()
        assert self.process is not None
        deadline_s = time.monotonic() + self._wall_s
        _write(self.process, request, deadline_s)
        return self._receive(deadline_s)

    def _receive(self, deadline_s: float) -> bytes:
        process = self.process
        assert process is not None
        answer = _read(process, deadline_s)
        if answer is not None:
            return answer
        is_late = time.monotonic() >= deadline_s
        self.close()
        if not is_late and -process.returncode in _FROM_OUTSIDE:
            name = signal.Signals(-process.returncode).name
            raise _KilledError(f"the process that {self._task} was ended by {name}")
        if process.returncode >= 0:  # no signal ended it
            raise ResourceError(
                f"the process that {self._task} ended by itself, with exit code {process.returncode}; "
                f"run `{sys.executable} -I -c 'import {self._module}'` to see whether Python works there"
            )
        raise WorkerEndedError(f"the process that {self._task} took too much time or memory and was ended")


def _end(process: subprocess.Popen[bytes], owner_pid: int) -> None:
    if os.getpid() != owner_pid:  # in a fork's child, which shares our worker but doesn't own it
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _write(process: subprocess.Popen[bytes], frame: bytes, deadline_s: float) -> None:
    """Send one frame, or as much of it as the process takes until the deadline; reading then tells."""
    assert process.stdin is not None
    descriptor = process.stdin.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    rest = memoryview(len(frame).to_bytes(4, "big") + frame)
    with contextlib.suppress(BrokenPipeError):  # it died
        while rest and poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            rest = rest[os.write(descriptor, rest) :]


def _read(process: subprocess.Popen[bytes], deadline_s: float) -> bytes | None:
    """One frame; None if the process died or the deadline passed."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    received = bytearray()
    wanted = 4
    while len(received) < wanted:
        ready = poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000)
        chunk = os.read(descriptor, 1 << 20) if ready else b""
        if not chunk:
            return None
        received += chunk
        if wanted == 4 and len(received) >= 4:
            wanted += int.from_bytes(received[:4], "big")
    return bytes(received[4:])
