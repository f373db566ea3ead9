"""From a constraint to a text for llguidance, in its variant of Lark's syntax: matchers are made of that."""

import json
import re
from collections.abc import Iterator
from typing import Any

import llguidance

from freehold.grammar.constraint import (
    ANY_OBJECT,
    Choice,
    Constraint,
    Envelope,
    JsonObject,
    JsonSchema,
    Lark,
    Regex,
    SchemaRule,
)
from freehold.grammar.messages import Source
from freehold.grammar.schema import enforceable
from freehold.grammar.schema_values import SchemaError
from freehold.grammar.tagged import tagged_rules

MAX_SOURCE_BYTES = 1 << 20

_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,8}"
"""Between two parts of a JSON text. Bounded, so that a model can't pad for ever."""

_ESCAPES = 'nrbtf\\"'
"""Without ``\\u``, every text is spelled in one way, and a property's name can't come again in disguise."""

_OPTIONS = {"whitespace_pattern": _WHITESPACE, "json_allowed_escapes": _ESCAPES}

_SPAN = re.compile(
    r"""(?P<comment>//[^\n]*|\#[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<regex>/(?:[^/\\\n]|\\.)+/)"""
    r"""|(?P<json>%json\b\s*)|(?P<option>%llguidance\b|\b(?:temperature|max_tokens)\s*=)""",
    re.VERBOSE,
)
_RULE_NAME = re.compile(r"[a-z_][a-z0-9_]*")


class ConstraintError(ValueError):
    """A constraint is malformed, too large, or asks for what can't be enforced. Attributes as in `Verdict`."""

    def __init__(self, message: str, *, param: str = "", place: str = "", code: str = "invalid_grammar") -> None:
        super().__init__(message)
        self.param = param
        self.place = place
        self.code = code


def source_of(constraint: Constraint) -> Source:
    """The source of a constraint.

    Raises:
        ConstraintError: see there.
    """
    match constraint:
        case JsonSchema(schema):
            source = Source(f"start: {_json(schema)}")
        case JsonObject():
            source = Source(f"start: {_json(ANY_OBJECT)}")
        case Regex(pattern):
            source = Source(f"start: TEXT\nTEXT: /{llguidance.regex_to_lark(pattern, '')}/")
        case Choice(options):
            source = Source(f"start: TEXT\nTEXT: {_alternatives(options)}")
        case Lark(text, rules, is_trusted, head):
            written = [_with_schemas(text), *map(_rule, rules)]
            source = Source("\n".join(written), not is_trusted, head and f"start: TEXT\nTEXT: /{head}(?s:.*)/")
    num_bytes = len(source.text.encode("utf-8", "surrogatepass"))
    if num_bytes > MAX_SOURCE_BYTES:
        raise ConstraintError(
            f"compiles to {num_bytes} bytes; up to {MAX_SOURCE_BYTES} are supported", code="grammar_too_large"
        )
    return source


def _json(schema: Any, param: str = "", envelope: Envelope | None = None) -> str:
    """A schema as a part of a rule."""
    try:
        written = enforceable(schema)
    except SchemaError as error:
        raise ConstraintError(str(error), param=param, place=error.place, code="unsupported_schema") from None
    if isinstance(written, bool):
        written = {} if written else {"enum": []}
    if envelope is not None:
        written = _enveloped(dict(written), envelope)
    return _json_part(dict(written))


def _json_part(schema: dict[str, Any]) -> str:
    """An enforceable schema as a part of a rule."""
    return "%json " + json.dumps({**schema, "x-guidance": _OPTIONS}, ensure_ascii=False)


def _enveloped(written: dict[str, Any], envelope: Envelope) -> dict[str, Any]:
    """The schema of an object in which an enforceable schema's value stands. What that refers to stays at the root."""
    definitions = {"refs": written.pop("refs")} if "refs" in written else {}
    constants = {name: {"const": value} for name, value in {**envelope.may_precede, **envelope.constants}.items()}
    return {
        "type": "object",
        "properties": {**constants, envelope.key: written},
        "required": [*envelope.constants, envelope.key],
        "additionalProperties": False,
        **definitions,
    }


def _rule(rule: SchemaRule) -> str:
    if not _RULE_NAME.fullmatch(rule.name):
        message = f"has the rule {rule.name!r:.100}; lower case letters, digits and _ are needed"
        raise ConstraintError(message, param=rule.param)
    try:
        return _lines(rule, rule.schema)
    except ConstraintError:
        if not rule.is_lenient:
            raise
        return _lines(rule, ANY_OBJECT)


def _lines(rule: SchemaRule, schema: Any) -> str:
    """A rule with this schema in place of its own, and the rules that it needs."""
    if rule.tagging is None:
        return f"{rule.name}: {_json(schema, rule.param, rule.envelope)}"
    try:
        return "\n".join(tagged_rules(rule.name, schema, rule.tagging, _json_part))
    except SchemaError as error:
        raise ConstraintError(str(error), param=rule.param, place=error.place, code="unsupported_schema") from None


def _alternatives(options: Any) -> str:
    if not options:
        raise ConstraintError("is empty; at least one text is needed")
    return " | ".join(json.dumps(option, ensure_ascii=False) for option in options)


def _with_schemas(text: str) -> str:
    """A Lark text whose schemas are written in what is enforced."""
    return "".join(_pieces(text))


def _pieces(text: str) -> Iterator[str]:
    decoder = json.JSONDecoder()
    at = 0
    while found := _SPAN.search(text, at):
        yield text[at : found.start()]
        at = found.end()
        if found["option"]:
            line = text.count("\n", 0, found.start()) + 1
            raise ConstraintError(f"has {found['option']} in line {line}, which isn't supported")
        if not found["json"]:
            yield found[0]
            continue
        try:
            schema, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise ConstraintError(f"has a %json that no JSON follows: {error}") from None
        yield _json(schema)
    yield text[at:]
