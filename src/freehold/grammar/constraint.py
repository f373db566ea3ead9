"""What an answer may be held to. Each kind is plain data; `freehold.grammar.compiler` checks and compiles it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A JSON text that a JSON Schema accepts. Every keyword is enforced; one that can't be is refused by name.

    Attributes:
        schema: as decoded from JSON: an object, or true or false.
    """

    schema: Any


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Any JSON object."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A text that a regular expression matches as a whole (Rust's syntax, without look-around)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these texts."""

    options: Sequence[str]


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """A rule for `Lark` text that stands for JSON texts.

    Attributes:
        name: what the text calls it: lower case letters, digits and ``_``.
        param: the request's field that the schema came from, for errors.
    """

    name: str
    schema: Any
    param: str


@dataclass(frozen=True, slots=True)
class Lark:
    """A text of a context-free grammar, in llguidance's variant of Lark.

    Attributes:
        text: its rule ``start`` is the whole text. ``<[42]>`` stands for token 42.
        rules: further rules, which the text may use.
    """

    text: str
    rules: Sequence[SchemaRule] = field(default=())


Constraint = JsonSchema | JsonObject | Regex | Choice | Lark
