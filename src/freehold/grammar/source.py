"""From a constraint to llguidance's Lark text."""

import json
from typing import Any

from freehold.grammar.constraint import Choice, Constraint, JsonObject, JsonSchema, Lark, Regex

WHITESPACE = r"[\x20\x0A\x0D\x09]{1,8}"
"""Between two parts of a JSON text. Bounded, so that a model can't pad for ever."""

_HEAD = '%llguidance {"no_forcing": true}\n'
"""The model chooses among all spellings of a text by tokens, as it does elsewhere."""


def lark_of(constraint: Constraint) -> str:
    """The Lark text of a constraint, schemas unchecked."""
    match constraint:
        case JsonSchema(schema):
            body = f"start: {_json(schema)}"
        case JsonObject():
            body = f"start: {_json({'type': 'object'})}"
        case Regex(pattern):
            body = f"start: TEXT\nTEXT: {_regex(pattern)}"
        case Choice(options):
            body = f"start: {' | '.join(map(json.dumps, options))}"
        case Lark(text, rules):
            body = "\n".join([text, *(f"{rule.name}: {_json(rule.schema)}" for rule in rules)])
    return _HEAD + body + "\n"


def _json(schema: Any) -> str:
    """A schema as a part of a rule."""
    options = {"whitespace_pattern": WHITESPACE}
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    return "%json " + json.dumps({**schema, "x-guidance": options})


def _regex(pattern: str) -> str:
    """A pattern between slashes."""
    return "/" + pattern.replace("/", r"\/") + "/"
