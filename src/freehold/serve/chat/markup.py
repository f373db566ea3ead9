"""Markup in text that comes bit by bit."""

from dataclasses import dataclass

SPACE = " \t\r\n"
"""White space as JSON has it. Beside markup it belongs to the markup."""


@dataclass(frozen=True, slots=True)
class Tags:
    """What stands before and after reasoning."""

    begin: str
    end: str


def beginning_at_end(text: str, tag: str) -> int:
    """Length of the longest end of a text that a tag begins with and doesn't end with."""
    longest = min(len(tag) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(tag[:size])), 0)
