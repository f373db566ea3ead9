"""Lines of the log: for people, or a JSON object each. What strangers wrote can't break out of its line.

Logs hold no prompts, no answers and no keys: whoever writes to them sees to that. And nobody waits for whoever reads
them: lines are written by a thread, and when too many wait there, new ones are dropped and counted.
"""

import contextlib
import json
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from typing import Any, Literal

from freehold.amounts import amount

LogFormat = Literal["pretty", "json"]

MAX_WAITING_BYTES = 4 << 20
"""Of lines that nobody takes; more are dropped."""

FLUSH_S = 2.0
"""So long may whoever reads the log take, when the process ends, for what it has not read."""

_GATHER_S = 0.01  # lines that come within this time are written at once

_FIELDS = "fields"


def configure(level: str, form: LogFormat) -> None:
    """Send this process's log to stderr."""
    handler = PatientHandler(sys.stderr.fileno())
    handler.setFormatter(JsonFormatter() if form == "json" else PrettyFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for chatty in ("uvicorn", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def with_fields(**fields: Any) -> dict[str, Any]:
    """For ``extra=`` of a logger's methods: what JSON lines have besides the message."""
    return {_FIELDS: fields}


def num_dropped() -> int:
    """Lines of this process's log that were lost, as nobody took them."""
    return sum(handler.num_dropped for handler in logging.getLogger().handlers if isinstance(handler, PatientHandler))


class PatientHandler(logging.Handler):
    """Writes lines to a descriptor that may block for any time, such as a pipe that nobody reads, and blocks nobody.

    Attributes:
        num_dropped: lines that were lost.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.num_dropped = 0
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._num_bytes = 0  # of these
        self._num_untold = 0  # lines lost of which the log says nothing yet
        self._changed = threading.Condition()
        self._is_writing = False
        self._writer = threading.Thread(target=self._write, name="log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if self._num_bytes + len(line) > MAX_WAITING_BYTES:
                self.num_dropped += 1
                self._num_untold += 1
                return
            self._lines.append(line)
            self._num_bytes += len(line)
            if len(self._lines) == 1:
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all lines are written, but not for ever."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._is_writing, FLUSH_S)

    def _write(self) -> None:
        """The writer's thread."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                self._is_writing = True
            time.sleep(_GATHER_S)
            lines, num_untold = self._take()
            rest = memoryview(b"".join(lines) + (self._notice(num_untold) if num_untold else b""))
            try:
                while rest:
                    with contextlib.suppress(BlockingIOError):
                        rest = rest[os.write(self._descriptor, rest) :]
                    if rest:  # the descriptor is set not to block
                        poll.poll()
                self._told(num_untold)
            except OSError:  # it is closed, or its disk is full
                self._lose(len(lines))

    def _take(self) -> tuple[list[bytes], int]:
        """The lines that wait, and how many more were lost of which the log doesn't tell yet."""
        with self._changed:
            lines = [*self._lines]
            self._lines.clear()
            self._num_bytes = 0
            return lines, self._num_untold

    def _notice(self, num_lost: int) -> bytes:
        words = f"{amount(num_lost, 'line of the log was', 'lines of the log were')} lost, as nobody took them"
        return f"{self.format(logging.LogRecord(__name__, logging.WARNING, __file__, 0, words, None, None))}\n".encode()

    def _told(self, num_lost: int) -> None:
        with self._changed:
            self._num_untold -= num_lost

    def _lose(self, num_lines: int) -> None:
        with self._changed:
            self.num_dropped += num_lines
            self._num_untold += num_lines


class PrettyFormatter(logging.Formatter):
    """Time, level and message on one line; of a traceback, each line is indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname} {escaped(record.getMessage())}"
        if not record.exc_info:
            return line
        traceback = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"    {escaped(inner)}" for inner in traceback)])


class JsonFormatter(logging.Formatter):
    """An object a line: ``time`` (UTC, RFC 3339), ``level``, ``logger``, ``message``, ``traceback`` if there
    is one, and the line's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def escaped(text: str) -> str:
    """Text on one line, without anything that a terminal obeys."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
