"""JSON Schemas drawn at random."""

from random import Random
from typing import Any

FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "json-pointer"]
PATTERNS = ["^[a-z]{2,5}$", r"^\d{3}-\d{4}$", "^(x|yy|zzz)+$", r"^\w[^\d\s]{0,3}\.$", "^é{1,3}🦜?$"]


class Schemas:
    """Draws schemas of every kind that is enforced."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._pick = self._random.choice

    def draw(self, depth: int = 3) -> dict[str, Any]:
        kinds = [self._string, self._number, self._enum, self._simple]
        if depth:
            kinds += 2 * [self._object, self._array, self._combination]
        return self._pick(kinds)(depth - 1)

    def _simple(self, _depth: int) -> dict[str, Any]:
        return {"type": self._pick(["null", "boolean", ["boolean", "null"]])}

    def _string(self, _depth: int) -> dict[str, Any]:
        low = self._random.randrange(4)
        return self._pick(
            [
                {"type": "string", "minLength": low, "maxLength": low + self._random.randrange(12)},
                {"type": "string", "pattern": self._pick(PATTERNS)},
                {"type": "string", "format": self._pick(FORMATS)},
            ]
        )

    def _number(self, _depth: int) -> dict[str, Any]:
        low = self._random.randrange(-500, 500)
        bounds = {
            self._pick(["minimum", "exclusiveMinimum"]): low,
            self._pick(["maximum", "exclusiveMaximum"]): low + 99,
        }
        kind = self._pick(["integer", "number"])
        return {"type": kind, **bounds, **({"multipleOf": self._pick([2, 7])} if kind == "integer" else {})}

    def _enum(self, _depth: int) -> dict[str, Any]:
        values: list[Any] = ["a", 'quo"te\n', "日本", 3, -1.5, None, True, [1, "x"], {"k": [None]}]
        return self._pick([{"const": self._pick(values)}, {"enum": self._random.sample(values, 4)}])

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._random.sample(["a", "b c", "ключ", "d\\e", 'f"', "g"], self._random.randrange(1, 5))
        return {
            "type": "object",
            "properties": {name: self.draw(depth) for name in names},
            "required": [name for name in names if self._random.random() < 0.6],
            "additionalProperties": self._pick([False, False, {"type": "integer", "minimum": 0, "maximum": 9}]),
        }

    def _array(self, depth: int) -> dict[str, Any]:
        low = self._random.randrange(3)
        array = {
            "type": "array",
            "items": self.draw(depth),
            "minItems": low,
            "maxItems": low + self._random.randrange(3),
        }
        return {**array, "prefixItems": [self.draw(depth)]} if self._random.random() < 0.3 else array

    def arguments(self) -> dict[str, Any]:
        """Of an object as a tool has it, with members of every kind."""
        names = self._random.sample(["a", "b-c", "ключ", "d e", "f.g", "h"], self._random.randrange(1, 6))
        return {
            "type": "object",
            "properties": {name: self._pick([self.draw, self._mixed])(2) for name in names},
            "required": [name for name in names if self._random.random() < 0.7],
            "additionalProperties": self._pick([False, {"type": ["integer", "string"]}]),
        }

    def _mixed(self, _depth: int) -> dict[str, Any]:
        """Strings, or something else."""
        low = self._random.randrange(-50, 50)
        return self._pick(
            [
                {},
                {"type": ["string", "null"]},
                {"type": ["string", "integer"], "maxLength": 9},
                {"type": ["string", "boolean", "number"], "minimum": low, "maximum": low + 20},
                {"anyOf": [{"type": "string", "pattern": self._pick(PATTERNS)}, {"type": "boolean"}]},
                {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}, {"const": False}]},
                {"oneOf": [{"type": "string", "maxLength": 4}, {"type": "string", "minLength": 3}, {"type": "null"}]},
                {"type": ["object", "string"], "properties": {"x": {"type": "null"}}, "additionalProperties": False},
                {"allOf": [{"type": ["string", "integer"]}, {"enum": ["x", "2", 2, None, "null"]}]},
            ]
        )

    def _combination(self, depth: int) -> dict[str, Any]:
        return self._pick(
            [
                {"anyOf": [self.draw(depth), self.draw(depth)]},
                {"oneOf": [{"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 5, "maximum": 99}]},
                {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 40}]},
                {"$defs": {"d/1": self.draw(depth)}, "anyOf": [{"type": "null"}, self.draw(depth)]},
            ]
        )
