"""Files of real texts: ShareGPT's conversations, and prompts one a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from freehold.errors import ConfigError
from freehold.loadtest.workloads.base import Message
from freehold.loadtest.workloads.lines import MAX_LINE_BYTES, Row, json_rows

_CHUNK = 1 << 16
_ASKING, _ANSWERING = {"human", "user"}, {"gpt", "assistant", "chatgpt", "bing", "bard"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One conversation of a file.

    Attributes:
        asked: what the user says, turn by turn, as a text or as messages.
        answered: what was answered to each; None if the file doesn't tell.
        output_len: tokens that each answer is to have, if the file tells.
    """

    asked: tuple[str | tuple[Message, ...], ...]
    answered: tuple[str | None, ...]
    output_len: int | None = None


class TextFile(Protocol):
    """A file of conversations."""

    @property
    def path(self) -> Path:
        """For messages."""
        ...

    def entries(self) -> Iterator[Entry]:
        """The conversations, read as they are asked for.

        Raises:
            ConfigError: the file can't be read, or an entry of it; the message names line and field.
        """
        ...


@dataclass(frozen=True, slots=True)
class PromptFile:
    """vLLM's custom form: JSONL of ``{"prompt": …}`` or ``{"messages": […]}``, with ``output_tokens`` if it likes."""

    path: Path

    def entries(self) -> Iterator[Entry]:
        """As `TextFile.entries`."""
        for row in json_rows(self.path):
            output_len = row.count("output_tokens") if row.get("output_tokens") is not None else None
            messages = row.get("messages")
            if messages is None:
                yield Entry((row.text("prompt"),), (None,), output_len)
                continue
            if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
                row.refuse("messages", 'a list of messages: [{"role": "user", "content": "…"}]')
            yield Entry((tuple(messages),), (None,), output_len)


@dataclass(frozen=True, slots=True)
class ShareGptFile:
    """ShareGPT's form: ``[{"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}]``.

    Conversations that don't begin with a question and its answer are left out, as benchmarks do.
    """

    path: Path

    def entries(self) -> Iterator[Entry]:
        """As `TextFile.entries`."""
        for row in _array_rows(self.path):
            said = row.get("conversations")
            if not isinstance(said, list):
                row.refuse("conversations", 'a list: [{"from": "human", "value": "…"}]')
            asked, answered = _turns(row, said)
            if asked:
                yield Entry(asked, answered)


def _turns(row: Row, said: list[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Questions and their answers, up to where they stop taking turns.

    Raises:
        ConfigError: something that nobody said.
    """
    asked: list[str] = []
    answered: list[str] = []
    for each in said:
        if (
            not isinstance(each, dict)
            or not isinstance(each.get("from"), str)
            or not isinstance(each.get("value"), str)
        ):
            row.refuse("conversations", 'a list whose items have texts as "from" and "value"')
        is_due = _ASKING if len(asked) == len(answered) else _ANSWERING
        if each["from"] == "system" and not asked:
            continue
        if each["from"] not in is_due or not each["value"].strip():
            break
        (asked if is_due is _ASKING else answered).append(each["value"])
    return tuple(asked[: len(answered)]), tuple(answered)


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def _array_rows(path: Path) -> Iterator[Row]:
    """The objects of a JSON array, one after the other, however long it is. JSONL is taken too.

    Raises:
        ConfigError: the file can't be read, or isn't one.
    """
    try:
        with path.open(encoding="utf-8") as file:
            yield from _ArrayReader(path, file).rows()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no UTF-8 text: {error.reason}; convert it") from None
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror or error}") from None


class _ArrayReader:
    """Reads an array's objects through a window that grows only for an object longer than it."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path = path
        self._file = file
        self._text = ""
        self._at = 0
        self._line = 1
        self._decoder = json.JSONDecoder()

    def rows(self) -> Iterator[Row]:
        is_array = self._skip(" \t\r\n\ufeff") == "["
        if is_array:
            self._at += 1
        while (char := self._skip(" \t\r\n,")) not in {"]", ""}:
            if char != "{":
                raise self._error(f"{char!r} stands where an object should begin")
            line = self._line
            yield Row(self._path, line, self._object())
        if is_array and not char:
            raise self._error("the array doesn't end: the file was cut off")

    def _skip(self, chars: str) -> str:
        """Go on to the next character that is none of these; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in chars:
                self._line += self._text[self._at] == "\n"
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _object(self) -> dict[str, Any]:
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > MAX_LINE_BYTES or not self._more():
                    raise self._error(f"no JSON: {error.msg}") from None
            except RecursionError:
                raise self._error("nested too deep") from None
            else:
                self._line += self._text.count("\n", self._at, end)
                self._at = end
                assert isinstance(value, dict)
                return value

    def _more(self) -> bool:
        """Widen the window, twice what is left of it each time; False at the end of the file."""
        self._text = self._text[self._at :]
        self._at = 0
        read = self._file.read(max(_CHUNK, len(self._text)))
        self._text += read
        return bool(read)

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(
            f"{self._path}, line {self._line}: {problem}; the file must be a list of conversations, "
            '[{"conversations": [{"from": "human", "value": "…"}, …]}, …]'
        )
