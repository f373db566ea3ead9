"""Schemas that refer to themselves: which of them describe anything."""

from collections.abc import Mapping
from typing import Any

Schema = bool | dict[str, Any]


def finite_names(definitions: Mapping[str, Schema]) -> set[str]:
    """The definitions that some JSON text of finite length may satisfy, as far as references decide that.

    Arguments:
        definitions: by name; ``{"$ref": "#/refs/NAME"}`` refers to one.
    """
    finite: set[str] = set()
    while True:
        found = {name for name, schema in definitions.items() if name not in finite and is_finite(schema, finite)}
        if not found:
            return finite
        finite |= found


def is_finite(schema: Schema, finite: set[str]) -> bool:
    """Whether a schema may be satisfied by a finite text, given the definitions that may."""
    if isinstance(schema, bool):
        return True
    if "$ref" in schema and target(schema["$ref"]) not in finite:
        return False
    alternatives = [schema[keyword] for keyword in ("anyOf", "oneOf") if keyword in schema]
    return all(is_finite(part, finite) for part in (*schema.get("allOf", ()), *_needed(schema))) and all(
        any(is_finite(part, finite) for part in parts) for parts in alternatives
    )


def _needed(schema: dict[str, Any]) -> list[Schema]:
    """The schemas of parts that every text has."""
    if schema.get("type") == "object":
        return [schema.get("properties", {}).get(name, True) for name in schema.get("required", ())]
    if schema.get("type") == "array":
        num_needed = schema.get("minItems", 0)
        first = list(schema.get("prefixItems", ()))[:num_needed]
        return [*first, schema.get("items", True)] if num_needed > len(first) else first
    return []


def target(reference: str) -> str:
    """The name that a reference ends with."""
    return reference.rpartition("/")[2]


def has_cycle(edges: Mapping[str, set[str]]) -> bool:
    """Whether somebody is reached from himself."""
    done: set[str] = set()
    for start in edges:
        stack, path = [(start, iter(edges.get(start, ())))], {start}
        while stack and start not in done:
            name, following = stack[-1]
            step = next(following, None)
            if step is None:
                stack.pop()
                path.discard(name)
                done.add(name)
            elif step in path:
                return True
            elif step not in done:
                stack.append((step, iter(edges.get(step, ()))))
                path.add(step)
    return False
