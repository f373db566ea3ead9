"""Reads calls out of texts that come in pieces."""

import itertools
import random
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from freehold.serve.toolcalls.formats import Format
from freehold.serve.toolcalls.reader import CallReader
from freehold.text.parts import CallArguments, CallBegin, CallEnd, Content, Message, Part, fold


def read_calls(form: Format, tools: Mapping[str, Mapping[str, Any]], pieces: Iterable[str]) -> Message:
    """What a text says that comes in these pieces. Calls have the ids 0, 1, …"""
    reader = CallReader(form.parser, tools, map(str, itertools.count()).__next__)
    parts: list[Part] = []
    for piece in pieces:
        parts += reader.push(piece)
    parts += reader.finish()
    check_order(parts)
    return fold(parts)


def check_order(parts: list[Part]) -> None:
    """Begin, arguments, end; one call after the other; no part is empty."""
    current: CallBegin | None = None
    num_calls = 0
    for part in parts:
        match part:
            case CallBegin(index):
                assert index == num_calls
                current, num_calls = part, num_calls + 1
            case CallArguments(index, text):
                assert current is not None
                assert current.index == index
                assert text
            case CallEnd(index):
                assert current is not None
                assert current.index == index
                current = None
            case Content(text):
                assert text


def cuts(text: str) -> list[list[str]]:
    """The text whole, by characters, cut in two at every place, and cut at random."""
    ways = [[text], list(text), *([text[:place], text[place:]] for place in range(1, len(text)))]
    chance = random.Random(text)
    for _ in range(20):
        places = sorted(chance.sample(range(len(text) + 1), min(len(text), chance.randint(2, 12))))
        ways.append([text[begin:end] for begin, end in pairwise([0, *places, len(text)])])
    return ways
