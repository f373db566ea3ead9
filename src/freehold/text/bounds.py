"""How much text a token can stand for: what makes a text too long, seen from its bytes alone."""

import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

from freehold.text.vocabulary import Vocabulary

_NFC_SHRINKS = 3
"""Canonical composition makes UTF-8 shorter by this factor at most (Unicode's FAQ on normalization)."""
_NEVER_IN_TEXT = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
"""Bytes that UTF-8 doesn't use."""
_KEEPING = frozenset({"ByteLevel", "Digits", "Metaspace", "Split", "Punctuation"})


@dataclass(frozen=True, slots=True)
class TextBound:
    """How few tokens a text can become.

    Attributes:
        bytes_per_token: bytes of text that one token stands for at most.
        lost: bytes without a token: they may become nothing.
    """

    bytes_per_token: int
    lost: bytes

    def min_tokens(self, text: str) -> int:
        """Tokens that a text has at least."""
        num_kept_bytes = len(text.encode("utf-8", "surrogatepass").translate(None, self.lost))
        return -(-num_kept_bytes // self.bytes_per_token)


def bound_of(vocabulary: Vocabulary, token_bytes: list[bytes]) -> TextBound | None:
    """The bound of a vocabulary; None if its pipeline may drop text, so that there is none.

    Arguments:
        token_bytes: each token's text; of a control token its literal.
    """
    literals = [*vocabulary.controls.values(), *vocabulary.added.values()]
    if any(literal.takes_left or literal.takes_right for literal in literals):
        return None
    is_by_bytes = vocabulary.spelling == "byte_level"
    known = {text for text in token_bytes if len(text) == 1} if is_by_bytes else set(vocabulary.byte_ids.values())
    lost = frozenset(range(256)) - {text[0] for text in known}
    shrinks = max(_shrinks(backend) for backend in (vocabulary.start, vocabulary.middle, vocabulary.bare))
    # Whole characters without a token become one unknown token, however many; and composing makes new bytes.
    if shrinks == float("inf") or ((shrinks > 1 or not is_by_bytes) and not lost <= _NEVER_IN_TEXT):
        return None
    return TextBound(max(map(len, token_bytes)) * int(shrinks), bytes(sorted(lost)))


def _shrinks(backend: Backend) -> float:
    """The factor by which a pipeline may shorten a text before it looks for tokens."""
    factor = 1.0
    for step in _steps(backend.normalizer, "normalizers"):
        if step["type"] == "NFC":
            factor *= _NFC_SHRINKS
        elif step["type"] == "Replace" and step["pattern"] == {"String": " "} and step["content"]:
            continue  # a mark in the place of each space
        elif step["type"] != "Prepend":
            return float("inf")
    for step in _steps(backend.pre_tokenizer, "pretokenizers"):
        if step["type"] not in _KEEPING or step.get("behavior") == "Removed":
            return float("inf")
    return factor


def _steps(component: Any, several: str) -> list[dict[str, Any]]:
    if component is None:
        return []
    state: dict[str, Any] = json.loads(component.__getstate__())
    steps: list[dict[str, Any]] = state.get(several) or [state]
    return steps
