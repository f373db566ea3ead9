"""Values within schemas, and what is wrong with them."""

import math
from collections.abc import Iterator
from typing import Any

MAX_EXACT = 2**53


class SchemaError(ValueError):
    """A schema is malformed, or asks for what can't be enforced.

    Attributes:
        place: of the keyword, from the schema's root, as in ``.properties.a.not``.
    """

    def __init__(self, place: str, message: str) -> None:
        super().__init__(message)
        self.place = place


def checked_number(value: Any, place: str) -> int | float:
    """A number that a schema holds.

    Raises:
        SchemaError: it is none, or not exact in every reader of JSON.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SchemaError(place, f"{last_of(place)} is {shown(value)}; a number is needed")
    if abs(value) > MAX_EXACT:
        raise SchemaError(place, f"{last_of(place)} is {shown(value)}; numbers up to 2**53 are supported")
    return value


def check_value(value: Any, place: str) -> None:
    """Refuse a value that can't be written, or not exactly."""
    for part in _parts(value):
        if isinstance(part, str):
            if any((character < " " and character not in "\n\r\t\b\f") or character == "\x7f" for character in part):
                raise SchemaError(place, f"{last_of(place)} holds a control character, in {shown(part)}")
        elif not isinstance(part, bool) and part is not None:
            checked_number(part, place)


def _parts(value: Any) -> Iterator[Any]:
    """The leaves of a value, names of properties among them."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            stack += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            stack += part
        else:
            yield part


def last_of(place: str) -> str:
    """The keyword that a place ends with."""
    return place.rpartition(".")[2]


def shown(value: Any) -> str:
    """A value, for messages."""
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
