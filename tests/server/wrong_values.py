"""Bodies that a schema forbids: at each place of a good body, each of many values that may not stand there."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

Json = Any

POOL: list[Json] = [
    None, True, False,
    0, 1, -1, 2, 5, 17, 21, 101, -101, 2**31, -(2**31) - 1, 2**53, 2**63, 2**64, 10**30, -(10**30), 10**400,
    0.5, 1.5, -0.5, 1.0, -1e-9, 1e30, -1e30, 1e300,
    "", " ", "x", "0", "1", "-1", "1.5", "true", "null", "None", "NaN", "Infinity", "auto", "x" * 257, "é" * 129,
    "\x00", "\n", "🦜", "../../etc/passwd", "{}", "[]", "a b", "X-Y", "constructor", "__proto__", "%s%n", "<|im_end|>",
    [], [None], [True], [0], [-1], [1.5], ["x"], [""], [[]], [{}], [[1]], [["x"]], [1, "x"], ["a"] * 5, [1, [1]],
    ["x" * 257], [2**31], [2**63], [10**30], [1] * 300, ["x"] * 300, [{}] * 3, [[[[[[1]]]]]],
    {}, {"x": 1}, {"": 1}, {"x": None}, {"1": 1}, {"1": 101}, {"1": "5"}, {"-1": 1}, {"1.0": 1}, {"type": "x"},
    {"type": None}, {"type": "text"}, {"type": "text", "text": 1}, {"type": "text", "text": "x", "x": 1}, {"x": {}},
    {"x": [{}]}, {"$ref": "#"}, {"role": "user"}, {"name": "x"}, {str(i): 1 for i in range(1100)},
]  # fmt: skip
"""What clients send by mistake or on purpose, wherever a value is expected."""


class Surface:
    """The JSON body of one operation."""

    def __init__(self, document: Json, schema: Json, needed: dict[str, Json]) -> None:
        """
        Args:
            needed: fields that good bodies have besides those that the schema requires.
        """
        self._schema = schema
        self._components = document["components"]["schemas"]
        self._needed = needed
        whole = {**schema, "components": document["components"]}
        self._validator = jsonschema_rs.Draft202012Validator(whole)

    @property
    def fields(self) -> list[str]:
        """Names of the body's fields, those that do nothing included."""
        return list(self._resolved(self._schema)["properties"])

    @property
    def required(self) -> list[str]:
        return list(self._resolved(self._schema).get("required", ()))

    def allows(self, body: Json) -> bool:
        """Whether the schema has nothing against a body."""
        return bool(self._validator.is_valid(body))

    def takes_anything(self, field: str) -> bool:
        """Whether the schema says nothing of a field's value."""
        return not self._resolved(self._schema)["properties"][field].keys() - {"description"}

    def good(self) -> dict[str, Json]:
        """A body that is as short as the schema allows."""
        return {**self._example(self._schema), **self._needed}

    def wrong(self, field: str) -> Iterator[Json]:
        """Bodies with something at or below a field that the schema forbids."""
        for value in self._values(self._resolved(self._schema)["properties"][field]):
            body = {**self.good(), field: value}
            if not self.allows(body):
                yield body

    def _resolved(self, schema: Json) -> Json:
        while "$ref" in schema:
            schema = self._components[schema["$ref"].rpartition("/")[2]]
        return schema

    def _alternatives(self, schema: Json) -> list[Json]:
        schema = self._resolved(schema)
        if "anyOf" not in schema:
            return [schema]
        return [one for inner in schema["anyOf"] for one in self._alternatives(inner)]

    def _values(self, schema: Json) -> Iterator[Json]:
        """Values for a place: the pool, just beyond each bound, and what is wrong further inside."""
        yield from POOL
        for one in self._alternatives(schema):
            yield from self._beyond(one)
            if one.get("type") == "array" and "items" in one:
                yield from ([value] for value in self._values(one["items"]))
            if one.get("type") == "object":
                yield from self._objects(one)

    def _objects(self, schema: Json) -> Iterator[Json]:
        good = self._example(schema)
        for name in schema.get("required", ()):
            yield {key: value for key, value in good.items() if key != name}
        yield {**good, "wild": 1}
        for name, inner in schema.get("properties", {}).items():
            yield from ({**good, name: value} for value in self._values(inner))
        if isinstance(schema.get("additionalProperties"), dict):
            yield from ({"1": value} for value in self._values(schema["additionalProperties"]))

    def _beyond(self, schema: Json) -> Iterator[Json]:
        if "minimum" in schema:
            yield schema["minimum"] - 1
        if "maximum" in schema:
            yield schema["maximum"] + 1
            yield schema["maximum"] * 1.001 + 0.001
        for word in schema.get("enum", ()):
            if isinstance(word, str):
                yield from (word.upper(), word + " ", word[:-1])
        if "maxLength" in schema:
            yield "x" * (schema["maxLength"] + 1)
        if "maxItems" in schema:
            yield [self._example(schema.get("items", {}))] * (schema["maxItems"] + 1)

    def _example(self, schema: Json) -> Json:
        schema = self._alternatives(schema)[0]
        if "enum" in schema or "const" in schema:
            return schema.get("enum", [schema.get("const")])[0]
        kind = schema.get("type", "string")
        if kind == "object":
            properties = schema.get("properties", {})
            return {name: self._example(properties[name]) for name in schema.get("required", ())}
        if kind == "array":
            return [self._example(schema.get("items", {}))] * max(1, schema.get("minItems", 0))
        if kind == "string":
            return "x" * max(1, schema.get("minLength", 1))
        simple = {"boolean": True, "null": None}
        return simple.get(kind, max(1, schema.get("minimum", 1)))
