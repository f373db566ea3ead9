"""Arguments between tags, with schemas of every kind: whatever the grammar lets through, the reader's JSON is valid.

Answers are drawn byte by byte among what is allowed, by a hand that likes texts which look like other values.
"""

import json
import re
from collections import Counter
from random import Random
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from tests.random_schemas import Schemas

from freehold.errors import GrammarError
from freehold.grammar.factory import MatcherFactory
from freehold.grammar.source import ConstraintError, source_of
from freehold.protocol import Grammar, Sampling, TokenTexts
from freehold.serve.toolcalls.formats import FORMATS, Format
from freehold.serve.toolcalls.reader import CallReader
from freehold.serve.toolcalls.writing import Callable, Wish, grammar_of
from freehold.text.parts import fold

KINDS = [kind for kind, form in FORMATS.items() if form.one.tagging is not None]
TAGS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
END_ID = 256
SIZE = 500
LIKED = [
    "null", "true", "false", "5", "-1.5e3", "[1]", "{}", '"x"', " ", "\n", "é🦜", "ab", "x", "</par", "</arg_v", "<",
    "\n</parameter>\n", "</arg_value>\n", "\n</parameter>\n", "</arg_value>\n", "</function>", "</tool_call>", "2", '"',
]  # fmt: skip


def factory_of(*, has_tokens: bool) -> tuple[MatcherFactory, dict[str, int]]:
    """Bytes, and perhaps tags that are control tokens."""
    tags = TAGS if has_tokens else ()
    texts = (*(bytes([byte]) for byte in range(256)), b"<end>", *(tag.encode() for tag in tags))
    controls = {tag: END_ID + 1 + number for number, tag in enumerate(tags)}
    return MatcherFactory(TokenTexts(texts, (END_ID, *controls.values()))), controls


def draw(factory: MatcherFactory, source: bytes, texts: list[bytes], chance: Random) -> tuple[bytes, bool]:
    """An answer, and whether it is whole."""
    matcher = factory.compile(source).begin(Grammar(source=b""), Sampling(stop_ids=frozenset({END_ID})))
    text = wanted = b""
    for _ in range(SIZE):
        wanted = wanted or chance.choice(LIKED).encode()
        mask = np.zeros((1, len(texts) // 32 + 1), np.uint32)
        matcher.fill(mask, ())
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(texts)]).tolist()
        liked = [i for i in allowed if i != END_ID and wanted.startswith(texts[i])]
        token_id = chance.choice(liked or allowed)
        wanted = wanted[len(texts[token_id]) :] if liked else b""
        if token_id == END_ID:
            return text, True
        matcher.accept(token_id)
        text += texts[token_id]
    return text, False


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_complete_calls_are_valid(kind: str, has_tokens: bool, count: int) -> None:
    form: Format = FORMATS[kind]
    factory, controls = factory_of(has_tokens=has_tokens)
    texts = [*(bytes([byte]) for byte in range(256)), b"<end>", *(tag.encode() for tag in controls)]
    chance, schemas = Random(f"{kind} {has_tokens} {count}"), Schemas(count)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    seen: Counter[str] = Counter()
    refusals: list[str] = []
    for _ in range(count):
        schema = schemas.arguments()
        lark = grammar_of(Wish([Callable("f", schema, "tools")]), form.one, controls)
        try:
            source = msgspec.msgpack.encode(source_of(lark))
            text, is_whole = draw(factory, source, texts, chance)
        except (ConstraintError, GrammarError) as error:
            refusals.append(str(error))
            continue
        reader = CallReader(form.parser, {"f": schema}, lambda: "id")
        message = fold([*reader.push(text.decode("utf-8", "replace")), *reader.finish()])
        seen["whole"] += is_whole
        if is_whole:
            assert message.content == "", text
            [call] = message.calls
            value: dict[str, Any] = json.loads(call.arguments)
            jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)
            seen.update(type(each).__name__ for each in value.values())
    assert seen["whole"] > count / 2, seen
    assert len(refusals) < count / 5, refusals
    assert all(re.search("can't|nsatisfiable|not supported|may hold together", each) for each in refusals), refusals
    assert min(seen[kind] for kind in ("str", "int", "NoneType", "list")) > 0, seen
