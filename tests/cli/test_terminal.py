"""A chat as a person at a terminal has it."""

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from pathlib import Path

from freehold.files.tensors import DType
from freehold.synth import PRESETS, write_checkpoint

TIMEOUT_S = 120


def take_terminal() -> None:
    """In the child: Ctrl-C on the terminal reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_chat_on_a_terminal(tmp_path: Path) -> None:
    """The banner names the model, Ctrl-C stops an answer and not the chat, Ctrl-D leaves with a line of its own."""
    tiny = tmp_path / "tiny.gguf"
    write_checkpoint(PRESETS["tiny"], tiny, format="gguf", dtype=DType.F32, seed=3)
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "freehold", "chat", str(tiny), "--seed", "1"]
    with os.fdopen(main, "r+b", buffering=0) as screen:
        process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509  one system call
        )  # fmt: skip
        os.close(terminal)
        seen = b""

        def read_until(part: bytes) -> bytes:
            nonlocal seen
            while part not in seen:
                assert select.select([screen], [], [], TIMEOUT_S)[0], seen
                seen += screen.read(4096)
            before, _, seen = seen.partition(part)
            return before

        try:
            assert tiny.name.encode() in read_until(b"> ")
            screen.write(b"/help\n")
            read_until(b"starts over")
            read_until(b"> ")
            screen.write(b"Hello\n")
            read_until(b"Hello\r\n")
            select.select([screen], [], [], TIMEOUT_S)
            screen.write(b"\x03")
            read_until(b"[stopped]\r\n")
            read_until(b"> ")
            screen.write(b"\x04")
            read_until(b"\n")
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
            process.wait()
