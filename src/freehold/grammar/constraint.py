"""What an answer may be held to. Each kind is plain data; `freehold.grammar.compiler` checks and compiles it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
"""The schema of any JSON object."""


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
        may_precede: what it may hold before the constants.
    """

    constants: Mapping[str, str]
    key: str
    may_precede: Mapping[str, str] = {}


MAX_NAME = 128
"""Characters of the name of a member that stands between tags."""


class Tagging(msgspec.Struct, frozen=True):
    """How an object is written whose members stand between tags: ``before_name`` name ``after_name`` ``before_value``
    value ``after_value``. Values are plain text (`freehold.grammar.plain_text`); no string holds ``after_value``.

    Attributes:
        pad: stands on both sides of a value, and belongs to the tags.
        gap: may stand between one tag and the next.
        controls: control tokens among the tags, by literal.
    """

    before_name: str
    after_name: str
    before_value: str
    after_value: str
    pad: str = ""
    gap: str = "\n"
    controls: Mapping[str, int] = {}


class SchemaRule(msgspec.Struct, frozen=True):
    """A rule that stands for JSON texts, or for objects whose members stand between tags.

    Attributes:
        name: what a grammar's text calls it: lower case letters, digits and ``_``.
        param: the request's field that the schema came from, for errors; empty: the constraint's own.
        envelope: the texts are objects in which the schema's values stand; None: they are those values.
        is_lenient: a schema that can't be enforced stands for any object, instead of being refused.
        tagging: how members stand between tags; None: the texts are JSON.
    """

    name: str
    schema: Any
    param: str = ""
    envelope: Envelope | None = None
    is_lenient: bool = False
    tagging: Tagging | None = None


class Lark(msgspec.Struct, frozen=True, tag=True):
    """A text of a context-free grammar, in llguidance's variant of Lark's syntax.

    Attributes:
        text: its rule ``start`` is the whole answer. ``<[42]>`` stands for token 42.
        rules: further rules, which the text may use.
        is_trusted: the text is Freehold's own: it may be larger than a stranger's, whose grammar may be ambiguous and
            so take long to follow.
        head: a regular expression of what texts begin with. Only for grammars with a `freehold.protocol.Trigger`, which
            hold once this has come; all that it allows, the grammar must. Empty: they hold from their beginning.
    """

    text: str
    rules: Sequence[SchemaRule] = ()
    is_trusted: bool = False
    head: str = ""


def weakened(lark: Lark, is_kept: Callable[[SchemaRule], bool]) -> Lark:
    """A grammar whose lenient rules stand for any object, but for those that are kept as they are."""
    rules = [
        msgspec.structs.replace(rule, schema=ANY_OBJECT) if rule.is_lenient and not is_kept(rule) else rule
        for rule in lark.rules
    ]
    return msgspec.structs.replace(lark, rules=rules)


Constraint = JsonSchema | JsonObject | Regex | Choice | Lark
