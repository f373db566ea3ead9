"""A rendered chat, and its way to token ids: control ids only where the template wrote them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from freehold.text.literals import LiteralFinder
from freehold.text.markers import drop
from freehold.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Rendered:
    """A chat as text.

    Attributes:
        marked: the text, with a marker inside each literal that a user sent.
        marker: that character; empty if nothing had to be marked.
        literals: what becomes a token where it stands unmarked: control tokens, and added tokens that the template
            itself writes (such as ``<think>``).
        spelled_out: added tokens among the literals. Where marked, they are spelled out as text.
    """

    marked: str
    marker: str
    literals: LiteralFinder
    spelled_out: LiteralFinder

    @property
    def text(self) -> str:
        """The prompt as the template means it."""
        return drop(self.marked, self.marker) if self.marker else self.marked

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        """Token ids of the prompt. BOS is there if, and only if, the template writes it."""
        return tokenizer.encode_literals(
            self.marked,
            self._own_literals(),
            lambda piece, at_start: self._encode_text(tokenizer, piece, at_start),
        )

    def _own_literals(self) -> Iterator[re.Match[str]]:
        for match in self.literals.finditer(self.marked):
            # A literal of one character has no inside; its marker follows.
            if not (self.marker and len(match[0]) == 1 and self.marked.startswith(self.marker, match.end())):
                yield match

    def _encode_text(self, tokenizer: Tokenizer, piece: str, at_start: bool) -> list[int]:
        text = drop(piece, self.marker) if self.marker else piece
        if text == piece:
            return tokenizer.encode_piece(piece, at_start=at_start, param="messages")
        ids: list[int] = []
        done = 0
        for match in self.spelled_out.finditer(text):
            # Unmarked ones were taken out before, so these are the user's.
            for begin, end, match_added in ((done, match.start(), True), (match.start(), match.end(), False)):
                ids += tokenizer.encode_piece(
                    text[begin:end], at_start=at_start and begin == 0, match_added=match_added, param="messages"
                )
            done = match.end()
        return ids + tokenizer.encode_piece(text[done:], at_start=at_start and done == 0, param="messages")
