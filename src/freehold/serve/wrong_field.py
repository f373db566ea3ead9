"""What is wrong with a field of a body, in the API's words: its name, its value cut short, and what may stand there."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from freehold.errors import RequestError, printable
from freehold.serve.field_types import PATTERNS

MAX_SHOWN = 40
"""Characters of a client's value that an error repeats."""

_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_WORDS_OF_PATTERNS = {f"Expected `str` matching regex {pattern!r}": words for pattern, words in PATTERNS.items()}

_STEP = re.compile(r"\[(?P<index>[0-9]+)\]|\[(?P<any>\.\.\.)\]|\.?(?P<name>[^.\[]+)")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")

_ONE = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
}
_MANY = {
    "integer": "integers",
    "number": "numbers",
    "string": "strings",
    "boolean": "booleans",
    "object": "objects",
    "array": "lists",
}
_IS = {**_ONE, "boolean": "a boolean", "fraction": "a number with a fraction or an exponent", "null": "no value"}
_GOT = {
    "str": "string",
    "int": "integer",
    "float": "fraction",
    "bool": "boolean",
    "null": "null",
    "array": "array",
    "object": "object",
}
"""Kinds of JSON values, by msgspec's words for them."""

_Json = dict[str, Any]
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])


def wrong_field(text: str, body: bytes, wanted: Any) -> RequestError:
    """The error for a body that can't be decoded, with the field in `param`, as in ``messages[0].content``.

    Args:
        text: what msgspec says.
        wanted: the type that the body should have had.
    """
    match = _MESSAGE.fullmatch(text)
    what, path = (match["what"], match["path"] or "") if match else (text, "")
    if inner := _UNKNOWN.fullmatch(what):
        param = _below(path, inner["name"])
        return RequestError(f"{param} is an unknown field; remove it", param=param, code="unknown_field")
    if inner := _MISSING.fullmatch(what):
        param = _below(path, inner["name"])
        # It can't be left out, whatever its type says.
        allowed = _Allowed(wanted, param).words() or "a value"
        return RequestError(f"{param} is missing; give {allowed}", param=param, code="missing_field")
    return _wrong_value(what, path, body, wanted)


def _wrong_value(what: str, path: str, body: bytes, wanted: Any) -> RequestError:
    subject, param = path or "the body", path or None
    kind = _kind_in(what)
    raw = next(_values_at(body, list(_STEP.finditer(path)), kind), None)
    value = "it" if raw is None else _shown(raw)
    if words := _WORDS_OF_PATTERNS.get(what):
        return RequestError(f"{subject}: {words}; {value} isn't one", param=param, code="invalid_value")
    allowed = _Allowed(wanted, path)
    advice = allowed.advice(raw, with_bounds=kind is None)
    if " out of range" in what:
        problem = "is out of range"
    elif kind is None:
        problem = "is not allowed here"
    else:
        problem = f"is {_IS[kind]}"
    if kind is None and allowed.choices == ['"text"'] and path.endswith(".type") and ".content[" in path:
        advice += "; the content may have text parts only"
    return RequestError(f"{subject}: {value} {problem}; {advice}", param=param, code="invalid_type")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _kind_in(what: str) -> str | None:
    """The kind of the value that came; None if it is not the kind that is wrong, or not said."""
    _, _, got = what.rpartition(", got ")
    return _GOT.get(got.strip("`"))


def _kind_of(raw: bytes) -> str:
    first = raw[:1]
    if first in b'"{[tfn':
        return {b'"': "string", b"{": "object", b"[": "array", b"n": "null"}.get(first, "boolean")
    return "fraction" if any(mark in raw for mark in b".eE") else "integer"


def _values_at(raw: bytes, steps: list[re.Match[str]], kind: str | None) -> Iterator[bytes]:
    """The value at a path as the client wrote it; where the path says ``[...]``, all of this kind."""
    if not steps:
        found = raw.strip()
        if kind is None or _kind_of(found) == kind:
            yield found
        return
    step, *rest = steps
    try:
        if step["index"]:
            inner: Iterable[msgspec.Raw] = _array.decode(raw)[int(step["index"]) :][:1]
        else:
            fields = _object.decode(raw)
            inner = fields.values() if step["any"] else [fields[step["name"]]] if step["name"] in fields else []
    except msgspec.MsgspecError:
        return  # what follows is no JSON, or the path leads through something else
    for value in inner:
        yield from _values_at(bytes(value), rest, kind)


def _shown(raw: bytes) -> str:
    text = printable(" ".join(raw[: 4 * MAX_SHOWN + 4].decode("utf-8", "ignore").split()))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


class _Allowed:
    """What may stand at a path, as the JSON schema of the body's type tells it.

    Attributes:
        choices: the only values, as JSON; empty if they aren't listed.
    """

    def __init__(self, wanted: Any, path: str) -> None:
        root, components = _schema(wanted)
        self._components = components
        schemas, self._may_be_absent = self._expanded([root]), False
        for step in _STEP.finditer(path):
            schemas = self._expanded(self._inner(schemas, step))
        enums = [value for schema in schemas for value in schema.get("enum", ()) if value is not None]
        self.choices = list(dict.fromkeys(msgspec.json.encode(value).decode() for value in enums))
        self._may_be_absent |= any(schema.get("type") == "null" for schema in schemas)
        self._kinds = [schema for schema in schemas if schema.get("type", "null") != "null" and "enum" not in schema]

    def words(self, *, with_bounds: bool = False) -> str:
        """What may stand there, such as ``an integer``; empty if nothing or anything may."""
        listed = [self.choices[0]] if len(self.choices) == 1 else []
        if len(self.choices) > 1:
            listed = [f"one of {', '.join(self.choices)}"]
        listed += (self._told(schema, with_bounds) for schema in self._kinds)
        return " or ".join(dict.fromkeys(listed))

    def advice(self, raw: bytes | None, *, with_bounds: bool) -> str:
        """What to do about a wrong value."""
        words = self.words(with_bounds=with_bounds)
        if raw is not None and (meant := self._meant(raw)):
            words = words.replace(_ONE["integer"], f"{_ONE['integer']} ({meant})")
            words = words.replace(_ONE["number"], f"{_ONE['number']} ({meant})")
        give = f"give {words}" if words else ""
        leave = "leave it out" if self._may_be_absent else ""
        return ", or ".join(filter(None, (give, leave))) or "give another value"

    def _meant(self, raw: bytes) -> str:
        """The number that a string is; empty if it is none."""
        kinds = {schema["type"] for schema in self._kinds}
        pattern = _NUMBER if "number" in kinds else _INTEGER if "integer" in kinds else None
        text = raw[1:-1].decode(errors="replace") if raw[:1] == b'"' else ""
        return text if pattern is not None and pattern.fullmatch(text) else ""

    def _told(self, schema: _Json, with_bounds: bool) -> str:
        kind: str = schema["type"]
        if kind == "array" and (items := self._expanded([schema.get("items", {})])):
            many = dict.fromkeys(_MANY[item["type"]] for item in items if item.get("type") in _MANY)
            return f"a list of {' or '.join(many)}" if many else _ONE[kind]
        low, high = (schema.get(name) for name in ("minimum", "maximum"))
        if with_bounds and low is not None and high is not None:
            return f"{_ONE[kind]} from {low} to {high}"
        if with_bounds and kind == "string" and "maxLength" in schema:
            return f"a string of {schema.get('minLength', 0)} to {schema['maxLength']} characters"
        return _ONE[kind]

    def _expanded(self, schemas: Iterable[_Json]) -> list[_Json]:
        """Schemas with references followed, and alternatives side by side."""
        found: list[_Json] = []
        for schema in schemas:
            if "$ref" in schema:
                found += self._expanded([self._components[schema["$ref"]]])
            elif "anyOf" in schema:
                found += self._expanded(schema["anyOf"])
            else:
                found.append(schema)
        return found

    def _inner(self, schemas: Iterable[_Json], step: re.Match[str]) -> Iterator[_Json]:
        """What may stand one step further inside."""
        self._may_be_absent = False
        for schema in schemas:
            name = step["name"]
            if name is None:
                inner = schema.get("additionalProperties" if step["any"] else "items")
                if isinstance(inner, dict):
                    yield inner
            elif name in schema.get("properties", {}):
                self._may_be_absent |= name not in schema.get("required", ())
                yield schema["properties"][name]


@lru_cache(maxsize=64)
def _schema(wanted: Any) -> tuple[_Json, dict[str, _Json]]:
    (root,), components = msgspec.json.schema_components([wanted], ref_template="{name}")
    return root, components
