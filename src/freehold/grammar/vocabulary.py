"""What tokens write, for matchers, and masks over them."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from freehold.protocol import TokenTexts

Mask = NDArray[np.uint32]
"""(words,): bit t of all of it is set if id t is allowed."""

ALL = np.uint32(0xFFFFFFFF)

SPACE = b" \t\r\n"


def allow(mask: Mask, token_ids: Iterable[int]) -> None:
    """Set the bits of some ids."""
    for token_id in token_ids:
        mask[token_id // 32] |= np.uint32(1 << token_id % 32)


def forbid(mask: Mask, token_ids: Iterable[int]) -> None:
    """Clear the bits of some ids."""
    for token_id in token_ids:
        mask[token_id // 32] &= ~np.uint32(1 << token_id % 32)


class Overrun(NamedTuple):
    """A token that completes something, and what it goes on with."""

    token_id: int
    rest: bytes


class Vocabulary:
    """What one model's tokens write.

    Attributes:
        end_id: past the last token: what llguidance takes for the end of a text.
        num_words: of a mask that has a bit for that too.
        control_ids: tokens that add nothing to the text.
    """

    def __init__(self, tokens: TokenTexts) -> None:
        self.end_id = len(tokens.texts)
        self.num_words = self.end_id // 32 + 1
        self.control_ids = frozenset(tokens.control_ids)
        self._texts = tokens.texts
        self._bytes = {text: i for i, text in enumerate(tokens.texts) if len(text) == 1 and i not in self.control_ids}
        self._overruns: dict[bytes, Sequence[Sequence[Overrun]]] = {}

    def text(self, token_id: int, literals: Sequence[bytes]) -> bytes:
        """What a token adds to the text: nothing if it is a control token, unless that is one of some literals. Models
        may have more ids than their vocabularies, which add nothing."""
        if token_id >= self.end_id:
            return b""
        text = self._texts[token_id]
        return text if token_id not in self.control_ids or text in literals else b""

    def spelled(self, text: bytes) -> Sequence[int] | None:
        """Tokens that write a text byte by byte; None if there are none."""
        ids = [self._bytes.get(text[place : place + 1]) for place in range(len(text))]
        known = [token_id for token_id in ids if token_id is not None]
        return known if len(known) == len(ids) else None

    def overruns(self, literal: bytes, before: bytes) -> Iterable[Overrun]:
        """Tokens that complete a literal after some text, and go on."""
        if literal not in self._overruns:
            self._overruns[literal] = self._find_overruns(literal)
        sizes = (size for size in range(len(literal)) if before.endswith(literal[:size]))
        return chain.from_iterable(self._overruns[literal][size] for size in sizes)

    def _find_overruns(self, literal: bytes) -> Sequence[Sequence[Overrun]]:
        """By how much of the literal there is already."""
        overruns: list[list[Overrun]] = [[] for _ in literal]
        for token_id, text in enumerate(self._texts):
            if token_id in self.control_ids or literal[-1:] not in text:
                continue
            for size in range(len(literal)):
                before, found, rest = text.partition(literal[size:])
                if found and rest and (size == 0 or not before):
                    overruns[size].append(Overrun(token_id, rest))
        return overruns
