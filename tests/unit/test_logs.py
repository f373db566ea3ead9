"""The log's sink: whoever reads it may stop reading, and nobody waits for them."""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from freehold import logs
from freehold.logs import MAX_WAITING_BYTES, PatientHandler

LINE = "x" * 999


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def say(handler: PatientHandler, words: str) -> None:
    handler.emit(logging.LogRecord("test", logging.INFO, __file__, 0, words, None, None))


def read_for(descriptor: int, num_lines: int) -> list[str]:
    text = b""
    while text.count(b"\n") < num_lines or not text.endswith(b"\n"):
        text += os.read(descriptor, 1 << 20)
    return text.decode().splitlines()


def test_lines_come_in_order(pipe: tuple[int, int]) -> None:
    handler = PatientHandler(pipe[1])
    for number in range(1000):
        say(handler, f"line {number}")
    handler.flush()
    assert read_for(pipe[0], 1000) == [f"line {number}" for number in range(1000)]
    assert handler.num_dropped == 0


@pytest.mark.parametrize("blocks", [True, False], ids=["blocking", "non-blocking"])
def test_with_a_full_pipe_nobody_waits_and_what_is_lost_is_told(
    pipe: tuple[int, int], blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FLUSH_S", 0.05)
    os.set_blocking(pipe[1], blocks)
    handler = PatientHandler(pipe[1])
    num_lines = 3 * MAX_WAITING_BYTES // (len(LINE) + 1)
    start_s = time.monotonic()
    for _ in range(num_lines):
        say(handler, LINE)
    handler.flush()
    assert time.monotonic() - start_s < 30, "it would have stood still for ever"
    assert 0 < handler.num_dropped < num_lines
    lines, told = [], 0
    while len(lines) + told < num_lines:
        for line in read_for(pipe[0], 1):
            if line == LINE:
                lines.append(line)
            else:
                told += int(line.removesuffix(" lines of the log were lost, as nobody took them"))
        if told < handler.num_dropped and len(lines) == num_lines - handler.num_dropped:
            say(handler, LINE)  # the queue is empty: this comes, and with it what the log hasn't told yet
            num_lines += 1
    assert told == handler.num_dropped
    monkeypatch.undo()
    handler.flush()


def test_a_disk_that_is_full_is_counted_and_later_told(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full, (tmp_path / "log").open("wb") as file:
        handler = PatientHandler(full.fileno())
        for _ in range(5):
            say(handler, "lost")
        handler.flush()
        assert handler.num_dropped == 5
        handler._descriptor = file.fileno()
        say(handler, "kept")
        handler.flush()
    assert (tmp_path / "log").read_text().splitlines() == [
        "kept", "5 lines of the log were lost, as nobody took them",
    ]  # fmt: skip


def test_a_line_that_cannot_be_written_out_is_no_error(pipe: tuple[int, int]) -> None:
    handler = PatientHandler(pipe[1])
    say(handler, "half a pair: \ud800")
    handler.flush()
    assert read_for(pipe[0], 1) == ["half a pair: \\ud800"]
