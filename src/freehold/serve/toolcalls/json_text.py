"""JSON in text that comes bit by bit: checked as it comes, and consumed as it is written."""

import re

import msgspec

from freehold.serve.toolcalls.source import MalformedError, Scan, Source

MAX_DEPTH = 64
"""How deep objects and lists may be nested."""

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_BEGIN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_NUMBER_CHARS = re.compile(r"[-+.0-9eE]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = {"t": "true", "f": "false", "n": "null"}


def skip_value(source: Source, depth: int = 0) -> Scan[None]:
    """Consume one value.

    Raises:
        MalformedError: no JSON.
        EndedError: the text ended within it.
    """
    first = yield from source.peek()
    if first == "{":
        yield from _skip_items(source, "}", depth)
    elif first == "[":
        yield from _skip_items(source, "]", depth)
    elif first == '"':
        yield from _skip_string(source)
    elif first in _WORDS:
        yield from source.expect(_WORDS[first])
    else:
        yield from _skip_number(source)


def read_string(source: Source, *, is_plain: bool = False) -> Scan[str]:
    """Consume a string; gives what it stands for.

    Args:
        is_plain: nothing in it may be escaped.

    Raises:
        MalformedError: no such string.
        EndedError: the text ended within it.
    """
    with source.copied() as pieces:
        yield from _skip_string(source)
    if is_plain and "\\" in "".join(pieces):
        raise MalformedError
    try:
        return msgspec.json.decode("".join(pieces), type=str)
    except msgspec.DecodeError:  # half a surrogate pair
        raise MalformedError from None


def _skip_items(source: Source, closing: str, depth: int) -> Scan[None]:
    """Consume an object or a list."""
    if depth >= MAX_DEPTH:
        raise MalformedError
    source.take(1)
    yield from source.skip_space()
    if (yield from source.accept(closing)):
        return
    while True:
        if closing == "}":
            yield from _skip_string(source)
            yield from source.skip_space()
            yield from source.expect(":")
            yield from source.skip_space()
        yield from skip_value(source, depth + 1)
        yield from source.skip_space()
        if (yield from source.accept(closing)):
            return
        yield from source.expect(",")
        yield from source.skip_space()


def _skip_string(source: Source) -> Scan[None]:
    yield from source.expect('"')
    while (first := (yield from source.peek())) != '"':
        pattern = _ESCAPE if first == "\\" else _PLAIN
        while (match := pattern.match(source.held)) is None:
            if not _ESCAPE_BEGIN.fullmatch(source.held):
                raise MalformedError
            yield from source.more()
        source.take(match.end())
    source.take(1)


def _skip_number(source: Source) -> Scan[None]:
    """A number is known to be whole when something else follows."""
    while (match := _NUMBER_CHARS.match(source.held)) and match.end() == len(source.held):
        yield from source.more()
    if match is None or not _NUMBER.fullmatch(match[0]):
        raise MalformedError
    source.take(match.end())
