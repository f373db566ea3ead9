"""Objects whose members stand between tags instead of in JSON, as some models write arguments: the rules of a grammar.

Members come in the schema's order. Those that it doesn't list come only if it says what they are, or lists none. That
is narrower than the schema, never wider.
"""

from collections.abc import Callable
from typing import Any

from freehold.grammar.constraint import MAX_NAME, Tagging
from freehold.grammar.json_types import member_types, types_of
from freehold.grammar.lark_text import literal, pieces, quoted, written
from freehold.grammar.plain_text import PlainText
from freehold.grammar.recursion import Schema, target
from freehold.grammar.schema import enforceable
from freehold.grammar.schema_values import SchemaError

MAX_UNLISTED = 64
"""Members of one object that its schema doesn't list."""

_NAME = rf"/[^<> \t\r\n]([^<>\n]{{0,{MAX_NAME - 2}}}[^<> \t\r\n])?/"
_OF_MEMBERS = frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"})
_OF_ALL = frozenset({"allOf", "anyOf", "oneOf", "enum", "const", "patternProperties"})

WriteJson = Callable[[dict[str, Any]], str]
"""Writes an enforceable schema as a part of a rule."""


def tagged_rules(name: str, schema: Any, tagging: Tagging, write_json: WriteJson) -> list[str]:
    """The rules of a schema's objects.

    Args:
        name: of the first of them. The others' begin with it.

    Raises:
        SchemaError: names a keyword that can't be enforced, or not where members are written so.
    """
    return _Rules(name, schema, tagging, write_json).run()


class _Rules:
    """The rules of one schema in the making.

    Attributes:
        _given: the schema as it came; the reader of answers tells from it which types a text may stand for.
        _members: what the schema says of its members, in keywords that can be enforced.
    """

    def __init__(self, name: str, schema: Any, tagging: Tagging, write_json: WriteJson) -> None:
        self._name = name
        self._tagging = tagging
        self._write_json = write_json
        self._given = schema if isinstance(schema, dict) else {}
        enforced = enforceable(schema)
        self._definitions: dict[str, Schema] = {} if isinstance(enforced, bool) else enforced.get("refs", {})
        self._members = self._said_of_members(enforced)
        self._texts = PlainText(self._definitions, tagging.after_value)
        self._lines: list[str] = []

    def run(self) -> list[str]:
        listed: dict[str, Schema] = self._members.get("properties", {})
        others: Schema = self._members.get("additionalProperties", True)
        required = dict.fromkeys(self._members.get("required", ()))
        schemas = {**listed, **{key: others for key in required if key not in listed}}
        is_open = others is not False and ("additionalProperties" in self._members or not listed)
        self._check_counts(len(schemas), len(required), is_open=is_open)
        parts = [f"({self._literal(self._tagging.gap)})?"]
        for number, (key, schema) in enumerate(schemas.items()):
            member = self._member(f"{self._name}_{number}", key, schema)
            if member is None and key in required:
                raise SchemaError(f".properties.{key}", "required has a property that no value satisfies")
            if member is not None:
                parts.append(member if key in required else f"({member})?")
        if is_open:
            parts.append(self._unlisted(others, list(schemas)))
        return [f"{self._name}: {' '.join(parts)}", *self._lines]

    def _said_of_members(self, schema: Schema) -> dict[str, Any]:
        while isinstance(schema, dict) and "$ref" in schema and schema.keys() <= {"$ref", "type", "refs"}:
            schema = self._definitions[target(schema["$ref"])]
        if isinstance(schema, bool):
            return {"additionalProperties": schema}
        for keyword in sorted(schema.keys() & (_OF_ALL | {"$ref"})):
            raise SchemaError(f".{keyword}", f"{keyword} can't be enforced on arguments as this model writes them")
        return {keyword: value for keyword, value in schema.items() if keyword in _OF_MEMBERS}

    def _check_counts(self, num_listed: int, num_required: int, *, is_open: bool) -> None:
        least, most = self._members.get("minProperties", 0), self._members.get("maxProperties")
        is_most_kept = most is None or (num_listed <= most and not is_open)
        for keyword, is_kept in (("minProperties", least <= num_required), ("maxProperties", is_most_kept)):
            if not is_kept:
                raise SchemaError(f".{keyword}", f"{keyword} can't be enforced on arguments as this model writes them")

    def _member(self, name: str, key: str, schema: Schema) -> str | None:
        """A member as a part of a rule; None if it can have no value."""
        if not 0 < len(key) <= MAX_NAME or key != key.strip() or set(key) & set("<>\n"):
            raise SchemaError(
                f".properties.{key}", f"the name {key!r:.100} can't be written as this model writes names"
            )
        tagging = self._tagging
        value = self._value(name, schema, member_types(self._given, key), f".properties.{key}")
        return None if value is None else f"{self._literal(tagging.before_name + key + tagging.after_name)} {value}"

    def _unlisted(self, schema: Schema, listed: list[str]) -> str:
        """Members with other names than these, as a part of a rule."""
        types = types_of(self._given.get("additionalProperties", True), self._given)
        value = self._value(f"{self._name}_other", schema, types, ".additionalProperties")
        if value is None:
            return ""
        name = _NAME + (f" & ~({' | '.join(map(quoted, listed))})" if listed else "")
        head = self._terminal(f"{self._name}_name", name, self._tagging.before_name, self._tagging.after_name)
        return f"({head} {value}){{0,{MAX_UNLISTED}}}"

    def _value(self, name: str, schema: Schema, types: frozenset[str], place: str) -> str | None:
        """What follows a member's name, as a part of a rule; None if nothing may."""
        tagging = self._tagging
        gap = f"({self._literal(tagging.gap)})?"
        closing = tagging.pad + tagging.after_value
        options: list[str] = []
        rest = types
        if "string" in types:
            text, rest = self._texts.terminal(schema, types, place)
            options.append(self._terminal(f"{name}_text", text, "", closing))
        if rest:
            only = schema if rest == types else {"allOf": [schema, {"type": sorted(rest)}]}
            bare: dict[str, Any] = ({} if only else {"enum": []}) if isinstance(only, bool) else only
            self._lines.append(f"{name}: {self._write_json({**bare, 'refs': self._definitions})}")
            options.append(f"{name} {self._literal(closing)}")
        if not options:
            return None
        opening = f"{gap} {self._literal(tagging.before_value)}" if tagging.before_value else ""
        return f"{opening} {self._literal(tagging.pad)} ({' | '.join(options)}) {gap}"

    def _terminal(self, name: str, terminal: str, before: str, after: str) -> str:
        """A terminal with texts around it, as a part of a rule. What of these is no control token is in the terminal
        too: a grammar's input is read in parts, each as long as it can be, so one that any text may be has no end of
        its own."""
        controls = self._tagging.controls
        head, tail = pieces(before, controls), pieces(after, controls)
        first = quoted(str(head.pop())) if head and isinstance(head[-1], str) else ""
        last = quoted(str(tail.pop(0))) if tail and isinstance(tail[0], str) else ""
        self._lines.append(f"{name.upper()}: {first} ({terminal}) {last}")
        return " ".join([*map(written, head), name.upper(), *map(written, tail)])

    def _literal(self, text: str) -> str:
        return literal(text, self._tagging.controls)
