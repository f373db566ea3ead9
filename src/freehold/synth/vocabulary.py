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
_MAX_TOKEN_CHARACTERS = 12
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


@lru_cache(maxsize=4)
def make_vocabulary(size: int) -> Vocabulary:
    """A vocabulary of `size` tokens, the same one each time."""
    spelling = byte_spelling()
    tokens = [*SPECIAL_TOKENS, *spelling]
    known = set(tokens)
    merges: list[tuple[str, str]] = []
    words = [*_LETTERS, spelling[ord(" ")]]
    loose = spelling[0x80:]
    draws = np.random.Philox(key=_SEED)
    while len(tokens) < size:
        for draw in draws.random_raw(4 * (size - len(tokens)) + 64).tolist():
            if len(tokens) == size:
                break
            pool = loose if draw % _LOOSE_BYTES_EVERY == 0 else words
            left, right = pool[(draw >> 8) % len(pool)], pool[(draw >> 36) % len(pool)]
            merged = left + right
            if merged in known or len(merged) > _MAX_TOKEN_CHARACTERS or spelling[ord(" ")] in right:
                continue
            known.add(merged)
            tokens.append(merged)
            merges.append((left, right))
            pool.append(merged)
    return Vocabulary(tuple(tokens), tuple(merges))
