"""What an answer may be held to. Each kind is plain data; `freehold.grammar.compiler` checks and compiles it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class JsonSchema(msgspec.Struct, frozen=True, tag=True):
    """A JSON text that a JSON Schema accepts. Every keyword is enforced; one that can't be is refused by name.

    Attributes:
        schema: as decoded from JSON: an object, or true or false.
    """

    schema: Any


class JsonObject(msgspec.Struct, frozen=True, tag=True):
    """Any JSON object."""


class Regex(msgspec.Struct, frozen=True, tag=True):
    """A text that a regular expression matches as a whole: Rust's syntax, without look-around."""

    pattern: str


class Choice(msgspec.Struct, frozen=True, tag=True):
    """One of these texts."""

    options: Sequence[str]


class Envelope(msgspec.Struct, frozen=True):
    """A JSON object around a value.

    Attributes:
        constants: what it holds before the value.
        key: of the value.
    """

    constants: Mapping[str, str]
    key: str


class SchemaRule(msgspec.Struct, frozen=True):
    """A rule that stands for JSON texts.

    Attributes:
        name: what a grammar's text calls it: lower case letters, digits and ``_``.
        param: the request's field that the schema came from, for errors; empty: the constraint's own.
        envelope: the texts are objects in which the schema's values stand; None: they are those values.
    """

    name: str
    schema: Any
    param: str = ""
    envelope: Envelope | None = None


class Lark(msgspec.Struct, frozen=True, tag=True):
    """A text of a context-free grammar, in llguidance's variant of Lark's syntax.

    Attributes:
        text: its rule ``start`` is the whole answer. ``<[42]>`` stands for token 42.
        rules: further rules, which the text may use.
        is_trusted: the text is Freehold's own: it may be larger than a stranger's, whose grammar may be ambiguous and
            so take long to follow.
    """

    text: str
    rules: Sequence[SchemaRule] = ()
    is_trusted: bool = False


Constraint = JsonSchema | JsonObject | Regex | Choice | Lark
