"""Breaking the literals of control tokens in what users send, so that a template can pass it on but not turn it into
control tokens.

A marker, one character that occurs in none of the strings involved, is put inside each literal. The template renders as
always; in its output, an unbroken literal is the template's own, and markers are dropped from the text.

Limits, known and accepted: a template that deletes text from the middle of a message (reasoning out of an assistant's
turn) can join two halves which nobody marked; and a template that builds a token around a value (``<|`` + role +
``|>``) builds it from whatever role it gets, so the API accepts known roles only.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from freehold.errors import RequestError
from freehold.text.literals import LiteralFinder

MAX_DEPTH = 64
"""How deep lists and objects in messages may be nested."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

_PRIVATE_USE = range(0xE000, 0xF8FF)


def choose_markers(payload: str, count: int) -> list[str]:
    """Characters that occur in no string of the payload, neither as such nor escaped by a template's JSON filter."""
    escapes_in_payload = "\\u" in payload
    markers = []
    for point in _PRIVATE_USE:
        char = chr(point)
        if char not in payload and not (escapes_in_payload and escaped(char) in payload.lower()):
            markers.append(char)
            if len(markers) == count:
                return markers
    raise RequestError(
        "messages use every private-use character of Unicode, so none is left to mark control tokens with",
        param="messages",
        code="invalid_unicode",
    )


def escaped(marker: str) -> str:
    """The marker as JSON that is ASCII alone spells it."""
    return json.dumps(marker)[1:-1]


def drop(text: str, marker: str) -> str:
    """The text without the markers."""
    return text.replace(marker, "").replace(escaped(marker), "")


class LiteralBreaker:
    """Puts a marker into literals.

    A literal may also be assembled by the template from several strings (parts of a message, a name and arguments), so
    a string that *ends* with the beginning of a literal is marked too. Literals that begin with a letter or digit are
    only marked whole: words end with letters all the time, and templates compare words.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        self._literals = LiteralFinder(literal for literal in literals if literal)
        self._openings = {
            literal[:size]
            for literal in self._literals.literals
            if not literal[0].isalnum()
            for size in range(1, len(literal))
        }
        self._opening_chars = frozenset(opening[-1] for opening in self._openings)
        self._longest = max(map(len, self._openings), default=0)

    def needs_breaking(self, text: str) -> bool:
        """Whether `break_text` would change the text."""
        return self._literals.search(text) is not None or self._ends_with_opening(text)

    def break_text(self, text: str, marker: str) -> str:
        """The text with a marker after the first character of each literal, and at the end if one may begin there."""
        pieces: list[str] = []
        done = 0
        # One literal may begin inside another, so the search goes on behind the first character.
        while (match := self._literals.search(text, done)) is not None:
            pieces += (text[done : match.start() + 1], marker)
            done = match.start() + 1
        pieces.append(text[done:])
        if self._ends_with_opening(text):
            pieces.append(marker)
        return "".join(pieces)

    def _ends_with_opening(self, text: str) -> bool:
        if not text or text[-1] not in self._opening_chars:
            return False
        return any(text[-size:] in self._openings for size in range(1, self._longest + 1))


def map_strings(value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
    """A copy of JSON-like data with each string, keys included, changed.

    Raises:
        RequestError: nested deeper than `MAX_DEPTH`.
    """
    if isinstance(value, str):
        return change(value)
    if depth > MAX_DEPTH:
        raise RequestError(f"messages are nested more than {MAX_DEPTH} deep", param="messages", code="too_deep")
    if isinstance(value, dict):
        return {map_strings(key, change, depth): map_strings(item, change, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_strings(item, change, depth + 1) for item in value]
    return value
