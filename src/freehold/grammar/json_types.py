"""Which JSON types a schema's values may have: it decides how a text is read where strings stand without quotes."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})

_MAX_DEPTH = 32
"""So far are schemas within schemas followed; beyond, any type may be."""


def types_of(schema: Any, root: Any) -> frozenset[str]:
    """The types that values may have; perhaps more than they can, never fewer. Never raises: what is malformed says
    nothing.

    Args:
        schema: a part of ``root``, to which its references lead.
    """
    return _types(schema, root, 0)


def member_types(schema: Mapping[str, Any], name: str) -> frozenset[str]:
    """The types that a member of an object may have; as `types_of`."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return types_of(properties[name], schema)
    return TYPES if "patternProperties" in schema else types_of(schema.get("additionalProperties", True), schema)


def _types(schema: Any, root: Any, depth: int) -> frozenset[str]:
    if schema is False:
        return frozenset()
    if not isinstance(schema, dict) or depth == _MAX_DEPTH:
        return TYPES
    found = TYPES
    if "type" in schema:
        found &= _named(schema["type"])
    if isinstance(schema.get("enum"), list):
        found &= _union(map(_type_of_value, schema["enum"]))
    if "const" in schema:
        found &= _type_of_value(schema["const"])
    if isinstance(schema.get("$ref"), str):
        found &= _types(_resolved(schema["$ref"], root), root, depth + 1)
    for part in schema.get("allOf") or ():
        found &= _types(part, root, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            found &= _union(_types(part, root, depth + 1) for part in schema[keyword])
    return found


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _named(value: Any) -> frozenset[str]:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) and name in TYPES for name in names):
        return TYPES
    return frozenset(names) | ({"integer"} if "number" in names else set())


def _type_of_value(value: Any) -> frozenset[str]:
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int() | float():
            return frozenset({"integer", "number"})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


def _resolved(reference: str, root: Any) -> Any:
    """What a JSON pointer leads to; true, which says nothing, where it leads nowhere."""
    identity = root.get("$id", root.get("id")) if isinstance(root, dict) else None
    pointer = reference.removeprefix(identity.rstrip("#")) if isinstance(identity, str) else reference
    found = root
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return True
    return found
