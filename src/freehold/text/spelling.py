"""How a vocabulary spells bytes: GPT-2's byte alphabet, or SentencePiece's ``▁`` and ``<0xAB>``.

A byte-level vocabulary writes each byte as one printable character (the alphabet published with GPT-2): printable
Latin-1 characters stand for themselves, the other 68 bytes are moved up to U+0100 and after.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Spelling = Literal["byte_level", "sentencepiece"]

SPACE_MARK = "▁"


def _alphabet() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = sorted(set(range(0x100)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(0x100 + nth): byte for nth, byte in enumerate(moved)}


BYTE_OF_CHAR: Mapping[str, int] = MappingProxyType(_alphabet())
CHAR_OF_BYTE: Mapping[int, str] = MappingProxyType({byte: char for char, byte in BYTE_OF_CHAR.items()})

BYTE_TOKENS: Mapping[str, bytes] = MappingProxyType({f"<0x{byte:02X}>": bytes([byte]) for byte in range(0x100)})
"""SentencePiece's byte-fallback tokens."""


def byte_level_bytes(spelled: str) -> bytes:
    """Bytes of a byte-level token. A token with a character outside of the alphabet stands for itself."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in spelled])
    except KeyError:
        return spelled.encode("utf-8")


def sentencepiece_bytes(spelled: str) -> bytes:
    """Bytes of a SentencePiece token that isn't a byte-fallback token."""
    return spelled.replace(SPACE_MARK, " ").encode("utf-8")
