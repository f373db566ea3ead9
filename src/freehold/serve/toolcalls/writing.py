"""How calls are written: the text that a model must write if it has to call a tool, as a grammar."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from freehold.grammar.constraint import Envelope, Lark, SchemaRule
from freehold.serve.chat.markup import Tags
from freehold.text.literals import LiteralFinder

MAX_FORCED_CALLS = 16
"""Calls of an answer that must call. A model that isn't sure when to stop goes on calling."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Texts around names and arguments. A call is ``before`` name ``between`` arguments ``after``; several have
    ``separator`` between them; around all of them are ``opening`` and ``closing``.

    Attributes:
        opener: what any of it begins with, and no other text holds; empty: calls are all of an answer or none of it.
        arguments_key: calls are nothing but JSON objects, with the arguments under this key; empty: there is more to
            them.
    """

    before: str
    between: str
    after: str = ""
    separator: str = ""
    opening: str = ""
    closing: str = ""
    opener: str = ""
    arguments_key: str = ""

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
        is_lenient: if the schema can't be enforced, its arguments may be any object.
    """

    name: str
    schema: Mapping[str, Any]
    param: str
    is_lenient: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What an answer must be: calls, or JSON, or either.

    Attributes:
        functions: that may be called.
        several: more than one call may come.
        answer: the schema that an answer without calls has; None: there must be calls.
        thoughts: the tags around what may come before; None: nothing may.
        is_open: the prompt has opened these thoughts; else the answer may.
        is_free: the answer may be any text, in which calls must be right: they are all that this is about.
    """

    functions: Sequence[Callable] = ()
    several: bool = False
    answer: SchemaRule | None = None
    thoughts: Tags | None = None
    is_open: bool = False
    is_free: bool = False


def grammar_of(wish: Wish, writing: Writing, controls: Mapping[str, int]) -> Lark:
    """The grammar of what an answer must be.

    Args:
        controls: control tokens by literal. A literal that is one is a token, which no text spells.
    """
    rules = [] if wish.answer is None else [wish.answer]
    kinds = [rule.name for rule in rules]
    if wish.is_free:
        return _free(wish, writing, controls)
    before, lines = _thoughts(wish, controls)
    if wish.functions:
        kinds.append("calls")
        lines += _calls(wish, writing, controls)
    rules += _rules(wish, writing)
    start = f"start: {before} ({' | '.join(kinds)})"
    return Lark("\n".join([start, *lines]), rules, is_trusted=True)


def _free(wish: Wish, writing: Writing, controls: Mapping[str, int]) -> Lark:
    """The grammar of calls in free text, from behind what they begin with."""
    # As much of it as a head may have, so that other text isn't held to less; else bounded, as inside of calls.
    start = r"start: SPACE calls" + "\n" + r"SPACE: /[ \t\r\n]" + ("{0,8}/" if writing.opener else "*/")
    if not writing.opener:
        lines = _calls(wish, writing, controls)
        if not writing.opening:  # the head allows a list, whose beginning may also be that of other text
            start = start.replace("calls", "(calls | list)")
            more = f' (", " call){{0,{MAX_FORCED_CALLS - 1}}}' if wish.several else ""
            lines.append(f'list: "[" SPACE call{more} "]"')
        return Lark("\n".join([start, *lines]), _rules(wish, writing), is_trusted=True, head=_head(wish))
    if writing.opening:
        rest = replace(writing, opening=writing.opening.removeprefix(writing.opener))
    else:  # each call has an opener of its own
        rest = replace(writing, before=writing.before.removeprefix(writing.opener).lstrip())
        wish = replace(wish, several=False)
    return Lark("\n".join([start, *_calls(wish, rest, controls)]), _rules(wish, rest), is_trusted=True)


def _head(wish: Wish) -> str:
    """A pattern of what makes a JSON text the beginning of a call, up to the function's name. `Scanner` takes no
    others for calls."""
    space = r"[ \t\r\n]*"
    kind = f'"type"{space}:{space}"function"{space},{space}'
    names = "|".join(re.escape(function.name) for function in wish.functions)
    return rf'{space}(\[{space})?\{{{space}({kind})*"name"{space}:{space}"({names})"'


def _are_objects(wish: Wish, writing: Writing) -> bool:
    """Whether calls are rules for JSON objects, rather than texts around arguments: where something else may come that
    is JSON too. A grammar reads its input in parts and doesn't go back, so both must have the same parts."""
    return bool(writing.arguments_key) and (wish.answer is not None or wish.is_free)


def _rules(wish: Wish, writing: Writing) -> list[SchemaRule]:
    """Of the functions' arguments, or of calls of them."""
    are_objects = _are_objects(wish, writing)
    return [
        SchemaRule(
            f"call_{number}" if are_objects else f"arguments_{number}",
            dict(function.schema),
            function.param,
            Envelope({"name": function.name}, writing.arguments_key, {"type": "function"}) if are_objects else None,
            function.is_lenient,
        )
        for number, function in enumerate(wish.functions)
    ]


def _calls(wish: Wish, writing: Writing, controls: Mapping[str, int]) -> list[str]:
    """Rules of calls, with arguments left open."""
    more = f" more{{0,{MAX_FORCED_CALLS - 1}}}" if wish.several else ""
    alone = " | call" if _are_objects(wish, writing) and writing.opening else ""  # one call needs no list around it
    inner = " SPACE" if wish.is_free and writing.opening else ""
    lines = [
        f"calls: {_lark(writing.opening, controls)}{inner} call{more} {_lark(writing.closing, controls)}{alone}",
        f"call: {' | '.join(f'call_{n}' for n in range(len(wish.functions)))}",
    ]
    if wish.several:
        lines.append(f"more: {_lark(writing.separator, controls)} call")
    for n, function in enumerate([] if _are_objects(wish, writing) else wish.functions):
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
