"""A vocabulary of single bytes, and what grammars over it accept."""

from collections.abc import Callable
from typing import Any

from freehold.grammar.constraint import Constraint
from freehold.grammar.factory import FreshMatcher
from freehold.grammar.matcher import GrammarMatcher
from freehold.protocol import TokenTexts

END_ID = 256
CLOSE_ID = 257
TEXTS = TokenTexts((*(bytes([byte]) for byte in range(256)), b"<end>", b"</think>"), (END_ID, CLOSE_ID))

Fresh = Callable[[Constraint], FreshMatcher]
Accepts = Callable[[Constraint, str], bool]
AcceptsJson = Callable[[Any, str], bool]


def follows(matcher: GrammarMatcher, text: str) -> bool:
    """Whether a matcher can go along a whole text and end after it."""
    return matcher.follow_all(list(text.encode("utf-8", "surrogatepass"))) and matcher.may_end
