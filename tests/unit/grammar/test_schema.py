"""Which schemas can be enforced, and what becomes of them."""

import json
from typing import Any

import jsonschema
import pytest
from byte_grammars import AcceptsJson, Fresh
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.errors import GrammarError
from freehold.grammar.constraint import JsonSchema
from freehold.grammar.schema import enforceable
from freehold.grammar.schema_values import SchemaError

OLD = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        *(
            ({keyword: value}, f".{keyword}")
            for keyword, value in {
                "not": {}, "if": {}, "then": {}, "else": {}, "contains": {}, "minContains": 1, "maxContains": 1,
                "propertyNames": {}, "dependencies": {}, "dependentRequired": {}, "dependentSchemas": {},
                "uniqueItems": True, "unevaluatedItems": False, "unevaluatedProperties": False, "nullable": True,
                "contentEncoding": "base64", "contentMediaType": "x", "contentSchema": {}, "$dynamicRef": "#a",
                "$recursiveRef": "#", "$vocabulary": {}, "$anchor": "a", "minItem": 1, "Type": "string", "": 1,
                "type": "text", "enum": [], "const": "\x01", "required": "a", "properties": [], "items": 1,
                "minLength": -1, "maxLength": 1.5, "maxItems": True, "minimum": "1", "multipleOf": 0,
                "pattern": "(?=a)", "additionalItems": {},
                "format": "idn-email", "allOf": [], "anyOf": {}, "oneOf": 1, "$ref": "other.json",
                "exclusiveMinimum": True, "maximum": 2**53 + 2, "minProperties": 3, "$schema": "http://x/y",
                "additionalProperties": "no", "prefixItems": {}, "patternProperties": {"a": {}, "[a]": {}, r"\x61": {}},
            }.items()
        ),
        ({"properties": {"a": {"items": {"not": {}}}}}, ".properties.a.items.not"),
        ({"anyOf": [True, {"prefixItems": [{"if": 1}]}]}, ".anyOf[1].prefixItems[0].if"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}}, ".$defs.a.not"),
        ({"properties": {"a": {"$id": "x"}}}, ".properties.a.$id"),
        ({"properties": {"a": {"$schema": OLD}}}, ".properties.a.$schema"),
        ({"patternProperties": {"(?!a)": {}}}, ".patternProperties"),
        ({"enum": [{"a": [2**60]}]}, ".enum"),
        ({"$schema": OLD, "$ref": "#/definitions/a", "minimum": 1, "definitions": {"a": {}}}, ".$ref"),
        ({"$schema": OLD, "prefixItems": [{}]}, ".prefixItems"),
        ({"$ref": "#/$defs/b"}, ".$ref"),
        ({"$ref": "#/anyOf/2", "anyOf": [{}, {}]}, ".$ref"),
        ({"$defs": {"x": {"$id": "y", "z": {}}}, "$ref": "#/$defs/x/z"}, ".$ref"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused_by_its_place(schema: Any, place: str) -> None:
    with pytest.raises(SchemaError) as caught:
        enforceable(schema)
    assert caught.value.place == place
    assert place.rpartition(".")[2].partition("[")[0] in str(caught.value)


@pytest.mark.parametrize("schema", [None, 1, "x", [], {"items": None}, {"properties": {"a": 3}}])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError):
        enforceable(schema)


def test_annotations_and_neutral_values_are_left_out() -> None:
    schema = {
        "$schema": OLD, "$id": "http://x/y", "$comment": "x", "title": "x", "description": "x", "default": 1,
        "examples": [1], "deprecated": True, "readOnly": True, "x-order": 3, "uniqueItems": False, "nullable": False,
        "unevaluatedProperties": True, "definitions": {"unused": {"not": {}}}, "type": ["string"],
    }  # fmt: skip
    assert enforceable(schema) == {"type": "string"}


def test_what_is_not_reached_does_not_matter() -> None:
    assert enforceable({"$defs": {"a": {"not": {}}}, "type": "null"}) == {"type": "null"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "anyOf": [{}, {"$ref": "#/$defs/a"}]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
        {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}]}}, "required": ["a"]},
    ],
)
def test_endless_recursion_is_refused(schema: Any) -> None:
    """js-06."""
    with pytest.raises(SchemaError, match=r"\$ref"):
        enforceable(schema)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, '{"a":{"a":{}}}'),
        ({"$schema": OLD, "$id": "http://x/y", "type": "array", "items": {"$ref": "#"}}, "[[],[[]]]"),
        ({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]}, "[null,[null]]"),
        ({"$id": "http://x/y", "items": {"$ref": "http://x/y#/$defs/a"}, "$defs": {"a": {"const": 1}}}, "[1]"),
    ],
)
def test_useful_recursion_works(accepts_json: AcceptsJson, schema: Any, text: str) -> None:
    assert accepts_json(schema, text)
    assert not accepts_json(schema, text.replace("null", "2").replace("1", "2").replace("{}", "2").replace("[]", "2"))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        # A name in disguise would escape its schema.
        ({"properties": {"a": {"type": "integer"}}}, r'{"\u0061":"x"}'),
        # Keywords on both sides of one that llguidance treats apart.
        ({"additionalProperties": False, "anyOf": [{}], "patternProperties": {"^a$": {"type": "null"}}}, '{"a":1}'),
        ({"minimum": 3, "allOf": [{}], "exclusiveMinimum": True, "type": "integer", "$schema": OLD}, "3"),
        ({"items": [{"const": 1}], "additionalItems": {"const": 2}, "$schema": OLD}, "[1,3]"),
        ({"type": "string", "format": "date", "pattern": "^2"}, '"1999-01-01"'),
        ({"type": "string", "format": "date", "pattern": "^2"}, '"2023-02-29"'),
        ({"enum": ["a", 1, None, [1], {"b": 2}]}, '{"b":3}'),
        ({"type": "number"}, "01"),
        ({"type": "string"}, '"\t"'),
        ({"type": "string"}, r'"\ud83e"'),
    ],
)
def test_nothing_slips_through(accepts_json: AcceptsJson, schema: Any, text: str) -> None:
    assert not accepts_json(schema, text)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "format": "int32"}, ["2147483647", "-2147483648"], ["2147483648", "-2147483649"]),
        ({"type": "integer", "format": "int64"}, ["9223372036854774784"], ["9223372036854775808", "1" + 19 * "0"]),
        ({"type": "number", "format": "double"}, ["1.5", "-2e3"], ['"1.5"']),
        ({"type": "string", "format": "byte"}, ['""', '"TWE="', '"TQ=="', '"TWFu"'], ['"TWE"', '"T==="', '"T W="']),
        ({"format": "int32"}, ['"text"', "7"], ["2147483648"]),
    ],
)
def test_formats_of_openapi(accepts_json: AcceptsJson, schema: Any, good: list[str], bad: list[str]) -> None:
    assert all(accepts_json(schema, text) for text in good)
    assert not any(accepts_json(schema, text) for text in bad)


@pytest.mark.parametrize("limit", [2000, 4096, 16384])
def test_limits_of_length_are_uniform(accepts_json: AcceptsJson, limit: int) -> None:
    """js-05."""
    for maximum in (limit - 1, limit, limit + 1):
        if maximum > 16384:
            with pytest.raises(SchemaError, match="16384"):
                enforceable({"maxLength": maximum})
            continue
        schema = {"type": "string", "maxLength": maximum, "minLength": maximum}
        assert accepts_json(schema, json.dumps("x" * maximum))
        assert not accepts_json(schema, json.dumps("x" * (maximum + 1)))
        items = {"type": "array", "items": {"const": 1}, "minItems": maximum, "maxItems": maximum}
        assert accepts_json(items, json.dumps([1] * maximum))
        assert not accepts_json(items, json.dumps([1] * (maximum + 1)))


NUMBERS = st.one_of(st.integers(-300, 300), st.integers(-3000, 3000).map(lambda number: number / 100))


@settings(max_examples=300, deadline=None)
@given(
    schema=st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], NUMBERS),
            "multipleOf": st.sampled_from([1, 2, 3, 7, 0.5, 0.01, 2.5]),
        },
    ),
    numbers=st.lists(NUMBERS, min_size=5, max_size=15),
)
def test_numbers_are_judged_as_elsewhere(
    accepts_json: AcceptsJson, fresh: Fresh, schema: dict[str, Any], numbers: list[float]
) -> None:
    bounds = {key: value for key, value in schema.items() if key != "multipleOf"}
    within = jsonschema.Draft202012Validator(bounds).is_valid
    hundredths = round(schema.get("multipleOf", 0.01) * 100)  # exactly, unlike the division of floats

    def is_valid(number: float) -> bool:
        return within(number) and round(number * 100) % hundredths == 0

    try:
        fresh(JsonSchema(schema))
    except GrammarError:
        assert not any(map(is_valid, numbers))
        return
    for number in numbers:
        spelled = json.dumps(int(number) if number == int(number) else number)
        assert accepts_json(schema, spelled) == is_valid(number), spelled
