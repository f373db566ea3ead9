"""Parts of rules in llguidance's variant of Lark's syntax."""

import json
import re
from collections.abc import Mapping

ANY_TEXT = "/(?s:.*)/"
NO_TEXT = r"/[^\x{0}-\x{10FFFF}]/"


def literal(text: str, controls: Mapping[str, int]) -> str:
    """A text as a part of a rule.

    Args:
        controls: control tokens by literal: they are written as ids, which no text spells.
    """
    return " ".join(map(written, pieces(text, controls)))


def pieces(text: str, controls: Mapping[str, int]) -> list[str | int]:
    """A text's pieces: the ids of the control tokens in it, and what is between them."""
    if not controls:
        return [text] if text else []
    longest_first = sorted(controls, key=len, reverse=True)
    split = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
    return [controls.get(piece, piece) for piece in split if piece]


def written(piece: str | int) -> str:
    """One of a text's pieces as a part of a rule."""
    return quoted(piece) if isinstance(piece, str) else f"<[{piece}]>"


def quoted(text: str) -> str:
    """A text as a part of a rule or a terminal."""
    return json.dumps(text)
