"""Lines of the log: for people, or a JSON object each. What strangers wrote can't break out of its line.

Logs hold no prompts, no answers and no keys: whoever writes to them sees to that.
"""

import json
import logging
import sys
import time
from typing import Any, Literal

LogFormat = Literal["pretty", "json"]

_FIELDS = "fields"


def configure(level: str, form: LogFormat) -> None:
    """Send this process's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else PrettyFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for chatty in ("uvicorn", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def with_fields(**fields: Any) -> dict[str, Any]:
    """For ``extra=`` of a logger's methods: what JSON lines have besides the message."""
    return {_FIELDS: fields}


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
