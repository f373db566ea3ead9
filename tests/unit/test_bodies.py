"""Checks of a body that come before it is decoded: what they refuse, and that none takes long."""

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.errors import RequestError
from freehold.serve.body import MAX_DEPTH, decode
from freehold.serve.schema import CompletionRequest

_decoder = msgspec.json.Decoder(CompletionRequest)
NUM_BYTES = 1 << 20
QUICK_S = 1.0
"""Some milliseconds, with room for a busy machine. What is quadratic takes minutes."""


def refusal(body: bytes) -> str:
    """The code that a body is refused with."""
    with pytest.raises(RequestError) as caught:
        decode(body, _decoder)
    return caught.value.code


@pytest.mark.parametrize(
    "unit",
    [b'\\"', b'"', b"\\", b"[", b"]", b"[]", b'["]', b'"[', b'\\\\"', b"\\u", b"\\ud800", b"\\ud83d\\ude00", b"{"],
)
@pytest.mark.parametrize("start", [b"", b'"', b'{"prompt": "', b'{"user": ', b"[" * (MAX_DEPTH + 1) + b'"'])
def test_no_body_takes_long(unit: bytes, start: bytes) -> None:
    body = start + unit * (NUM_BYTES // len(unit))
    begun_s = time.monotonic()
    assert refusal(body)
    assert time.monotonic() - begun_s < QUICK_S


json_values = st.recursive(
    st.text() | st.integers(0, 9) | st.sampled_from(['"[', "\\", '\\"', '[{"', "é", "]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(json_values, st.integers(0, 2 * MAX_DEPTH), st.booleans(), st.booleans())
def test_depth_is_counted_as_a_parser_does(value: object, num_levels: int, in_objects: bool, as_ascii: bool) -> None:
    for _ in range(num_levels):
        value = {"[": value} if in_objects else [value, "]"]
    body = json.dumps({"user": value}, ensure_ascii=as_ascii).encode("utf-8", "replace")
    depth, is_in_string, is_escaped, deepest = 0, False, False, 0
    for char in body.decode():
        if is_in_string:
            is_in_string = is_escaped or char != '"'
            is_escaped = char == "\\" and not is_escaped
        elif char == '"':
            is_in_string = True
        else:
            depth += (char in "[{") - (char in "]}")
            deepest = max(deepest, depth)
    # Without a prompt each is refused; the question is why.
    assert (refusal(body) == "too_deep") == (deepest > MAX_DEPTH)


@pytest.mark.parametrize(
    ("inner", "is_text"),
    [
        (b"\xff", False), (b"\xc3", False), (b"\xed\xa0\x80", False), (b"\\ud800", False), (b"\\uDFFF", False),
        (b"\\ude00\\ud83d", False), (b"\\ud83d\\ud83d\\ude00", False), (b"\\ud83d\\ude00\\ude00", False),
        (b"\\ud83d \\ude00", False), (b"\\\\\\ud800", False), (b"\\ud83d\\ude00", True), (b"\\\\ud800", True),
        (b"\\uD83D\\uDE00\\ud83d\\ude00", True), (b"\xf0\x9f\x98\x80", True), (b"\\u0000", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "form", [b'"prompt": "%s"', b'"prompt": "", "user": "%s"', b'"prompt": "", "metadata": {"%s": 1}']
)
def test_what_is_no_text_is_refused_wherever_it_stands(inner: bytes, is_text: bool, form: bytes) -> None:
    body = b"{" + form.replace(b"%s", inner) + b"}"
    if is_text:
        decode(body, _decoder)
    else:
        assert refusal(body) == "invalid_unicode"
