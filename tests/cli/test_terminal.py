"""A chat as a person at a terminal has it."""

import fcntl
import os
import pty
import select
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from tests import processes
from tests.processes import Started

from freehold.files.tensors import DType
from freehold.synth import PRESETS, write_checkpoint

TIMEOUT_S = 120


def take_terminal() -> None:
    """In the child: Ctrl-C on the terminal reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Chat:
    """``freehold chat`` with a tiny model, and what its terminal has shown and nobody has read."""

    def __init__(self, screen: BinaryIO, process: Started) -> None:
        self.process = process
        self._screen = screen
        self._seen = b""

    def type(self, keys: bytes) -> None:
        self._screen.write(keys)

    def wait_for_output(self) -> None:
        assert select.select([self._screen], [], [], TIMEOUT_S)[0]

    def read_until(self, part: bytes) -> bytes:
        """What is shown before `part`."""
        while part not in self._seen:
            self.wait_for_output()
            self._seen += self._screen.read(4096)
        before, _, self._seen = self._seen.partition(part)
        return before


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    tiny = tmp_path / "tiny.gguf"
    write_checkpoint(PRESETS["tiny"], tiny, format="gguf", dtype=DType.F32, seed=3)
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "freehold", "chat", str(tiny), "--seed", "1"]
    with os.fdopen(main, "r+b", buffering=0) as screen:
        process = processes.start(
            command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
            preexec_fn=take_terminal,  # one system call
        )  # fmt: skip
        os.close(terminal)
        try:
            chat = Chat(screen, process)
            assert tiny.name.encode() in chat.read_until(b"> ")
            yield chat
        finally:
            process.kill()
            process.wait()


def test_a_chat_on_a_terminal(chat: Chat) -> None:
    """Ctrl-C stops an answer and not the chat, Ctrl-D leaves with a line of its own."""
    chat.type(b"/help\n")
    chat.read_until(b"starts over")
    chat.read_until(b"> ")
    chat.type(b"Hello\n")
    chat.read_until(b"Hello\r\n")
    chat.wait_for_output()
    chat.type(b"\x03")
    chat.read_until(b"[stopped]\r\n")
    chat.read_until(b"> ")
    chat.type(b"\x04")
    chat.read_until(b"\n")
    assert chat.process.wait(TIMEOUT_S) == 0


def test_what_is_typed_during_an_answer_shows_at_the_next_prompt_alone(chat: Chat) -> None:
    chat.type(b"Hello\n")
    chat.read_until(b"Hello\r\n")
    chat.wait_for_output()
    chat.type(b"/exit\n\x03")  # a terminal that echoes does so at once; the answer must not end meanwhile
    assert b"/exit" not in chat.read_until(b"[stopped]\r\n")
    chat.read_until(b"> ")
    # Ctrl-C drops what was typed before it; echo is back.
    chat.type(b"/exit\n")
    chat.read_until(b"/exit")
    assert chat.process.wait(TIMEOUT_S) == 0


def test_the_next_line_may_be_typed_ahead(chat: Chat) -> None:
    chat.type(b"/new\n")
    chat.read_until(b"> ")
    chat.type(b"Hello\n")
    chat.read_until(b"Hello\r\n")
    chat.wait_for_output()
    chat.type(b"/exit\n")
    assert b"/exit" not in chat.read_until(b"> /exit")
    assert chat.process.wait(TIMEOUT_S) == 0
