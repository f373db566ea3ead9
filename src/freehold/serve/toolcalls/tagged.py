"""Arguments between tags: strings as they are, other values as JSON. They come out as one JSON object.

What a value is depends on the types that the tool's schema allows there: where strings are allowed too, a text that is
JSON of another allowed type is that, and any other is a string. `freehold.grammar.plain_text` writes by the same rule.
"""

import re

import msgspec

from freehold.grammar.constraint import MAX_NAME, Tagging
from freehold.grammar.json_types import TYPES, member_types
from freehold.serve.chat.markup import SPACE, beginning_at_end
from freehold.serve.toolcalls.json_text import skip_value
from freehold.serve.toolcalls.scanner import Scanner
from freehold.serve.toolcalls.source import MalformedError, Scan

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][-+]?[0-9]+)?")
_NUMBER_CHARS = re.compile(r"[-+.0-9eE]*")
_WORDS = {"null": "null", "true": "boolean", "false": "boolean"}
_PYTHON = {"None": "null", "True": "true", "False": "false"}
"""What some models write where a value is no string."""


def tagged_arguments(scanner: Scanner, name: str, tagging: Tagging, closing: str) -> Scan[None]:
    """A call's arguments up to what closes it.

    Raises:
        MalformedError: no arguments in such tags.
        EndedError: the text ended within them.
    """
    source, calls = scanner.source, scanner.calls
    num_members = 0
    yield from source.skip_space()
    while (yield from source.choose(closing, tagging.before_name)) != closing:
        key = yield from _key(scanner, tagging)
        if num_members == 0:
            calls.begin(name)
        calls.arguments(f"{', ' if num_members else '{'}{_json(key)}: ")
        calls.close()
        num_members += 1
        yield from _Value(scanner, tagging, _types(scanner, name, key)).read()
        calls.close()
        yield from source.skip_space()
    if num_members == 0:
        calls.begin(name)
    calls.arguments("}" if num_members else "{}")
    calls.end()


def _types(scanner: Scanner, name: str, key: str) -> frozenset[str]:
    schema = scanner.tools.get(name)
    return TYPES if schema is None else member_types(schema, key)


def _key(scanner: Scanner, tagging: Tagging) -> Scan[str]:
    """An argument's name, and the tags up to its value."""
    source = scanner.source
    while (size := source.held.find(tagging.after_name)) < 0:
        if len(source.held) > MAX_NAME + len(tagging.after_name) or "\n" in source.held:
            raise MalformedError
        yield from source.more()
    key = source.held[:size].strip(SPACE)
    if not key or size > MAX_NAME or "\n" in source.held[:size]:
        raise MalformedError
    source.take(size + len(tagging.after_name))
    if tagging.before_value:
        yield from source.skip_space()
        yield from source.expect(tagging.before_value)
    if tagging.pad:
        yield from source.accept(tagging.pad)
    return key


class _Value:
    """One value, from behind the tags before it to behind the one after it.

    Args:
        types: that it may have.
    """

    def __init__(self, scanner: Scanner, tagging: Tagging, types: frozenset[str]) -> None:
        self._source = scanner.source
        self._calls = scanner.calls
        self._pad = tagging.pad
        self._end = tagging.after_value
        self._types = types
        self._may_be_string = "string" in types

    def read(self) -> Scan[None]:
        """Pass it on as JSON, as it comes if it is a string, an object or a list."""
        if self._types == {"string"}:
            yield from self._string()
        elif (yield from self._is_nested()):
            yield from self._source.skip_space()
            with self._source.into(self._calls.arguments):
                yield from skip_value(self._source)
            yield from self._source.skip_space()
            yield from self._source.expect(self._end)
        else:
            yield from self._scalar()

    def _is_nested(self) -> Scan[bool]:
        """Whether an object or a list comes."""
        if not self._may_be_string:
            yield from self._source.skip_space()
        while not (text := self._source.held.lstrip(SPACE)):
            yield from self._source.more()
        kind = {"{": "object", "[": "array"}.get(text[0])
        return kind is not None and (kind in self._types or not self._may_be_string)

    def _scalar(self) -> Scan[None]:
        """A number, null, true or false, or else a string, which passes as soon as it can't be anything else."""
        source = self._source
        while self._end not in source.held:
            if self._may_be_string and not self._may_begin_scalar(source.held[: self._certain()].strip(SPACE)):
                yield from self._string()
                return
            yield from source.more()
        text = source.held[: source.held.index(self._end)].removesuffix(self._pad)
        self._calls.arguments(self._written(text))
        source.take(source.held.index(self._end) + len(self._end))

    def _string(self) -> Scan[None]:
        """A string up to what ends it."""
        source = self._source
        self._calls.arguments('"')
        while self._end not in source.held:
            with source.into(self._pass_on):
                source.take(self._certain())
            yield from source.more()
        with source.into(self._pass_on):
            source.take(len(source.held[: source.held.index(self._end)].removesuffix(self._pad)))
        source.take(source.held.index(self._end) + len(self._end))
        self._calls.arguments('"')

    def _certain(self) -> int:
        """Characters that what ends a string doesn't begin with."""
        held = self._source.held
        return len(held) - max(beginning_at_end(held, tag) for tag in (self._end, self._pad + self._end))

    def _pass_on(self, text: str) -> None:
        self._calls.arguments(_json(text)[1:-1])

    def _may_begin_scalar(self, text: str) -> bool:
        words = [word for word, kind in _WORDS.items() if kind in self._types]
        is_number = "integer" in self._types and _NUMBER_CHARS.fullmatch(text) is not None
        return is_number or any(word.startswith(text) for word in words)

    def _written(self, text: str) -> str:
        """A text that is whole as JSON."""
        bare = text.strip(SPACE)
        if not self._may_be_string:
            bare = _PYTHON.get(bare, bare)
        kind = _kind(bare)
        return _json(text) if kind is None or (self._may_be_string and kind not in self._types) else bare


def _kind(text: str) -> str | None:
    """The type of a scalar in JSON; None if the text is none."""
    number = _NUMBER.fullmatch(text)
    if number is None:
        return _WORDS.get(text)
    return "number" if number["fraction"] or number["exponent"] else "integer"


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
