"""Objects whose members stand between tags: which texts stand for them, and which schemas are refused."""

from typing import Any

import pytest
from byte_grammars import Accepts

from freehold.grammar.constraint import Lark, SchemaRule, Tagging
from freehold.grammar.source import ConstraintError, source_of

TAGGING = Tagging("<p=", ">", "", "</p>", pad="\n")
REFS = {
    "$defs": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "name": {"type": "string", "pattern": "^[a-z]+$"},
    }
}


def tagged(schema: Any, *, is_lenient: bool = False) -> Lark:
    return Lark(
        'start: object "."', [SchemaRule("object", schema, "field", None, is_lenient, TAGGING)], is_trusted=True
    )


def text(**members: str) -> str:
    return "".join(f"<p={key}>\n{value}\n</p>\n" for key, value in members.items()) + "."


def object_of(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **REFS}


STRING = {"type": "string"}
ONE_OF = {"oneOf": [{"type": "string", "maxLength": 4}, {"type": "string", "minLength": 3}]}
NUMBER_OR_TEXT = {"type": ["number", "string"], "minimum": 3}
LISTS = {"anyOf": [{"type": "array", "items": {"type": "integer"}}, STRING]}


@pytest.mark.parametrize(
    ("schema", "value", "is_right"),
    [
        (STRING, "any\n text: null, <p=a> é🦜", True),
        (STRING, "", True),
        (STRING, "x</p>", False),
        (STRING, "\x00", False),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "é🦜x", True),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "é🦜xy", False),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "x", False),
        ({"type": "string", "pattern": "a|^b$|^c"}, "xax", True),
        ({"type": "string", "pattern": "a|^b$|^c"}, "b", True),
        ({"type": "string", "pattern": "a|^b$|^c"}, "bb", False),
        ({"type": "string", "pattern": "a|^b$|^c"}, "cx", True),
        ({"type": "string", "pattern": "a|^b$|^c"}, "xc", False),
        ({"type": "string", "format": "date"}, "2024-02-29", True),
        ({"type": "string", "format": "date"}, "2023-02-29", False),
        ({"enum": ["a b", "</p", "\n"]}, "\n", True),
        ({"enum": ["a b", "</p", "\n"]}, "</p", True),
        ({"enum": ["a b", "</p", "\n"]}, "a", False),
        (ONE_OF, "ab", True),
        (ONE_OF, "abc", False),
        (ONE_OF, "abcde", True),
        ({"$ref": "#/$defs/name"}, "abc", True),
        ({"$ref": "#/$defs/name"}, "abC", False),
        ({"$ref": "#/$defs/size"}, "7", True),
        ({"$ref": "#/$defs/size"}, "10", False),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "True", False),
        ({"type": ["string", "null"]}, "null", True),
        ({"type": ["string", "null"], "maxLength": 3}, "null", True),
        ({"type": ["string", "null"], "maxLength": 3}, "nul", True),
        ({"type": ["string", "null"], "maxLength": 3}, "true", False),
        ({"anyOf": [STRING, {"const": False}]}, "false", True),
        ({"anyOf": [STRING, {"const": False}]}, "true", False),
        ({"anyOf": [STRING, {"type": "integer"}]}, "12", True),
        ({"anyOf": [STRING, {"type": "integer"}]}, "12.5", True),
        ({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]}, "12.5", False),
        (NUMBER_OR_TEXT, "3.5", True),
        (NUMBER_OR_TEXT, "2.5", False),
        (NUMBER_OR_TEXT, "x2", True),
        (LISTS, "[1, 2]", True),
        (LISTS, '["1"]', False),
        (LISTS, "list [1]", True),
        (LISTS, " [1", False),
        ({}, '{"a": ["</p>", null]}', True),
        ({}, "whatever", True),
        (True, "{", False),
    ],
)
def test_values(accepts: Accepts, schema: Any, value: str, is_right: bool) -> None:
    assert accepts(tagged(object_of(("a",), a=schema)), text(a=value)) is is_right


def test_members(accepts: Accepts) -> None:
    constraint = tagged(object_of(("b", "d"), a=STRING, b=STRING, c=False))
    for names in ("b d", "a b d"):
        assert accepts(constraint, text_of(names))
    for names in ("b a d", "a b", "b b d", "b c d", "b d e", ""):
        assert not accepts(constraint, text_of(names))
    assert accepts(constraint, "\n" + text_of("b d").replace("</p>\n", "</p>")), "tags need no space between them"
    assert not accepts(constraint, text_of("b d").replace("\nx", "x")), (
        "what is beside a value belongs to it or the tag"
    )


def text_of(names: str) -> str:
    return "".join(f"<p={name}>\nx\n</p>\n" for name in names.split()) + "."


def test_members_that_the_schema_does_not_list(accepts: Accepts) -> None:
    closed = tagged({"type": "object"})
    assert accepts(closed, text(anything='{"a": 1}', other="text"))
    assert accepts(tagged({"type": "object", "additionalProperties": False}), ".")
    assert not accepts(tagged({"type": "object", "additionalProperties": False}), text(a="1"))
    numbers = tagged({"type": "object", "properties": {"a": STRING}, "additionalProperties": {"type": "integer"}})
    assert accepts(numbers, text(a="x", b="1", ab="2"))
    assert not accepts(numbers, text(b="x"))
    assert not accepts(numbers, text(b="1", a="2")), "a listed name is not one of the others"
    assert not accepts(numbers, text(**{" a": "2"}))


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, ".anyOf"),
        ({"type": "object", "patternProperties": {"^a": {}}}, ".patternProperties"),
        ({"type": "object", "properties": {"a": {}}, "minProperties": 1}, ".minProperties"),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1}, ".maxProperties"),
        ({"type": "object", "maxProperties": 3}, ".maxProperties"),
        ({"type": "object", "properties": {"a>": {}}}, ".properties.a>"),
        ({"type": "object", "properties": {"a\n": {}}}, ".properties.a\n"),
        ({"type": "object", "properties": {"": {}}}, ".properties."),
        ({"type": "object", "properties": {"k" * 129: {}}}, ".properties." + "k" * 129),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, ".properties.a"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(^a|b)c"}}}, ".properties.a.pattern"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, ".properties.a.not"),
        ({"type": "object", "properties": {"a": {"items": {"if": True}}}}, ".properties.a.items.if"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(accepts: Accepts, schema: Any, place: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        source_of(tagged(schema))
    assert (caught.value.param, caught.value.place, caught.value.code) == ("field", place, "unsupported_schema")
    assert "can't be" in str(caught.value) or "no value satisfies" in str(caught.value) or "^ or $" in str(caught.value)
    assert accepts(tagged(schema, is_lenient=True), text(anything="[1, 2]", other="text")), (
        "any object, where that will do"
    )
