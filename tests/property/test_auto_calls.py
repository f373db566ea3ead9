"""Where the model decides whether to call: whatever it writes, calls match their schemas, and other text is let be.

Answers are drawn token by token among what is allowed, by a hand that wants a text full of calls, wrong calls, half
calls and openers. What the parsers make of them is judged by an independent validator.
"""

import codecs
import json
from collections import Counter
from functools import cache, partial
from itertools import product
from random import Random
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from freehold.engine.masks import Matcher
from freehold.grammar.factory import MatcherFactory
from freehold.grammar.source import source_of
from freehold.protocol import Grammar, Sampling, TokenTexts, Trigger
from freehold.serve.chat.reasoning import THINK, TaggedReasoning
from freehold.serve.toolcalls.formats import FORMATS, MISTRAL_LIST, Format
from freehold.serve.toolcalls.reader import CallReader
from freehold.serve.toolcalls.writing import Callable, Wish, grammar_of
from freehold.text.answer import AnswerReader, Reading
from freehold.text.parts import Message, fold

KINDS = {**FORMATS, "mistral_old": MISTRAL_LIST}
SCHEMAS: dict[str, dict[str, Any]] = {
    "f": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", None]}, "c": {"type": "string", "maxLength": 9}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "get.now": {"type": "object", "properties": {}, "additionalProperties": False},
}
LITERALS = [
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|python_tag|>",
    "<think>",
    "</think>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
]
PIECES = [
    "Hi ", "é🦜", " \n", "\n\n", "; ", "[", "]", "{", "}", '"', *LITERALS, *LITERALS, "<tool", "_call>", "<|", "tag|>",
    '{"name": "f", "arguments": {"a": 1}}', '{"name": "f", "parameters": {"a": 1}}', '{"name": "f"}',
    '{"name": "f", "arguments": {"a": "no"}}', '{"name": "f", "parameters": {"c": 1}}', "<tool_call>\n{",
    '{"arguments": {"z": 1}, "name": "f"}', '{"name": "get.now"}', '{"name": "get', '{"name": "Bob", "age": 3}',
    '{"type": "function", "name": "f", "parameters": {}}', '{"id": "1", "name": "f", "arguments": {}}', '{"type"',
    '{ "name" :"f" ,', '{"name": "f', '{"n\\u0061me": "f", "arguments": {}}', '{"name": "\\u0066", "arguments": {}}',
    'f[ARGS]{"a": "x"}', 'f{"b": null}', "get.now[ARGS]{}", "</tool_call> and <tool_call>", "</think>{", "x</think>[",
    "<function=f>\n<parameter=a>\n", "\n</parameter>\n<parameter=b>\n", "\n</parameter>\n</function>", "</function>",
    "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>", "f<arg_key>b</arg_key><arg_value>x</arg_value>",
    "<function=get.now>",
    '<tool_call>[{"name": "f", "arguments": {}}]</tool_call>', '[TOOL_CALLS][{"name": "f", "arguments": {}}]',
]  # fmt: skip
RUNS = [
    ">[{",
    '{"name',
    '": "',
    '{"',
    '"}',
    '"}}',
    '", "',
    '>{"',
    "><",
    ">\n",
    ">\n\n",
    "][{",
    "]f",
    "|>{",
    'f"',
    'f"}',
    "]{",
    "[{",
]
NUM_TOKENS = 90
ENDS = tuple(b'"}]:,1 ')


class Model:
    """A vocabulary of bytes, runs of them and literals, which are control tokens, tokens, or nothing of their own."""

    def __init__(self, kind: str, literals_are: str) -> None:
        extra = [] if literals_are == "spelled" else LITERALS
        texts = [bytes([byte]) for byte in range(256)] + [text.encode() for text in [*RUNS, *extra, "<end>"]]
        num_controls = 1 + (len(extra) if literals_are == "controls" else 0)
        self.end_id = len(texts) - 1
        self.control_ids = tuple(range(len(texts) - num_controls, len(texts)))
        self.texts = texts
        self.format: Format = KINDS[kind]
        controls = {texts[token_id].decode(): token_id for token_id in self.control_ids}
        functions = [Callable(name, schema, "tools", is_lenient=True) for name, schema in SCHEMAS.items()]
        lark = grammar_of(Wish(functions, several=True, is_free=True), self.format.several, controls)
        factory = MatcherFactory(TokenTexts(tuple(texts), self.control_ids))
        self._fresh = factory.compile(msgspec.msgpack.encode(source_of(lark)))

    def matcher(self, *, thinks: bool, is_open: bool) -> Matcher:
        openers = tuple(opener.encode() for opener in self.format.openers)
        thoughts = (THINK.begin.encode(), THINK.end.encode()) if thinks else None
        trigger = Trigger(openers=openers, thoughts=thoughts, is_open=is_open)
        sampling = Sampling(stop_ids=frozenset({self.end_id}))
        return self._fresh.begin(Grammar(source=b"", trigger=trigger), sampling)

    def allowed(self, matcher: Matcher) -> set[int]:
        mask = np.zeros((1, len(self.texts) // 32 + 1), np.uint32)
        matcher.fill(mask, ())
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits[: len(self.texts)]).tolist())

    def visible(self, token_id: int) -> bytes:
        is_silent = token_id in self.control_ids and self.texts[token_id].decode() not in LITERALS
        return b"" if is_silent else self.texts[token_id]

    def read(self, token_ids: list[int], *, thinks: bool, is_open: bool) -> Message:
        reading = Reading(
            partial(TaggedReasoning, THINK, starts_open=is_open) if thinks else None,
            partial(CallReader, self.format.parser, SCHEMAS, self.format.new_id),
        )
        reader = AnswerReader(reading, ())
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parts = [part for i in token_ids for part in reader.push(decoder.decode(self.visible(i)), stops=False)]
        return fold([*parts, *reader.finish(decoder.decode(b"", final=True), stops=False)])


model_of = cache(Model)


def draw(model: Model, matcher: Matcher, chance: Random) -> list[int]:
    """An answer of tokens that were allowed, on the way of a text that is made up as it goes."""
    wanted = b""
    taken: list[int] = []
    while len(taken) < NUM_TOKENS:
        if not wanted:
            wanted = chance.choice(PIECES).encode()
        allowed = model.allowed(matcher)
        assert allowed, (taken, wanted)
        liked = [i for i in allowed if model.texts[i] and wanted.startswith(model.texts[i])]
        ends = [i for i in allowed if i in ENDS]
        token_id = chance.choice(liked or (ends if ends and chance.random() < 0.9 else sorted(allowed)))
        wanted = wanted[len(model.texts[token_id]) :] if liked else b""
        if token_id == model.end_id:
            break
        matcher.accept(token_id)
        taken.append(token_id)
    return taken


SETTINGS = [{"thinks": False, "is_open": False}, {"thinks": True, "is_open": False}, {"thinks": True, "is_open": True}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_whatever_is_written_calls_match_their_schemas(kind: str, count: int) -> None:
    chance = Random(f"{kind} {count}")
    seen: Counter[str] = Counter()
    for literals_are, number in product(["controls", "tokens", "spelled"], range(count)):
        model = model_of(kind, literals_are)
        setting = SETTINGS[number % 3]
        taken = draw(model, model.matcher(**setting), chance)
        message = model.read(taken, **setting)
        for call in message.calls:
            if call.is_complete:
                jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
            seen["complete calls"] += call.is_complete
        seen["answers without calls"] += not message.calls
        seen["reasoning"] += bool(message.reasoning)
    assert min(seen[each] for each in ("complete calls", "answers without calls", "reasoning")) > count / 10, seen


ORDINARY = [
    "A fox met {a} hare < [ 1, é🦜", '{"name": "Bob", "age": 3}', '[{"name": "get", "f": 1}]', "[1, 2]", '"f"', "{}",
    '{"type": "f", "name": "f"}', "[ \n", "  {\n\t\"names\": []}", "<tool_call", "<tool_callx>", "<|python_tag |>",
    '{"arguments": {"a": "x"}, "name": "f"}', '{"id": "1", "name": "f"}', '{ "nam', "[TOOL_CALLS [ARGS] f", "see: <end",
]  # fmt: skip


@pytest.mark.parametrize("literals_are", ["controls", "spelled"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_text_is_let_be(kind: str, literals_are: str) -> None:
    """Every id may come at every place, also bytes that are no text and control tokens that mean nothing."""
    model = model_of(kind, literals_are)
    chance = Random(kind)
    for setting in SETTINGS:
        for text in ORDINARY:
            matcher = model.matcher(**setting)
            rest = text.encode()
            num_wrong = 0
            while rest:
                allowed = model.allowed(matcher)
                token_id = chance.choice([i for i, t in enumerate(model.texts) if t and rest.startswith(t)])
                assert token_id in allowed, (text, rest)
                if literals_are == "controls":
                    wrong = {model.texts[i] for i in set(range(len(model.texts))) - allowed}
                    assert all(each.startswith((b">", b"|>", b"]")) and len(each) > 1 for each in wrong - {b'f"}'})
                    num_wrong += len(wrong)
                matcher.accept(token_id)
                rest = rest[len(model.texts[token_id]) :]
            assert model.end_id in model.allowed(matcher)
            assert 0xFF in model.allowed(matcher)
            assert num_wrong == 0 or text.startswith(("<tool", "[TOOL", "<|python", '{"name": "', '[{"name": "')), (
                "only where a call has begun"
            )
