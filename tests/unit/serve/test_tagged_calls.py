"""Calls whose arguments stand between tags: what comes out is JSON as the tool's schema says, however it is cut."""

import json
from typing import Any

import pytest
from call_reading import cuts, read_calls

from freehold.serve.toolcalls.formats import FORMATS, Format
from freehold.serve.toolcalls.reader import CallReader
from freehold.text.parts import CallArguments, CallBegin, CallEnd, Message

KINDS = ("qwen3_coder", "glm45")
ANY_KIND = pytest.mark.parametrize("kind", KINDS)
TYPES: dict[str, Any] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "list": {"type": "array"},
    "object": {"$ref": "#/$defs/thing"},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "id": {"type": ["string", "integer"]},
    "choice": {"enum": ["x", 1, None]},
    "any": {},
}
TOOLS = {"f": {"properties": TYPES, "$defs": {"thing": {"type": "object"}}}, "get.now": {}}


def read(kind: str, pieces: list[str]) -> Message:
    return read_calls(FORMATS[kind], TOOLS, pieces)


def written(kind: str, *members: tuple[str, str], name: str = "f") -> str:
    """A call with these names and texts of values, as its model writes it."""
    if kind == "qwen3_coder":
        lines = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in members)
        return f"<tool_call>\n<function={name}>\n{lines}</function>\n</tool_call>"
    lines = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n" for key, text in members)
    return f"<tool_call>{name}\n{lines}</tool_call>"


VALUES: list[tuple[str, str, Any]] = [
    ("text", "Oslo", "Oslo"),
    ("text", "", ""),
    ("text", "null", "null"),
    ("text", '{"a": 1}', '{"a": 1}'),
    ("text", ' "two"\n\nlines\\ \t\r\n🦜 <b> </b> </param', ' "two"\n\nlines\\ \t\r\n🦜 <b> </b> </param'),
    ("text", "\n\x00\x1f", "\n\x00\x1f"),
    ("count", "-12", -12),
    ("ratio", " 1.5e+3 ", 1500.0),
    ("flag", "true", True),
    ("flag", "False", False),
    ("count", "several", "several"),
    ("list", '["</parameter></arg_value>", [{"a": null}]]', ["</parameter></arg_value>", [{"a": None}]]),
    ("list", "\n[\n]\n", []),
    ("object", '{"a": {"b": "\\u00e9"}}', {"a": {"b": "é"}}),
    ("maybe", "null", None),
    ("maybe", "nullable", "nullable"),
    ("maybe", "nul", "nul"),
    ("maybe", "5", "5"),
    ("maybe", "[1]", "[1]"),
    ("id", "5", 5),
    ("id", "5.0", "5.0"),
    ("id", "2024-01-01", "2024-01-01"),
    ("id", "true", "true"),
    ("choice", "null", None),
    ("choice", "x", "x"),
    ("any", "None", "None"),
    ("any", "Hello, {you}", "Hello, {you}"),
    ("any", '{"you": [1]}', {"you": [1]}),
    ("any", " ", " "),
    ("unlisted", "7", 7),
]  # fmt: skip


@ANY_KIND
@pytest.mark.parametrize(("key", "text", "value"), VALUES)
def test_values_are_what_their_types_say_however_they_are_cut(kind: str, key: str, text: str, value: Any) -> None:
    answer = written(kind, (key, text), ("text", "end"))
    [whole] = read(kind, [answer]).calls
    assert json.loads(whole.arguments) == {key: value, "text": "end"}
    for pieces in cuts(answer):
        message = read(kind, pieces)
        assert (message.content, message.calls) == ("", (whole,)), pieces
    assert whole.is_complete


@ANY_KIND
def test_several_calls_and_what_is_around_them(kind: str) -> None:
    calls = [
        written(kind, name="get.now"),
        written(kind, ("count", "1"), ("count", "2")),
        written(kind, ("text", "<tool_call>")),
    ]
    answer = f"Let me see.\n{calls[0]}\n{calls[1]}{calls[2]} Done."
    for pieces in cuts(answer):
        message = read(kind, pieces)
        assert message.content == "Let me see.Done."
        assert [(call.name, call.arguments) for call in message.calls] == [
            ("get.now", "{}"),
            ("f", '{"count": 1, "count": 2}'),
            ("f", '{"text": "<tool_call>"}'),
        ]


SPELLINGS: dict[str, list[str]] = {
    "qwen3_coder": [
        "<tool_call><function=f><parameter=text>a b</parameter><parameter=count>1</parameter></function></tool_call>",
        "<tool_call>\n\n<function=f>\n\n<parameter= text >\na b\n</parameter>  <parameter=count>\n\n1</parameter>"
        "</function>",
    ],
    "glm45": [
        "<tool_call>f<arg_key>text</arg_key><arg_value>a b</arg_value><arg_key>count</arg_key><arg_value>1</arg_value>"
        "</tool_call>",
        "<tool_call>\nf <arg_key> text </arg_key> <arg_value>a b</arg_value> <arg_key>count</arg_key>\n<arg_value>\n1\n"
        "</arg_value></tool_call>",
    ],
}


@pytest.mark.parametrize(("kind", "answer"), [(kind, answer) for kind in KINDS for answer in SPELLINGS[kind]])
def test_other_spellings(kind: str, answer: str) -> None:
    for pieces in cuts(answer):
        message = read(kind, pieces)
        assert (message.content, [call.arguments for call in message.calls]) == ("", ['{"text": "a b", "count": 1}'])


NO_CALLS: dict[str, list[str]] = {
    "qwen3_coder": [
        "a <tool_call> oops </tool_call> <tool_call>{} b",
        "<tool_call>\n<function=f>\nSee above.</function></tool_call>",
        "<tool_call>\n<function=f>\n<parameter=text\n>",
        f"<tool_call>\n<function=f>\n<parameter={'k' * 129}>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f g>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<param",
        "<tool_call>\n<functi",
        "<function=f>",
        "</parameter> </tool_call>",
        "x <tool_c",
    ],
    "glm45": [
        "a <tool_call> oops </tool_call> <tool_call>{} b",
        "<tool_call>stranger\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
        "<tool_call>f\n<arg_key>text\n</arg_key>",
        "<tool_call>f is a function</tool_call>",
        "<tool_call>f\n<arg_value>a</arg_value>",
        "<tool_call>f\n<arg_k",
        "<tool_call>f",
        "<arg_key>text</arg_key>",
        "x <tool_c",
    ],
}


@pytest.mark.parametrize(("kind", "answer"), [(kind, answer) for kind in KINDS for answer in NO_CALLS[kind]])
def test_what_is_no_call_is_content_to_the_last_character(kind: str, answer: str) -> None:
    for pieces in cuts(answer):
        assert read(kind, pieces) == Message(answer)


@ANY_KIND
def test_what_breaks_off_within_a_call_is_content_from_there_on(kind: str) -> None:
    for key, text, arguments, rest in [
        ("list", "[1, oops]", '{"list": [1, ', "oops]"),
        ("object", "{} x", '{"object": {}', "x"),
    ]:
        answer = written(kind, (key, text))
        for pieces in cuts(answer):
            message = read(kind, pieces)
            [call] = message.calls
            assert (call.arguments, call.is_complete) == (arguments, False)
            assert message.content.endswith(answer[answer.index(rest) :])


@ANY_KIND
def test_nothing_is_told_that_the_whole_answer_does_not_tell(kind: str) -> None:  # tool-03, tool-07
    """What comes out of every beginning of an answer is content and arguments that the whole answer begins with."""
    members = [
        ("text", "a\n</b>\n"),
        ("maybe", "nul"),
        ("maybe", "null"),
        ("count", "12"),
        ("list", '["x"]'),
        ("any", "so"),
    ]
    answer = "Well. " + written(kind, *members)
    [whole] = read(kind, [answer]).calls
    for size in range(len(answer)):
        message = read(kind, list(answer[:size]))
        assert message == read(kind, [answer[:size]])
        assert (message.content == answer[:size]) if not message.calls else (message.content == "Well.")
        for call in message.calls:
            assert whole.arguments.startswith(call.arguments)
            assert call.is_complete == (call.arguments == whole.arguments)


@ANY_KIND
def test_strings_and_lists_are_told_as_they_come(kind: str) -> None:  # tool-08
    form: Format = FORMATS[kind]
    reader = CallReader(form.parser, TOOLS, lambda: "id")
    before, _, after = written(kind, ("text", "|")).partition("|")
    assert reader.push(before) == [CallBegin(0, "id", "f"), CallArguments(0, '{"text": "')]
    assert reader.push('a"') == [CallArguments(0, 'a\\"')]
    assert reader.push("b") == [CallArguments(0, "b")]
    assert reader.push(after[:-3]) == [CallArguments(0, '"}'), CallEnd(0)] if kind == "qwen3_coder" else True
    before, _, after = written(kind, ("maybe", "|")).partition("|")
    reader = CallReader(form.parser, TOOLS, lambda: "id")
    assert reader.push(f"{before}nul") == [CallBegin(0, "id", "f"), CallArguments(0, '{"maybe": ')]
    assert reader.push("l and") == [CallArguments(0, '"null and')]
    before, _, after = written(kind, ("list", "|")).partition("|")
    reader = CallReader(form.parser, TOOLS, lambda: "id")
    assert reader.push(before + '["a') == [CallBegin(0, "id", "f"), CallArguments(0, '{"list": ["a')]


@ANY_KIND
def test_long_arguments_take_time_in_proportion(kind: str) -> None:
    text = 'a "quoted" <word>\n' * 2000
    [call] = read(kind, list(written(kind, ("text", text)))).calls
    assert json.loads(call.arguments) == {"text": text}
