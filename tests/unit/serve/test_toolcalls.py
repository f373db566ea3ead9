"""Parsers of calls: each sample, cut in every way, comes out the same, and nothing is lost or told twice."""

import json

import pytest
from call_reading import cuts, read_calls

from freehold.serve.toolcalls.formats import FORMATS, MISTRAL_LIST
from freehold.serve.toolcalls.reader import CallReader
from freehold.text.parts import CallArguments, CallBegin, CallEnd, Message

ARGUMENTS = [
    "{}",
    '{"a": 1}',
    '{"n": -1.5e+3, "m":0}',
    '{"s": "x\\"}\\\\", "u": "\\u00e9\\n"}',
    '{ "list": [1, [], {"deep": [true, false, null]}], "é🦜": "日本" }',
    '{"a":{"b":{"c":"</tool_call>[TOOL_CALLS]<|python_tag|>"}}}',
    '{\n  "a": "b"\n}',
]
CALLS = [[("f", arguments)] for arguments in ARGUMENTS] + [[("f", ARGUMENTS[1]), ("g", ARGUMENTS[3])]]
KINDS = {**{kind: form for kind, form in FORMATS.items() if form.one.tagging is None}, "mistral_old": MISTRAL_LIST}


def read(kind: str, pieces: list[str]) -> Message:
    return read_calls(KINDS[kind], {"f": {}, "g": {}}, pieces)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("calls", CALLS)
def test_calls_come_out_however_they_are_cut(kind: str, calls: list[tuple[str, str]]) -> None:  # tool-01, tool-02
    form = KINDS[kind]
    text = (form.one if len(calls) == 1 else form.several).text(calls)
    for pieces in cuts(text):
        message = read(kind, pieces)
        assert message.content == ""
        assert [(call.name, call.arguments, call.is_complete) for call in message.calls] == [
            (name, arguments, True) for name, arguments in calls
        ]
        assert [call.call_id for call in message.calls] == ["0", "1"][: len(calls)]  # tool-05


OTHERS: dict[str, list[tuple[str, str, list[tuple[str, str]]]]] = {
    "hermes": [
        ("Hi.\n<tool_call>\n{C}\n</tool_call>\n<tool_call>{C}</tool_call> bye", "Hi.bye", [("f", "{}"), ("f", "{}")]),
        ("<tool_call>{C}", "", [("f", "{}")]),
        ("<tool_call>[{C}, {C}]</tool_call>x", "x", [("f", "{}"), ("f", "{}")]),
        ("<tool_call>{C} text", " text", [("f", "{}")]),
        ('<tool_call>{"arguments": {"z": 1}, "name": "g"}</tool_call>', "", [("g", '{"z": 1}')]),
        ('<tool_call>{"name": "g"}</tool_call>', "", [("g", "{}")]),
        ('<tool_call>{"id": "1", "type": "function", "name": "stranger"}</tool_call>', "", [("stranger", "{}")]),
        ('<tool_call>{"name": "g", "parameters": {}}</tool_call>', "", [("g", "{}")]),
        ('<tool_call>{"name": "g", "arguments": {"a": tru}}</tool_call>!', "tru}}</tool_call>!", [("g", '{"a": ')]),
        ('<tool_call>{"name": "g", "arguments": {"a": "x', "", [("g", '{"a": "x')]),
        ('<tool_call>{"name": "g", "arguments": {"a": 1', "", [("g", '{"a": 1')]),
        ('<tool_call>{"name": "g", "arguments": {"a": "\\u12', "", [("g", '{"a": "\\u12')]),
        ("<tool_call>{C}</tool_", "", [("f", "{}")]),
        ("<tool_call>[{C}, ", "", [("f", "{}")]),
    ],
    "llama3_json": [
        (" {C}; {C}", "", [("f", "{}"), ("f", "{}")]),
        ("<|python_tag|>{C}", "", [("f", "{}")]),
        ("Hm.<|python_tag|>{C};{C}", "Hm.", [("f", "{}"), ("f", "{}")]),
        ("{C}\nThat is it.", "That is it.", [("f", "{}")]),
        ('{C}; {"name": "f', '{"name": "f', [("f", "{}")]),
        ("{C}; [1]", "[1]", [("f", "{}")]),
    ],
    "mistral": [
        ("[TOOL_CALLS] [{C}, {C}]", "", [("f", "{}"), ("f", "{}")]),
        ('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g{"b":2}', "", [("f", '{"a": 1}'), ("g", '{"b":2}')]),
        ("Hm [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{} \n", "Hm", [("f", "{}")]),
    ],
    "json": [
        ("[{C},{C}]", "", [("f", "{}"), ("f", "{}")]),
        ("{C}\n{C}\nok", "ok", [("f", "{}"), ("f", "{}")]),
    ],
}


@pytest.mark.parametrize(
    ("kind", "text", "content", "calls"), [(kind, *sample) for kind, samples in OTHERS.items() for sample in samples]
)
def test_other_spellings(kind: str, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    text = text.replace("{C}", '{"name": "f", "arguments": {}}')
    for pieces in cuts(text):
        message = read(kind, pieces)
        assert (message.content, [(call.name, call.arguments) for call in message.calls]) == (content, calls)


NO_CALLS: dict[str, list[str]] = {
    "hermes": [
        "a <tool_call> oops </tool_call> <tool_call>{}</tool_call> b",
        '<tool_call>{"name": "g", "arguments": "{}"}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "g", "name": "f"}</tool_call>',
        '<tool_call>{"name": "\\ud83d"}</tool_call>',
        '<tool_call>\n{"name": "g", "arg',
        '<tool_call>{"name": 1}',
        '<tool_call>{"age": 1}',
        "x <tool_c",
        "x  \n",
        "<tool_call>" * 3,
        '{"name": "f", "arguments": {}}',
    ],
    "llama3_json": [
        "hello {",
        '{"name": "Bob", "parameters": {}}',
        '{"parameters": {}, "name": "Bob"}',
        "<|python_tag|>search.call()",
        "  ",
        " <|python",
        "{",
        "[1, 2]",
    ],
    "mistral": [
        "[TOOL_CALLS]",
        "[TOOL_CALLS]f",
        "[TOOL_C",
        "[TOOL_CALLS]f[ARGS]",
        "[TOOL_CALLS] []",
        "[TOOL_CALLS]f []",
    ],
    "json": ["[1, 2]", "Plain", '{"answer": 42}', '{"name": "Bob"}', "[]", '[{"name": "f"', '{"name": "f"}}'[:-3]],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in NO_CALLS.items() for text in texts])
def test_what_is_no_call_is_content_to_the_last_character(kind: str, text: str) -> None:
    for pieces in cuts(text):
        assert read(kind, pieces) == Message(text)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_wherever_the_text_ends(kind: str) -> None:  # tool-07
    """What comes out of every beginning of an answer is content and arguments that the whole answer begins with."""
    form = KINDS[kind]
    before = "" if kind in ("json", "llama3_json") else "Well. "
    text = before + form.several.text([("f", ARGUMENTS[3]), ("g", ARGUMENTS[1])])
    for size in range(len(text)):
        message = read(kind, list(text[:size]))
        assert message == read(kind, [text[:size]])
        if not message.calls:
            assert message.content == text[:size]
        for call, arguments in zip(message.calls, (ARGUMENTS[3], ARGUMENTS[1]), strict=False):
            assert arguments.startswith(call.arguments)
            assert call.is_complete == (call.arguments == arguments)


def test_arguments_are_told_as_they_come() -> None:
    reader = CallReader(FORMATS["hermes"].parser, {"f": {}}, lambda: "id")
    assert reader.push('<tool_call>{"name": "f", "arguments": ') == []
    assert reader.push('{"a": "b') == [CallBegin(0, "id", "f"), CallArguments(0, '{"a": "b')]
    assert reader.push("c") == [CallArguments(0, "c")]
    assert reader.push('"}') == [CallArguments(0, '"}'), CallEnd(0)]
    assert reader.push("}</tool_call>") == []


def test_deep_nesting_is_no_call() -> None:
    text = '<tool_call>{"name": "f", "arguments": ' + '{"a": ' * 100
    message = read("hermes", [text])
    assert json.dumps(message.content).count("a") + message.calls[0].arguments.count("a") == 100
    assert not message.calls[0].is_complete


def test_long_arguments_take_time_in_proportion() -> None:
    arguments = json.dumps({"text": 'a "quoted" word\n' * 20000})
    message = read("hermes", list(FORMATS["hermes"].one.text([("f", arguments)])))
    assert message.calls[0].arguments == arguments
