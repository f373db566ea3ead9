"""How calls are written: the text that a model must write if it has to call a tool, as a grammar."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from freehold.grammar.constraint import Envelope, Lark, SchemaRule, Tagging
from freehold.grammar.lark_text import literal
from freehold.serve.chat.markup import Tags

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
        tagging: of arguments; None: they are JSON.
    """

    before: str
    between: str
    after: str = ""
    separator: str = ""
    opening: str = ""
    closing: str = ""
    opener: str = ""
    arguments_key: str = ""
    tagging: Tagging | None = None

    def text(self, calls: Sequence[tuple[str, str]]) -> str:
        """Calls with these names and arguments, as a model writes them."""
        written = [self.before + name + self.between + self._arguments(text) + self.after for name, text in calls]
        return self.opening + self.separator.join(written) + self.closing

    def _arguments(self, text: str) -> str:
        """Arguments in JSON as a model writes them."""
        if self.tagging is None:
            return text
        tags = self.tagging
        members = [tags.gap]
        for key, value in msgspec.json.decode(text).items():
            plain = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            members += [
                tags.before_name,
                key,
                tags.after_name,
                tags.gap if tags.before_value else "",
                tags.before_value,
            ]
            members += [tags.pad, plain, tags.pad, tags.after_value, tags.gap]
        return "".join(members)


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
    controls = {text: token_id for text, token_id in controls.items() if _is_written(text, wish, writing)}
    rules = [] if wish.answer is None else [wish.answer]
    kinds = [rule.name for rule in rules]
    if wish.is_free:
        return _free(wish, writing, controls)
    before, lines = _thoughts(wish, controls)
    if wish.functions:
        kinds.append("calls")
        lines += _calls(wish, writing, controls)
    rules += _rules(wish, writing, controls)
    start = f"start: {before} ({' | '.join(kinds)})"
    return Lark("\n".join([start, *lines]), rules, is_trusted=True)


def _is_written(text: str, wish: Wish, writing: Writing) -> bool:
    """Whether a text is part of what is written around calls or reasoning."""
    tags = () if wish.thoughts is None else (wish.thoughts.begin, wish.thoughts.end)
    around = (writing.before, writing.between, writing.after, writing.separator, writing.opening, writing.closing)
    return any(text in each for each in (*tags, *around, *_tags(writing)))


def _tags(writing: Writing) -> Sequence[str]:
    tagging = writing.tagging
    if tagging is None:
        return ()
    return tagging.before_name, tagging.after_name, tagging.before_value, tagging.after_value


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
        return Lark("\n".join([start, *lines]), _rules(wish, writing, controls), is_trusted=True, head=_head(wish))
    if writing.opening:
        rest = replace(writing, opening=writing.opening.removeprefix(writing.opener))
    else:  # each call has an opener of its own
        rest = replace(writing, before=writing.before.removeprefix(writing.opener).lstrip())
        wish = replace(wish, several=False)
    return Lark("\n".join([start, *_calls(wish, rest, controls)]), _rules(wish, rest, controls), is_trusted=True)


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


def _rules(wish: Wish, writing: Writing, controls: Mapping[str, int]) -> list[SchemaRule]:
    """Of the functions' arguments, or of calls of them."""
    tagging = writing.tagging and msgspec.structs.replace(writing.tagging, controls=controls)
    are_objects = _are_objects(wish, writing)
    return [
        SchemaRule(
            f"call_{number}" if are_objects else f"arguments_{number}",
            dict(function.schema),
            function.param,
            Envelope({"name": function.name}, writing.arguments_key, {"type": "function"}) if are_objects else None,
            function.is_lenient,
            tagging,
        )
        for number, function in enumerate(wish.functions)
    ]


def _calls(wish: Wish, writing: Writing, controls: Mapping[str, int]) -> list[str]:
    """Rules of calls, with arguments left open."""
    more = f" more{{0,{MAX_FORCED_CALLS - 1}}}" if wish.several else ""
    alone = " | call" if _are_objects(wish, writing) and writing.opening else ""  # one call needs no list around it
    inner = " SPACE" if wish.is_free and writing.opening else ""
    lines = [
        f"calls: {literal(writing.opening, controls)}{inner} call{more} {literal(writing.closing, controls)}{alone}",
        f"call: {' | '.join(f'call_{n}' for n in range(len(wish.functions)))}",
    ]
    if wish.several:
        lines.append(f"more: {literal(writing.separator, controls)} call")
    for n, function in enumerate([] if _are_objects(wish, writing) else wish.functions):
        head = literal(writing.before + function.name + writing.between, controls)
        lines.append(f"call_{n}: {head} arguments_{n} {literal(writing.after, controls)}")
    return lines


def _thoughts(wish: Wish, controls: Mapping[str, int]) -> tuple[str, list[str]]:
    """What stands in the place of reasoning, and the rules that it needs."""
    if wish.thoughts is None:
        return "", []
    begin, end = literal(wish.thoughts.begin, controls), literal(wish.thoughts.end, controls)
    if wish.thoughts.end in controls:
        lines = [f"thoughts: ANYTHING {end}", "ANYTHING: /(?s:.*)/"]
    else:
        lines = [f"thoughts[suffix={end}]: /(?s:.*)/"]
    lines.append(r"SPACE: /[ \n]{0,4}/")
    return ("thoughts SPACE" if wish.is_open else f"({begin} thoughts SPACE)?"), lines
