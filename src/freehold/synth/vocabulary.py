"""A made-up but real tokenizer: byte-level BPE, reversible for any text.

Merges are random, mostly over letters so that output looks like words; some join bytes of no character, so that pieces
of characters occur as they do in trained vocabularies.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LOOSE_BYTES_EVERY = 16
_SEED = 2024


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id: special ones, then the 256 bytes, then what each merge makes. In the spelling of byte-level BPE, in
    which each byte is one printable character."""

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]

    def special_id(self, token: str) -> int:
        """Id of one of `SPECIAL_TOKENS`."""
        return SPECIAL_TOKENS.index(token)


def byte_spelling() -> list[str]:
    """The printable character for each byte, as GPT-2 introduced them: printable Latin-1 stands for itself, the rest
    for characters from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


class _Pool:
    """Tokens that may be joined: any up to eight characters, followed by one up to four."""

    def __init__(self, tokens: list[str]) -> None:
        self._lefts = list(tokens)
        self._rights = list(tokens)

    def pair(self, draw: int) -> tuple[str, str]:
        """Two tokens, chosen by a random number of 56 bits."""
        return self._lefts[draw % len(self._lefts)], self._rights[(draw >> 28) % len(self._rights)]

    def add(self, token: str) -> None:
        """Let `token` be joined in turn unless it is too long."""
        if len(token) <= 8:
            self._lefts.append(token)
        if len(token) <= 4:
            self._rights.append(token)


@lru_cache(maxsize=4)
def make_vocabulary(size: int) -> Vocabulary:
    """A vocabulary of `size` tokens, the same one each time."""
    spelling = byte_spelling()
    tokens = [*SPECIAL_TOKENS, *spelling]
    known = set(tokens)
    merges: list[tuple[str, str]] = []
    space = spelling[ord(" ")]
    words, loose = _Pool([*_LETTERS, space]), _Pool(spelling[0x80:])
    draws = np.random.Philox(key=_SEED)
    while len(tokens) < size:
        for draw in draws.random_raw(size - len(tokens) + 64).tolist():
            pool = loose if draw % _LOOSE_BYTES_EVERY == 0 else words
            left, right = pool.pair(draw >> 8)
            merged = left + right
            if len(tokens) < size and merged not in known and space not in right:
                known.add(merged)
                tokens.append(merged)
                merges.append((left, right))
                pool.add(merged)
    return Vocabulary(tuple(tokens), tuple(merges))
