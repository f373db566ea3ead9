"""How calls are written: the text that a model must write if it has to call a tool, as a grammar."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from freehold.grammar.constraint import Lark, SchemaRule
from freehold.serve.chat.markup import Tags
from freehold.text.literals import LiteralFinder

MAX_FORCED_CALLS = 16
"""Calls of an answer that must call. A model that isn't sure when to stop goes on calling."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Texts around names and arguments. A call is ``before`` name ``between`` arguments ``after``; several have
    ``separator`` between them; around all of them are ``opening`` and ``closing``."""

    before: str
    between: str
    after: str = ""
    separator: str = ""
    opening: str = ""
    closing: str = ""

    def text(self, calls: Sequence[tuple[str, str]]) -> str:
        """Calls with these names and arguments, as a model writes them."""
        written = [self.before + name + self.between + arguments + self.after for name, arguments in calls]
        return self.opening + self.separator.join(written) + self.closing


@dataclass(frozen=True, slots=True)
class Callable:
    """A function that may be called.

    Attributes:
        schema: of its arguments.
        param: the request's field with the schema, for errors.
    """

    name: str
    schema: Mapping[str, Any]
    param: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What an answer must be: calls, or JSON, or either.

    Attributes:
        functions: that may be called.
        several: more than one call may come.
        answer: the schema that an answer without calls has; None: there must be calls.
        thoughts: the tags around what may come before; None: nothing may.
        is_open: the prompt has opened these thoughts; else the answer may.
    """

    functions: Sequence[Callable] = ()
    several: bool = False
    answer: SchemaRule | None = None
    thoughts: Tags | None = None
    is_open: bool = False


def grammar_of(wish: Wish, writing: Writing, controls: Mapping[str, int]) -> Lark:
    """The grammar of what an answer must be.

    Args:
        controls: control tokens by literal. A literal that is one is a token, which no text spells.
    """
    rules = [] if wish.answer is None else [wish.answer]
    kinds = [rule.name for rule in rules]
    before, lines = _thoughts(wish, controls)
    if wish.functions:
        kinds.append("calls")
        lines += _calls(wish, writing, controls)
        rules += [SchemaRule(f"arguments_{n}", dict(each.schema), each.param) for n, each in enumerate(wish.functions)]
    start = f"start: {before} ({' | '.join(kinds)})"
    return Lark("\n".join([start, *lines]), rules, is_trusted=True)


def _calls(wish: Wish, writing: Writing, controls: Mapping[str, int]) -> list[str]:
    """Rules of calls, with arguments left open."""
    more = f" more{{0,{MAX_FORCED_CALLS - 1}}}" if wish.several else ""
    lines = [
        f"calls: {_lark(writing.opening, controls)} call{more} {_lark(writing.closing, controls)}",
        f"call: {' | '.join(f'call_{n}' for n in range(len(wish.functions)))}",
    ]
    if wish.several:
        lines.append(f"more: {_lark(writing.separator, controls)} call")
    for n, function in enumerate(wish.functions):
        head = _lark(writing.before + function.name + writing.between, controls)
        lines.append(f"call_{n}: {head} arguments_{n} {_lark(writing.after, controls)}")
    return lines


def _thoughts(wish: Wish, controls: Mapping[str, int]) -> tuple[str, list[str]]:
    """What stands in the place of reasoning, and the rules that it needs."""
    if wish.thoughts is None:
        return "", []
    begin, end = _lark(wish.thoughts.begin, controls), _lark(wish.thoughts.end, controls)
    if wish.thoughts.end in controls:
        lines = [f"thoughts: ANYTHING {end}", "ANYTHING: /(?s:.*)/"]
    else:
        lines = [f"thoughts[suffix={end}]: /(?s:.*)/"]
    lines.append(r"SPACE: /[ \n]{0,4}/")
    return ("thoughts SPACE" if wish.is_open else f"({begin} thoughts SPACE)?"), lines


def _lark(text: str, controls: Mapping[str, int]) -> str:
    """A text as a part of a rule: control tokens by their ids."""
    pieces: list[str] = []
    done = 0
    for match in LiteralFinder(controls).finditer(text):
        pieces += [json.dumps(text[done : match.start()]), f"<[{controls[match[0]]}]>"]
        done = match.end()
    pieces.append(json.dumps(text[done:]))
    return " ".join(piece for piece in pieces if piece != '""')
