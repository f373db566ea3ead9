"""JSON Schemas that can be enforced: every keyword is, or the schema is refused by that keyword's name.

llguidance ignores keywords that it doesn't know and some that it does, by their place or draft. So a schema is written
anew, in the few keywords that are known to be enforced, and only that is compiled.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from freehold.grammar.ecma_regex import PatternError, to_rust
from freehold.grammar.formats import FORMATS
from freehold.grammar.recursion import Schema, finite_names, has_cycle, is_finite
from freehold.grammar.schema_values import SchemaError, check_value, checked_number, last_of, shown

ANNOTATIONS = frozenset(
    {"$comment", "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"}
    | {"discriminator", "externalDocs", "xml"}
)
"""Keywords that say nothing about what is valid. Those that begin with ``x-`` are others."""

_CONTAINERS = frozenset({"$defs", "definitions"})
_OLD_DRAFTS = frozenset(f"http://json-schema.org/draft-0{number}/schema" for number in (4, 6, 7))
_DRAFTS = _OLD_DRAFTS | {
    "http://json-schema.org/schema",
    "https://json-schema.org/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
}
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "nullable": (False,),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
}
"""Keywords that aren't enforced, with the values that ask for nothing."""

MAX_COUNT = 1_000_000
"""Of items or properties."""
MAX_LENGTH = 1 << 14
"""Of a string whose length is bounded: following it takes memory for each of its characters."""

MAX_OPTIONAL = 256
"""Properties of one object that may be left out: each is one more way to go on."""

_IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const")
"""Keywords that come last: llguidance reads the others together only if none of these is between them."""


def enforceable(schema: Any) -> Schema:
    """The same schema in keywords that are enforced. It refers to ``#/refs/NAME`` in itself.

    Raises:
        SchemaError: names the keyword.
    """
    return _Rewriting(schema).run()


class _Rewriting:
    """One schema on its way.

    Attributes:
        _edges: by definition, those that it refers to from its own place: not from inside an object or array.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._is_old = False
        self._root_id = ""
        self._names: dict[str, str] = {}
        self._definitions: dict[str, Schema] = {}
        self._waiting: list[tuple[str, str]] = []
        self._edges: dict[str, set[str]] = {}

    def run(self) -> Schema:
        if isinstance(self._root, dict):
            self._read_head(self._root)
        rewritten = self._schema(self._root, "", "")
        while self._waiting:
            name, reference = self._waiting.pop()
            found, place = self._resolve(reference)
            self._definitions[name] = self._schema(found, place, name)
        if has_cycle(self._edges):
            raise SchemaError(".$ref", "$ref leads back to itself without anything between, which describes nothing")
        if not is_finite(rewritten, finite_names(self._definitions)):
            raise SchemaError(".$ref", "$ref makes the schema contain itself for ever: nothing satisfies it")
        return {**rewritten, "refs": self._definitions} if isinstance(rewritten, dict) and self._names else rewritten

    def _read_head(self, root: dict[str, Any]) -> None:
        draft = root.get("$schema", "https://json-schema.org/schema")
        if not isinstance(draft, str) or draft.rstrip("#") not in _DRAFTS:
            raise SchemaError(".$schema", f"$schema is {draft!r:.200}; JSON Schema's drafts 4 to 2020-12 are known")
        self._is_old = draft.rstrip("#") in _OLD_DRAFTS
        identity = root.get("$id", root.get("id", ""))
        if isinstance(identity, str):
            self._root_id = identity.rstrip("#")

    def _schema(self, schema: Any, place: str, owner: str | None) -> Schema:
        """A schema at a place.

        Args:
            owner: the definition that it is a part of, at the same place in the text; None inside an object or array.
        """
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise SchemaError(
                place, f"{last_of(place) or 'the schema'} is {shown(schema)}; a schema is an object, true or false"
            )
        written: dict[str, Any] = {}
        for keyword, value in schema.items():
            where = f"{place}.{keyword}"
            rule = _RULES.get(keyword)
            if rule is not None:
                written[keyword] = rule(self, value, where, owner)
            elif not _says_nothing(keyword, value, is_root=schema is self._root):
                known = keyword in _UNSUPPORTED or keyword in _NEUTRAL
                reason = "can't be enforced" if known else "is no keyword that is known"
                raise SchemaError(where, f"{keyword} {reason}; remove it, or say the same otherwise")
        _settle_bounds(written, place)
        _settle_items(written, place, is_old=self._is_old)
        _settle_counts(written, place)
        if "$ref" in written and self._is_old and len(written) > 1:
            raise SchemaError(
                f"{place}.$ref", "$ref stands beside other keywords, which this draft ignores; put it into allOf"
            )
        if "format" in written:
            written["allOf"] = [*written.get("allOf", ()), written.pop("format")]
        return {key: written[key] for key in sorted(written, key=_IN_PLACE.__contains__)}

    def _list(self, value: Any, place: str, owner: str | None) -> list[Schema]:
        if not isinstance(value, list) or not value:
            raise SchemaError(place, f"{last_of(place)} is {shown(value)}; a list of schemas is needed")
        return [self._schema(part, f"{place}[{index}]", owner) for index, part in enumerate(value)]

    def _inside(self, value: Any, place: str, _owner: str | None) -> Schema:
        return self._schema(value, place, None)

    def _list_inside(self, value: Any, place: str, _owner: str | None) -> list[Schema]:
        return self._list(value, place, None)

    def _items(self, value: Any, place: str, _owner: str | None) -> Schema | list[Schema]:
        return (
            [self._schema(part, f"{place}[{index}]", None) for index, part in enumerate(value)]
            if isinstance(value, list)
            else self._schema(value, place, None)
        )

    def _properties(self, value: Any, place: str, _owner: str | None) -> dict[str, Schema]:
        if not isinstance(value, dict):
            raise SchemaError(place, f"{last_of(place)} is {shown(value)}; an object of schemas is needed")
        return {name: self._schema(part, f"{place}.{name}", None) for name, part in value.items()}

    def _patterns(self, value: Any, place: str, owner: str | None) -> dict[str, Schema]:
        written = {
            _pattern(self, name, place, owner): part for name, part in self._properties(value, place, owner).items()
        }
        if len(written) < len(value):
            raise SchemaError(place, "patternProperties has two patterns that mean the same; join them")
        return written

    def _ref(self, value: Any, place: str, owner: str | None) -> str:
        if not isinstance(value, str):
            raise SchemaError(place, f"$ref is {shown(value)}; a string is needed")
        try:
            self._resolve(value)
        except SchemaError as error:
            raise SchemaError(place, str(error)) from None
        if value not in self._names:
            self._names[value] = str(len(self._names))
            self._waiting.append((self._names[value], value))
        if owner is not None:
            self._edges.setdefault(owner or "root", set()).add(self._names[value])
        return f"#/refs/{self._names[value]}"

    def _resolve(self, reference: str) -> tuple[Any, str]:
        """What a JSON pointer in a reference leads to, and where that is."""
        fragment = reference.removeprefix(self._root_id) if self._root_id else reference
        if fragment not in ("", "#") and not fragment.startswith("#/"):
            raise SchemaError("", f"$ref is {shown(reference)}; only '#' and '#/…' within the schema are supported")
        found, place = self._root, ""
        for part in unquote(fragment).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if place and isinstance(found, dict) and isinstance(found.get("$id"), str):
                raise SchemaError("", f"$ref is {shown(reference)}, which leads through an $id; that isn't supported")
            if isinstance(found, dict) and key in found:
                found, place = found[key], f"{place}.{key}"
            elif isinstance(found, list) and key.isascii() and key.isdecimal() and int(key) < len(found):
                found, place = found[int(key)], f"{place}[{key}]"
            else:
                raise SchemaError("", f"$ref is {shown(reference)}, which leads nowhere: there is no {shown(key)}")
        return found, place or ".$ref"


Rule = Callable[[_Rewriting, Any, str, str | None], Any]


def _type(_: _Rewriting, value: Any, place: str, _owner: str | None) -> str | list[str]:
    kinds = value if isinstance(value, list) else [value]
    if (
        not kinds
        or any(kind not in _TYPES for kind in kinds if isinstance(kind, str))
        or not all(isinstance(kind, str) for kind in kinds)
    ):
        raise SchemaError(place, f"type is {shown(value)}; it may be {', '.join(_TYPES)}, or a list of these")
    return kinds[0] if len(kinds) == 1 else list(dict.fromkeys(kinds))


def _number(_: _Rewriting, value: Any, place: str, _owner: str | None) -> int | float:
    return checked_number(value, place)


def _exclusive(_: _Rewriting, value: Any, place: str, _owner: str | None) -> int | float | bool:
    return value if isinstance(value, bool) else checked_number(value, place)


def _factor(_: _Rewriting, value: Any, place: str, _owner: str | None) -> int | float:
    factor = checked_number(value, place)
    if factor <= 0:
        raise SchemaError(place, f"multipleOf is {shown(value)}; a number above 0 is needed")
    return factor


def _count(_: _Rewriting, value: Any, place: str, _owner: str | None) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SchemaError(place, f"{last_of(place)} is {shown(value)}; an integer from 0 is needed")
    most = MAX_LENGTH if place.endswith("Length") else MAX_COUNT
    if value > most:
        raise SchemaError(place, f"{last_of(place)} is {shown(value)}; up to {most} is supported")
    return value


def _pattern(_: _Rewriting, value: Any, place: str, _owner: str | None) -> str:
    if not isinstance(value, str):
        raise SchemaError(place, f"{last_of(place)} is {shown(value)}; a string is needed")
    try:
        return to_rust(value)
    except PatternError as error:
        raise SchemaError(place, f"{last_of(place)} {shown(value)} {error}") from None


def _format(_: _Rewriting, value: Any, place: str, _owner: str | None) -> dict[str, Any]:
    if not isinstance(value, str) or value not in FORMATS:
        raise SchemaError(place, f"format is {shown(value)}; {', '.join(sorted(FORMATS))} are supported")
    return FORMATS[value]


def _names(_: _Rewriting, value: Any, place: str, _owner: str | None) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise SchemaError(place, f"{last_of(place)} is {shown(value)}; a list of strings is needed")
    return value


def _const(_: _Rewriting, value: Any, place: str, _owner: str | None) -> Any:
    check_value(value, place)
    return value


def _enum(_: _Rewriting, value: Any, place: str, _owner: str | None) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise SchemaError(place, f"enum is {shown(value)}; a list of values is needed")
    check_value(value, place)
    return value


_RULES: Mapping[str, Rule] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _exclusive,
    "exclusiveMaximum": _exclusive,
    "multipleOf": _factor,
    "minLength": _count,
    "maxLength": _count,
    "pattern": _pattern,
    "format": _format,
    "properties": _Rewriting._properties,
    "patternProperties": _Rewriting._patterns,
    "additionalProperties": _Rewriting._inside,
    "required": _names,
    "minProperties": _count,
    "maxProperties": _count,
    "prefixItems": _Rewriting._list_inside,
    "items": _Rewriting._items,
    "additionalItems": _Rewriting._inside,
    "minItems": _count,
    "maxItems": _count,
    "allOf": _Rewriting._list,
    "anyOf": _Rewriting._list,
    "oneOf": _Rewriting._list,
    "$ref": _Rewriting._ref,
}
"""What each keyword becomes."""

_UNSUPPORTED = frozenset(
    {"not", "if", "then", "else", "contains", "minContains", "maxContains", "propertyNames", "dependencies"}
    | {"dependentRequired", "dependentSchemas", "contentEncoding", "contentMediaType", "contentSchema"}
    | {"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "$anchor", "$id", "id"}
    | {"$schema"}
)


def _says_nothing(keyword: str, value: Any, *, is_root: bool) -> bool:
    if keyword in ANNOTATIONS or keyword in _CONTAINERS or keyword.startswith("x-"):
        return True
    if keyword in {"$schema", "$id", "id"}:
        return is_root
    return any(value is neutral or value == neutral != 0 for neutral in _NEUTRAL.get(keyword, ()))


def _settle_bounds(written: dict[str, Any], place: str) -> None:
    """Draft 4's ``exclusiveMinimum: true`` as a number."""
    for keyword, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(is_exclusive := written.get(keyword), bool):
            del written[keyword]
            if is_exclusive and bound not in written:
                raise SchemaError(f"{place}.{keyword}", f"{keyword} is true without {bound}; send a number")
            if is_exclusive:
                written[keyword] = written.pop(bound)


def _settle_items(written: dict[str, Any], place: str, *, is_old: bool) -> None:
    """Older drafts' lists of ``items`` as ``prefixItems``."""
    if "prefixItems" in written and (is_old or isinstance(written.get("items"), list)):
        raise SchemaError(f"{place}.prefixItems", "prefixItems is no keyword of this draft, or stands beside old ones")
    if isinstance(written.get("items"), list):
        first = written.pop("items")
        if first:
            written["prefixItems"] = first
        if "additionalItems" in written:
            written["items"] = written.pop("additionalItems")
    if "additionalItems" in written:
        raise SchemaError(f"{place}.additionalItems", "additionalItems does nothing without a list of items; remove it")


def _settle_counts(written: dict[str, Any], place: str) -> None:
    """Names that the schema doesn't list may come twice, and count once: more than one of them can't be asked for."""
    num_optional = len(written.get("properties", {}).keys() - set(written.get("required", ())))
    if num_optional > MAX_OPTIONAL:
        raise SchemaError(
            f"{place}.properties",
            f"properties has {num_optional} that aren't required; up to {MAX_OPTIONAL} are supported",
        )
    least = written.get("minProperties", 0)
    if least > len(set(written.get("required", ()))) + 1:
        raise SchemaError(
            f"{place}.minProperties",
            f"minProperties is {least}; no more than one above the number of required properties can be enforced",
        )
