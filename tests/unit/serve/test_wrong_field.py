"""Errors of fields: named, with the value cut short, and what may stand there."""

import json
from typing import Any

import msgspec
import pytest

from freehold.errors import RequestError
from freehold.serve.body import decode
from freehold.serve.messages.schema import MessagesRequest
from freehold.serve.schema import ChatRequest
from freehold.serve.wrong_field import MAX_SHOWN

HI = {"role": "user", "content": "Hi"}
CHAT = msgspec.json.Decoder(ChatRequest)
MESSAGES = msgspec.json.Decoder(MessagesRequest)


def refusal(fields: dict[str, Any], decoder: Any = CHAT, **good: Any) -> RequestError:
    body = json.dumps({"messages": [HI], **good, **fields}, ensure_ascii=False).encode()
    with pytest.raises(RequestError) as caught:
        decode(body, decoder)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": "5"}, 'max_tokens: "5" is a string; give an integer (5), or leave it out'),
        ({"max_tokens": "five"}, 'max_tokens: "five" is a string; give an integer, or leave it out'),
        ({"max_tokens": "1.5"}, 'max_tokens: "1.5" is a string; give an integer, or leave it out'),
        (
            {"max_tokens": 1.5},
            "max_tokens: 1.5 is a number with a fraction or an exponent; give an integer, or leave it out",
        ),
        ({"temperature": "0.7"}, 'temperature: "0.7" is a string; give a number (0.7), or leave it out'),
        ({"stream": 1}, "stream: 1 is an integer; give true or false, or leave it out"),
        ({"stop": [1]}, "stop[0]: 1 is an integer; give a string"),
        ({"stop": 1}, "stop: 1 is an integer; give a string or a list of strings, or leave it out"),
        ({"logit_bias": {"1": 2, "2": "b"}}, 'logit_bias[...]: "b" is a string; give a number'),
        ({"messages": "Hi"}, 'messages: "Hi" is a string; give a list of objects'),
        ({"messages": None}, "messages: null is no value; give a list of objects"),
        ({"tool_choice": "any"}, 'tool_choice: "any" is not allowed here; give one of "auto", "none", "required" or an '
         "object, or leave it out"),
        ({"tools": [{"type": "retrieval"}]}, 'tools[0].type: "retrieval" is not allowed here; give "function"'),
        ({"response_format": {"type": "xml"}}, 'response_format.type: "xml" is not allowed here; give one of "text", '
         '"json_object", "json_schema"'),
        ({"messages": [{"role": "bot"}]}, 'messages[0].role: "bot" is not allowed here; give one of "assistant", '
         '"developer", "system", "tool", "user"'),
        ({"messages": [{"content": "x"}]}, 'messages[0].role is missing; give one of "assistant", "developer", '
         '"system", "tool", "user"'),
        ({"reasoning_effort": "huge"}, 'reasoning_effort: "huge" is not allowed here; give one of "high", "low", '
         '"medium", "minimal", "none", "xhigh", or leave it out'),
        ({"messages": [{**HI, "refusal": "no"}]}, 'messages[0].refusal: "no" is a string; leave it out'),
        ({"stream_options": {"include_usage": 0}}, "stream_options.include_usage: 0 is an integer; give true or false, "
         "or leave it out"),
        ({"cache_salt": ""}, 'cache_salt: "" is not allowed here; give a string of 1 to 256 characters, or leave it '
         "out"),
    ],
)  # fmt: skip
def test_the_message_names_field_value_and_remedy(fields: dict[str, Any], message: str) -> None:
    error = refusal(fields)
    assert str(error) == message
    assert error.param == message.partition(":")[0].partition(" ")[0]


def test_numbers_out_of_range_are_told_the_range() -> None:
    with pytest.raises(RequestError, match=r"^temperature: 1e400 is out of range; give a number from 0 to 100"):
        decode(b'{"messages":[{"role":"user","content":"x"}],"temperature":1e400}', CHAT)


@pytest.mark.parametrize("rest", ["", ',"max_tokens":5}', "}}", ',"a":tru}'])
def test_what_follows_may_be_no_json(rest: str) -> None:
    with pytest.raises(RequestError, match=r"^max_tokens: .+ is a string; give an integer"):
        decode(b'{"max_tokens":"5"' + rest.encode(), CHAT)


@pytest.mark.parametrize("value", ["secret " * 5000, "é" * 5000, ["secret"] * 5000, {"secret": ["x"] * 5000}])
def test_long_values_are_cut_short(value: Any) -> None:
    for fields in ({"temperature": value}, {"logit_bias": {"1": value}}):
        message = str(refusal(fields))
        assert len(message) < MAX_SHOWN + 150
        assert "…" in message


def test_anthropics_fields() -> None:
    block = {"type": "image", "source": {}}
    message = str(refusal({"messages": [{"role": "user", "content": [block]}]}, MESSAGES, max_tokens=5))
    assert message == (
        'messages[0].content[0].type: "image" is not allowed here; give one of "text", "thinking", "tool_use", '
        '"tool_result"'
    )
    for content in ({}, {"content": None}):
        error = refusal({"messages": [{"role": "user", **content}]}, MESSAGES, max_tokens=5)
        assert error.param == "messages[0].content"


CALL = {"id": "1", "type": "function", "function": {"name": "x", "arguments": "{}"}}


@pytest.mark.parametrize("role", ["user", "system", "developer", "tool", "assistant"])
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_messages_without_content(role: str, content: dict[str, None]) -> None:
    message = {"role": role, **content}
    error = refusal({"messages": [HI, message]})
    assert str(error) == "messages[1].content is missing; give a string or a list of objects"
    assert (error.param, error.code) == ("messages[1].content", "missing_field")
    for more in ({"tool_calls": [CALL]}, {"reasoning_content": "Hm"}):
        body = json.dumps({"messages": [HI, {**message, **more}]}).encode()
        if role == "assistant":
            assert decode(body, CHAT).messages[1].content is None
        else:
            assert refusal({"messages": [HI, {**message, **more}]}).param == "messages[1].content"
