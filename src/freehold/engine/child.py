"""The engine's process as its owner holds it: started, connected, ended."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from freehold.engine.ipc import Channel, FromEngine
from freehold.errors import ModelFileError, ResourceError, UserError

LINGER_S = 1.0
"""So long may a process take to end whose connection is closed."""


@dataclass(init=False, slots=True)
class Child:
    """A process and the way to it."""

    process: subprocess.Popen[bytes]
    channel: Channel[FromEngine]
    _is_killed_by_us: bool

    def __init__(self, program: Sequence[str]) -> None:
        """
        Raises:
            OSError: no process, or no descriptor, is to be had.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # A session of its own: the terminal's Ctrl-C is for the server, which ends this one in its own time.
                self.process = subprocess.Popen(
                    [*program, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self.channel = Channel(ours, FromEngine)
        self._is_killed_by_us = False

    def kill(self) -> None:
        """End the process at once, if it hasn't ended."""
        self._is_killed_by_us = self.process.poll() is None
        self.process.kill()

    def end(self) -> str:
        """Close the connection, see the process end, and say how it did. May be called again."""
        self.channel.close()
        try:
            code = self.process.wait(LINGER_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.process.wait()
        if code >= 0:
            return f"ended by itself, with exit code {code}"
        name = signal.Signals(-code).name
        if self._has_lost_file:
            return f"was ended by {name}: the model file was changed or truncated while it was read"
        return f"was ended by {name}"

    def why_unloaded(self, cause: str) -> UserError:
        """What to tell of a process that has ended, for this cause, before it had loaded the model."""
        if self._has_lost_file:
            return ModelFileError(f"{cause}; restore the file and start again")
        if self.process.returncode == -signal.SIGKILL and not self._is_killed_by_us:
            return ResourceError(
                f"{cause} before the model was loaded; if the system ended it, memory ran out: lower "
                "--kv-cache-memory-bytes, or use a smaller model"
            )
        return ResourceError(f"{cause} before the model was loaded")

    @property
    def _has_lost_file(self) -> bool:
        """It read mapped bytes that a file no longer has."""
        return self.process.returncode == -signal.SIGBUS


def default_program() -> Sequence[str]:
    """This interpreter, and this Freehold. Python would look for modules in the working directory first; it shall only
    do so if it does here."""
    safe = [] if os.getcwd() in sys.path or "" in sys.path else ["-P"]
    return [sys.executable, *safe, "-m", "freehold.engine.process"]
