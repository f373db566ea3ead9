"""The engine's process by itself: what it does with junk and with a lost connection."""

import socket
import subprocess
from typing import Any

import pytest
from engine_fixtures import TIMEOUT_S, generate, scripted_config
from scripted_child import PROGRAM, SLOW
from tests import processes

from freehold.engine.ipc import Beat, Channel, FromEngine, Ready, Start
from freehold.engine.process import EXIT_FAILED
from freehold.protocol import Abort, Drain, RequestId


class Alone:
    """The process, and a raw end of its connection."""

    def __init__(self) -> None:
        self.raw, theirs = socket.socketpair()
        with theirs:
            command = [*PROGRAM, str(theirs.fileno())]
            self.process = processes.start(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        self.channel: Channel[FromEngine] = Channel(self.raw.dup(), FromEngine)

    def load(self) -> None:
        self.channel.send(Start(scripted_config(), "info"))
        while not any(isinstance(message, Ready) for message in self.channel.receive(TIMEOUT_S)):
            pass

    def end(self) -> int:
        """Wait for it; its exit code."""
        _, log = self.process.communicate(timeout=TIMEOUT_S)
        self.raw.close()
        self.channel.close()
        assert "Traceback" not in log
        return self.process.returncode


JUNK = [b"\xff" * 4, b"\0\0\0\1\xc1", b"GET / HTTP/1.1\r\n\r\n"]


@pytest.mark.parametrize(
    ("is_loaded", "sent"),
    [
        *((is_loaded, junk) for is_loaded in (False, True) for junk in JUNK),
        (False, Abort(RequestId("a"))),
        (False, Drain(1.0)),
        (True, Start(scripted_config(), "info")),
        (True, Beat(1.0, False, "plan")),
    ],
    ids=repr,
)
def test_junk_and_what_comes_out_of_turn_end_the_process(is_loaded: bool, sent: Any) -> None:
    alone = Alone()
    if is_loaded:
        alone.load()
    if isinstance(sent, bytes):
        alone.raw.sendall(sent)
    else:
        alone.channel.send(sent)
    assert alone.end() == EXIT_FAILED


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_lost_connection_ends_the_process(is_loaded: bool) -> None:
    alone = Alone()
    if is_loaded:
        alone.load()
        alone.channel.send(generate("a", (SLOW,), max_tokens=4000))
    alone.raw.shutdown(socket.SHUT_RDWR)
    assert alone.end() == 0
