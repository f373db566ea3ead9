"""Blocks of the Messages API: a stream's events and a whole answer are the same, and calls that were cut short keep
what is complete."""

import json
from typing import Any

import jiter
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.serve.messages.blocks import SIGNATURE, BlockWriter, fold
from freehold.serve.messages.partial_json import partial_object
from freehold.serve.messages.schema import (
    BlockDelta,
    BlockStart,
    BlockStop,
    TextContent,
    TextDelta,
    ThinkingContent,
    ToolUseContent,
)
from freehold.serve.toolcalls.formats import FORMATS
from freehold.serve.toolcalls.reader import CallReader
from freehold.text.parts import CallArguments, CallBegin, CallEnd, Content, Part, Reasoning

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.floats(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def call(index: int, arguments: str, *, ends: bool = True) -> list[Part]:
    cut = len(arguments) // 2
    texts = [text for text in (arguments[:cut], arguments[cut:]) if text]
    end: list[Part] = [CallEnd(index)] if ends else []
    return [CallBegin(index, f"id{index}", "f"), *(CallArguments(index, text) for text in texts), *end]


def called(name: str, value: Any) -> ToolUseContent:
    return ToolUseContent(name, "f", msgspec.Raw(json.dumps(value).encode()))


def events(answer: list[Part]) -> list[Any]:
    writer = BlockWriter()
    return [event for part in answer for event in writer.push(part)] + list(writer.close())


def test_events_of_a_text() -> None:
    assert events([Content("a"), Content("b")]) == [
        BlockStart(0, TextContent("")), BlockDelta(0, TextDelta("a")), BlockDelta(0, TextDelta("b")), BlockStop(0),
    ]  # fmt: skip
    assert events([]) == []


def test_thoughts_texts_and_calls_take_turns() -> None:
    answer = [
        Reasoning("hm"),
        Content("Let me "),
        Content("see."),
        *call(0, '{"a": 1}'),
        Content("and"),
        *call(1, "{}"),
    ]
    assert fold(answer) == [
        ThinkingContent("hm", SIGNATURE), TextContent("Let me see."), called("id0", {"a": 1}),
        TextContent("and"), called("id1", {}),
    ]  # fmt: skip


PARTS = st.one_of(
    st.text(min_size=1, max_size=4).map(lambda text: [Content(text)]),
    st.text(min_size=1, max_size=4).map(lambda text: [Reasoning(text)]),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=3).map(lambda value: [json.dumps(value)]),
)


@given(st.lists(PARTS, max_size=8))
def test_events_are_well_formed_and_make_the_whole(drawn: list[list[Any]]) -> None:
    answer: list[Part] = []
    num_calls = 0
    for piece in drawn:
        if isinstance(piece[0], str):
            answer += call(num_calls, piece[0])
            num_calls += 1
        else:
            answer += piece
    open_index, num_begun, texts = None, 0, dict[int, str]()
    for event in events(answer):
        if isinstance(event, BlockStart):
            assert (open_index, event.index) == (None, num_begun), "one block at a time, in order"
            open_index, num_begun = event.index, num_begun + 1
            texts[event.index] = ""
        else:
            assert event.index == open_index
            if isinstance(event, BlockStop):
                open_index = None
            else:
                texts[event.index] += next(iter(getattr(event.delta, name) for name in event.delta.__struct_fields__))
    assert open_index is None
    blocks = fold(answer)
    assert len(blocks) == num_begun
    for index, block in enumerate(blocks):
        match block:
            case TextContent(text):
                assert text == texts[index]
            case ThinkingContent(thinking, signature):
                assert thinking + signature == texts[index]
            case ToolUseContent(_, _, value):
                assert bytes(value).decode() == texts[index]


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.data())
def test_what_is_complete_of_an_object(value: dict[str, Any], data: st.DataObject) -> None:
    """As the official client reads it in a stream."""
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    cut = text[: data.draw(st.integers(0, len(text)))]
    assert json.loads(partial_object(cut)) == (jiter.from_json(cut.encode(), partial_mode=True) if cut else {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}), ("{", {}), ('{"a', {}), ('{"a"', {}), ('{"a":', {}), ('{"a": 1', {"a": 1}),
        ('{"a": -', {}), ('{"a": 1.', {}), ('{"a": 1e', {}), ('{"a": 1,', {"a": 1}),
        ('{"a": "x', {}), ('{"a": "x"', {"a": "x"}), ('{"a": {"b": [1, 2', {"a": {"b": [1, 2]}}),
        ('{"a": {"b": [1, {"c": "d"}', {"a": {"b": [1, {"c": "d"}]}}), ('{"a": tru', {}), ('{"a": "\\', {}),
        ('{"a": 01', {}), ('{"a": -00', {}), ('{"a": 1-', {}),
        ('{"a": [], "b": {}', {"a": [], "b": {}}), ('{"a": "}"', {"a": "}"}), ('{"a": "x"}', {"a": "x"}),
    ],
)  # fmt: skip
def test_calls_that_were_cut_short(text: str, value: dict[str, Any]) -> None:
    [block] = fold(call(0, text, ends=False))
    assert isinstance(block, ToolUseContent)
    assert json.loads(bytes(block.input)) == value


STRANGE = ["1e999", "-1e999", '"\\ud800"', '"\\udc00\\ud800"', "9" * 5000, "-0", "0.1e-999", "[" * 62 + "]" * 62]
"""Valid JSON that not every reader of JSON takes."""


@pytest.mark.parametrize("value", STRANGE)
def test_whatever_a_model_writes_is_answered_as_it_is_streamed(value: str) -> None:
    text = '{"a": ' + value + "}"
    written = '<tool_call>\n{"name": "f", "arguments": ' + text + "}\n</tool_call>"
    for size in range(len(written) + 1) if len(written) < 200 else (len(written), len(written) - 15):
        reader = CallReader(FORMATS["hermes"].parser, {"f": {}}, lambda: "id")
        answer = [*reader.push(written[:size]), *reader.finish()]
        for block in fold(answer):
            whole = msgspec.json.encode(block).decode()
            assert json.loads(whole, parse_int=str) is not None, "what is cut short is JSON too"
            assert size < len(written) or whole.endswith(text + "}")
