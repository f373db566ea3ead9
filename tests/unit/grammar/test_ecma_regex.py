"""JSON Schema's regular expressions mean in Rust's syntax what they meant."""

import json
import re

import pytest
from byte_grammars import AcceptsJson
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.grammar.ecma_regex import PatternError, to_rust

SAMPLES = ["", "a", "b", "ab", "abc", "aab", "A", "_", "-", "é", "🦜", "1", "12", "a1", " ", "\n", "a\n", "\u2028", "٣"]
SAMPLES += [
    "/",
    "\\",
    "[",
    "]",
    "&",
    "a&b",
    "~",
    "{",
    "}",
    "a{1}",
    "^",
    "$",
    ".",
    "aaaa",
    "x-y",
    "\t",
    "\xa0",
    "#",
    '"',
]


ALIKE = [
    "a", "^a$", "^a", "a$", "^(a|b)$", "a|^b$", "(^a|b)c", "^$", "", "^[ab]+$", "^[^ab]$", "^[a-c]*$", "^[-a]$",
    "^[a-]$", "^a{2}b$", "^a{1,2}", "^a{3,}$", "^(?:ab)?$", r"^\d$", r"^\D$", r"^\w+$", r"^\W$", r"^[\d_]$",
    r"^[^\w]$", r"^\/$", "^/$", r"^\\$", r"^\[$", r"^\]$", "^]$", "^a&b$", "^~$", r"^\{$", "^{$", "^a{1}$",
    r"^\^\$?$", r"^\u0061$", r"^\x61$", r"^\t$", "^#$", '^"$', "^a+?$", "^a*?b$", r"^[\w.]$",
]  # fmt: skip
"""Patterns that mean the same in Python, but for the end."""

OTHERWISE = {
    "^(?<name>a)b$": "^(?P<name>a)b$",
    "^[[]$": r"^\[$",
    "^[&&a]+$": "^[&a]+$",
    "^[a&&b]+$": "^[a&b]+$",
    "^[a~~]$": "^[a~]$",
    "^[+--]$": r"^[+,\-]$",
    r"^[$^]$": r"^(\$|\^)$",
    "a.b": "a[^\n\r\u2028\u2029]b",
    "^.$": "^[^\n\r\u2028\u2029]$",
    r"^\s$": "^[ \n\t\xa0\u2028]$",
    r"^\S$": "^[^ \n\t\xa0\u2028]$",
    r"^[\s\-]$": "^[ \n\t\xa0\u2028-]$",
}
"""What says in Python what these patterns say, as far as the samples tell."""


@pytest.mark.parametrize(("pattern", "python"), [*((one, one) for one in ALIKE), *OTHERWISE.items()])
def test_patterns_match_what_they_match_elsewhere(accepts_json: AcceptsJson, pattern: str, python: str) -> None:
    if python.endswith("$"):
        python = python[:-1] + r"\Z"
    expression = re.compile(python, re.ASCII)
    for text in SAMPLES:
        found = accepts_json({"type": "string", "pattern": pattern}, json.dumps(text, ensure_ascii=False))
        assert found == bool(expression.search(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^\cJ$", "\n"),
        (r"^\u{1F99C}$", "🦜"),
        (r"^\uD83E\uDD9C$", "🦜"),
        (r"^[\uD83E\uDD9C]$", "🦜"),
        (r"^\p{Lu}\P{Lu}$", "Éé"),
        (r"^\p{Script=Greek}$", "λ"),
        (r"^[^]$", "\n"),
        (r"^[\b]?x$", "x"),
        (r"^\$\.\-$", "$.-"),
    ],
)
def test_escapes(accepts_json: AcceptsJson, pattern: str, text: str) -> None:
    assert accepts_json({"type": "string", "pattern": pattern}, json.dumps(text, ensure_ascii=False))
    assert not accepts_json({"type": "string", "pattern": pattern}, '"no"')


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)", "ahead or behind"),
        ("(?!a)", "ahead or behind"),
        ("(?<=a)b", "ahead or behind"),
        ("(?<!a)b", "ahead or behind"),
        ("(?i)a", "isn't supported"),
        ("(?P<x>a)", "isn't supported"),
        (r"\ba", "word boundary"),
        (r"(a)\1", "refers back"),
        (r"\k<x>", "refers back"),
        (r"\A", r"escape \\A"),
        (r"\z", r"escape \\z"),
        (r"\uD83E", "no character"),
        (r"\u{110000}", "no character"),
        ("[b-a]", "wrong order"),
        ("[a", "without its"),
        ("[a-", "without its"),
        ("a\\", "ends with a backslash"),
        ("[\\", "ends with a backslash"),
        ("a{0,1000000}", "1000000 times"),
        ("a{99999999999999999999}", "times"),
    ],
)
def test_what_cannot_be_translated_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        to_rust(pattern)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_translated_or_refused(pattern: str) -> None:
    try:
        written = to_rust(pattern)
    except PatternError:
        return
    assert written.isascii()
