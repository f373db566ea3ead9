"""Values that are written as plain text: strings without quotes, and what isn't a string as JSON.

A text that is JSON of a type that the schema allows stands for that, any other for a string. So it is clear to readers
which is meant, at the price of strings that look like something else.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import llguidance

from freehold.grammar.anchors import search_pattern
from freehold.grammar.lark_text import ANY_TEXT, NO_TEXT, quoted
from freehold.grammar.recursion import Schema, target

_SPACE = r"[ \t\r\n]*"
_INTEGER = "-?(0|[1-9][0-9]*)"
_NUMBER = rf"{_INTEGER}(\.[0-9]+)?([eE][-+]?[0-9]+)?"
_WORDS: Mapping[str, Mapping[str, Any]] = {"null": {"null": None}, "boolean": {"true": True, "false": False}}
_SPELLED = r"/[^\x{0}-\x{7}\x{B}\x{E}-\x{1F}\x{7F}]*/"
"""What strings in JSON may hold too: no control characters."""
_BEGINNINGS = {"array": r"\[", "object": r"\{"}
_OF_NUMBERS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const", "format"}
)


class PlainText:
    """Writes schemas' values as terminals.

    Attributes:
        end: what follows a value in the text. No value may hold it.
    """

    def __init__(self, definitions: Mapping[str, Schema], end: str) -> None:
        """
        Args:
            definitions: what ``#/refs/NAME`` refers to, in keywords that can be enforced.
        """
        self._definitions = definitions
        self._end = end

    def terminal(self, schema: Schema, types: frozenset[str], place: str) -> tuple[str, frozenset[str]]:
        """A terminal of the texts that stand for a schema's values, and the types whose values it leaves out: they are
        to be written as JSON. It matches nothing that may be the beginning of such a value.

        Args:
            types: that the schema's values may have, strings among them.
            place: of the schema, for errors.

        Raises:
            SchemaError: names a keyword that can't be enforced in such texts.
        """
        numbers = types & {"integer", "number"}
        number = (_NUMBER if "number" in numbers else _INTEGER) if numbers else ""
        is_any_number = bool(numbers) and not any(_OF_NUMBERS & part.keys() for part in self._parts(schema))
        left_out = types & {"array", "object"} | (frozenset() if is_any_number else numbers)
        looks = [_BEGINNINGS[kind] + "(?s:.*)" for kind in sorted(types & _BEGINNINGS.keys())]
        words = {word: value for kind in sorted(types & _WORDS.keys()) for word, value in _WORDS[kind].items()}
        looks += [word + _SPACE for word in words]
        if number:
            looks.append(number + _SPACE if is_any_number else "[-0-9](?s:.*)")
        strings = [self._strings(schema, place), _SPELLED, f"~/(?s:.*){_escaped(self._end)}(?s:.*)/"]
        strings += [f"~/{_SPACE}({'|'.join(looks)})/"] if looks else []
        options = [f"({' & '.join(strings)})"]
        options += [quoted(word) for word, value in words.items() if self._accepts(schema, value)]
        options += [f"/{number}/"] if is_any_number else []
        return " | ".join(options), left_out

    def _strings(self, schema: Schema, place: str) -> str:
        """A terminal of a schema's strings."""
        if isinstance(schema, bool):
            return ANY_TEXT if schema else NO_TEXT
        parts: list[str] = []
        for keyword, value in schema.items():
            where = f"{place}.{keyword}"
            match keyword:
                case "type":
                    parts += [] if "string" in ([value] if isinstance(value, str) else value) else [NO_TEXT]
                case "enum" | "const":
                    texts = [each for each in (value if keyword == "enum" else [value]) if isinstance(each, str)]
                    parts.append(" | ".join(map(quoted, texts)) or NO_TEXT)
                case "pattern":
                    parts.append(f"/{llguidance.regex_to_lark(search_pattern(value, where), '')}/")
                case "minLength":
                    parts.append(f"/(?s:.{{{value},}})/")
                case "maxLength":
                    parts.append(f"/(?s:.{{0,{value}}})/")
                case "allOf":
                    parts += [self._strings(part, where) for part in value]
                case "anyOf":
                    parts.append(" | ".join(f"({self._strings(part, where)})" for part in value))
                case "oneOf":
                    parts.append(_one_of([self._strings(part, where) for part in value]))
                case "$ref":
                    parts.append(self._strings(self._definitions[target(value)], where))
        return " & ".join(f"({part})" for part in parts) or ANY_TEXT

    def _accepts(self, schema: Schema, value: bool | None) -> bool:
        """Whether null, true or false is one of a schema's values."""
        if isinstance(schema, bool):
            return schema
        kinds = schema.get("type", "boolean" if isinstance(value, bool) else "null")
        return (
            ("boolean" if isinstance(value, bool) else "null") in ([kinds] if isinstance(kinds, str) else kinds)
            and any(each is value for each in schema.get("enum", (value,)))
            and schema.get("const", value) is value
            and all(self._accepts(part, value) for part in schema.get("allOf", ()))
            and ("anyOf" not in schema or any(self._accepts(part, value) for part in schema["anyOf"]))
            and ("oneOf" not in schema or sum(self._accepts(part, value) for part in schema["oneOf"]) == 1)
            and ("$ref" not in schema or self._accepts(self._definitions[target(schema["$ref"])], value))
        )

    def _parts(self, schema: Schema) -> Iterator[dict[str, Any]]:
        """The schemas that say something of the value itself."""
        if isinstance(schema, bool):
            return
        yield schema
        for keyword in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(keyword, ()):
                yield from self._parts(part)
        if "$ref" in schema:
            yield from self._parts(self._definitions[target(schema["$ref"])])


def _one_of(options: list[str]) -> str:
    """Texts of exactly one of some terminals."""
    alone = []
    for number, option in enumerate(options):
        others = [f" & ~({other})" for place, other in enumerate(options) if place != number]
        alone.append(f"(({option}){''.join(others)})")
    return " | ".join(alone)


def _escaped(text: str) -> str:
    return "".join(each if each.isalnum() else f"\\x{{{ord(each):X}}}" for each in text)
