"""Files of many lines, read as they are needed, with errors that name the line and the field."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from freehold.errors import ConfigError, shown
from freehold.foreign_json import NOT_JSON

MAX_LINE_BYTES = 16 << 20
"""A longer line is no line: memory stays bounded whatever the file is."""


class Row:
    """One line's fields.

    Attributes:
        number: of the line, from 1.
    """

    def __init__(self, path: Path, number: int, fields: Mapping[str, Any]) -> None:
        self._path = path
        self.number = number
        self._fields = fields

    def count(self, name: str, *, least: int = 1) -> int:
        """A whole number.

        Raises:
            ConfigError: it isn't there, or none, or less than `least`.
        """
        value = self._number(name)
        if value != int(value) or value < least:
            self.refuse(name, f"a whole number, at least {least}")
        return int(value)

    def number_of(self, name: str) -> float:
        """A finite number, at least 0.

        Raises:
            ConfigError: it isn't there, or none.
        """
        value = self._number(name)
        if not 0 <= value < float("inf"):
            self.refuse(name, "a number, at least 0")
        return value

    def text(self, name: str) -> str:
        """A text that isn't empty.

        Raises:
            ConfigError: it isn't there, or none.
        """
        value = self._value(name)
        if not isinstance(value, str) or not value:
            self.refuse(name, "a text")
        return value

    def get(self, name: str) -> Any:
        """Whatever a field has; None if it isn't there."""
        return self._fields.get(name)

    def refuse(self, name: str, needed: str) -> NoReturn:
        """
        Args:
            needed: what the field must be: "a text".

        Raises:
            ConfigError: in any case.
        """
        place = f"{self._path}, line {self.number}"
        raise ConfigError(f"{place}: {name} is {shown(self._fields.get(name))}; it must be {needed}")

    def _value(self, name: str) -> Any:
        if name not in self._fields:
            there = ", ".join(str(key) for key in self._fields) or "nothing"
            raise ConfigError(f"{self._path}, line {self.number}: {name} is missing; the line has {shown(there)}")
        return self._fields[name]

    def _number(self, name: str) -> float:
        value = self._value(name)
        try:
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        except (TypeError, ValueError, OverflowError):
            self.refuse(name, "a number")


def json_rows(path: Path) -> Iterator[Row]:
    """The objects of a JSONL file. Empty lines are none.

    Raises:
        ConfigError: the file can't be read, or a line of it.
    """
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            fields = msgspec.json.decode(line)
        except NOT_JSON as error:
            raise ConfigError(f"{path}, line {number} is no JSON: {error}; each line must be an object") from None
        if not isinstance(fields, dict):
            raise ConfigError(f"{path}, line {number} is a {type(fields).__name__}; it must be an object: {{…}}")
        yield Row(path, number, fields)


def csv_rows(path: Path, needed: Iterable[str]) -> Iterator[Row]:
    """The rows of a CSV file whose first line names the columns.

    Raises:
        ConfigError: the file can't be read, lacks a column, or a row has other than as many cells.
    """
    lines = (line.decode("utf-8", errors="replace") for _, line in _lines(path))
    reader = csv.reader(lines, strict=True)
    columns: list[str] | None = None
    try:
        for cells in reader:
            if columns is None:
                columns = [cell.strip().removeprefix("\ufeff") for cell in cells]
                _check_columns(path, columns, needed)
            elif len(cells) != len(columns):
                raise ConfigError(
                    f"{path}, line {reader.line_num} has {len(cells)} cells, but the first line {len(columns)}"
                )
            else:
                yield Row(path, reader.line_num, dict(zip(columns, cells, strict=True)))
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num} is no CSV: {error}") from None


def _check_columns(path: Path, columns: list[str], needed: Iterable[str]) -> None:
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ConfigError(f"{path} has no column {missing[0]!r}; its first line names {shown(', '.join(columns))}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines.

    Raises:
        ConfigError: the file can't be read, or has a line that is too long to be one.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
                if len(line) > MAX_LINE_BYTES:
                    raise ConfigError(f"{path}, line {number} has more than {MAX_LINE_BYTES >> 20} MiB; is it one?")
                yield number, line
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror or error}") from None
