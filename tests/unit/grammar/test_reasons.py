"""What is wrong with a grammar is one line, without the compiler's drawings."""

import llguidance
import pytest

from freehold.grammar.constraint import Lark, Regex
from freehold.grammar.reasons import MAX_REASON, reason_of
from freehold.grammar.source import source_of

LOOK_AROUND = "look-around, including look-ahead and look-behind, is not supported"


def reason(constraint: Regex | Lark) -> str:
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), source_of(constraint).text, log_level=0)
    assert matcher.is_error()
    return reason_of(matcher.get_error())


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(?=a)", f"{LOOK_AROUND}; at '(?=a)'"),
        ("a/b\n(?<!c)d", f"{LOOK_AROUND}; at '(?<!c)d'"),
        ("x" * 5000 + "(?!" + "y" * 5000 + ")", LOOK_AROUND),
        ("a(b", "unclosed group; at '(b'"),
        ("[z-a]", "invalid character class range, the start must be <= the end; at 'z-a]'"),
        ("(?i", "expected flag but got end of regex; at its end"),
        ("(?P<a>x)(?P<a>y)", "duplicate capture group name; at 'a>x)(?P<a>y)'"),
        (r"a\bb", "lookarounds not supported yet"),
    ],
)
def test_regular_expressions(pattern: str, says: str) -> None:
    told = reason(Regex(pattern))
    assert told.startswith(says)
    assert len(told) <= MAX_REASON
    assert not {"\n", "^", "|"} & set(told)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('start: "a" b', 'line 1, column 8: unknown name: "b"'),
        ("start: /a/\nfoo: bar ! baz", "line 2, column 11: lexer error"),
        ("start: /(?=a)/", f"{LOOK_AROUND}; at '(?=a)'"),
    ],
)
def test_grammars(text: str, says: str) -> None:
    assert reason(Lark(text)) == says
