"""Reads calls out of an answer."""

from collections.abc import Callable, Mapping
from typing import Any

from freehold.serve.toolcalls.calls import Calls
from freehold.serve.toolcalls.scanner import Scanner
from freehold.serve.toolcalls.source import Scan, Source
from freehold.text.parts import Part

CallParser = Callable[[Scanner], Scan[None]]
"""Parses an answer up to its end."""


class CallReader:
    """A `PartReader` that finds calls in an answer."""

    def __init__(self, parser: CallParser, tools: Mapping[str, Mapping[str, Any]], new_id: Callable[[], str]) -> None:
        """
        Args:
            tools: that may be called: the schemas of their arguments, by name.
        """
        self._calls = Calls(new_id)
        self._source = Source(self._calls.markup)
        self._parsing = parser(Scanner(self._source, self._calls, tools))
        next(self._parsing)

    def push(self, text: str) -> list[Part]:
        """What is certain now."""
        if text:
            self._source.held += text
            next(self._parsing)
        return self._calls.take_parts()

    def finish(self) -> list[Part]:
        """What was held back: the parser reads on to the end."""
        self._source.is_closed = True
        next(self._parsing, None)
        return self._calls.take_parts()
