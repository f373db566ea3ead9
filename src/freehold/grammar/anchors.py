"""Patterns are looked for within a text; terminals match all of it."""

import re

from freehold.grammar.schema_values import SchemaError

_MARK = re.compile(r"\\x\{[0-9A-F]+\}|\\.|\[\^?(?:\\x\{[0-9A-F]+\}|\\.|[^\]\\])*\]|(?P<mark>[()|^$])")
"""What has a meaning outside of escapes and classes."""


def search_pattern(pattern: str, place: str) -> str:
    """A pattern, in Rust's syntax, of all texts in which another is found.

    Args:
        place: of the pattern in its schema, for errors.

    Raises:
        SchemaError: the other has ``^`` or ``$`` elsewhere than around one of its outermost alternatives.
    """
    return "|".join(_option(option, pattern, place) for option in _options(pattern))


def _options(pattern: str) -> list[str]:
    """A pattern's outermost alternatives."""
    depth, begin = 0, 0
    options: list[str] = []
    for found in _MARK.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(found["mark"] or "", 0)
        if found["mark"] == "|" and depth == 0:
            options.append(pattern[begin : found.start()])
            begin = found.end()
    return [*options, pattern[begin:]]


def _option(option: str, pattern: str, place: str) -> str:
    anchors = [found.start() for found in _MARK.finditer(option) if found["mark"] in ("^", "$")]
    is_begin = bool(anchors) and anchors[0] == 0 and option[0] == "^"
    is_end = bool(anchors) and anchors[-1] == len(option) - 1 and option[-1] == "$"
    if len(anchors) > is_begin + is_end:
        raise SchemaError(place, f"pattern has ^ or $ within it, in {pattern!r:.100}; only around it is supported here")
    inner = option[is_begin : len(option) - is_end]
    return f"{'' if is_begin else '(?s:.*)'}(?:{inner}){'' if is_end else '(?s:.*)'}"
