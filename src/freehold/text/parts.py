"""What an answer is made of: content, reasoning and calls of tools, as parts that come one after the other.

A stream sends the parts on as they come; a plain answer is their fold, `Message`. There is no other way to either.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec


class Content(msgspec.Struct, frozen=True):
    """More of what the model says; never empty."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """More of what the model thinks; never empty."""

    text: str


class CallBegin(msgspec.Struct, frozen=True):
    """The model calls a tool. Its arguments follow, then its end, before another call begins.

    Attributes:
        index: which of the answer's calls, from 0.
        call_id: made up for this call; no other has it.
        name: the tool's.
    """

    index: int
    call_id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """More of a call's arguments, never empty: a part of a JSON object as the model wrote it."""

    index: int
    text: str


class CallEnd(msgspec.Struct, frozen=True):
    """A call is complete: its arguments are a JSON object. A call that was cut short has no end."""

    index: int


Part = Content | Reasoning | CallBegin | CallArguments | CallEnd


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool.

    Attributes:
        arguments: JSON of an object, as the model wrote it; the beginning of one if the call isn't complete.
    """

    call_id: str
    name: str
    arguments: str
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Message:
    """What the parts of a whole answer make."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def fold(parts: Iterable[Part]) -> Message:
    """The message that an answer's parts make."""
    content: list[str] = []
    reasoning: list[str] = []
    begun: list[CallBegin] = []
    arguments: list[list[str]] = []
    ended: set[int] = set()
    for part in parts:
        match part:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallBegin():
                begun.append(part)
                arguments.append([])
            case CallArguments(index, text):
                arguments[index].append(text)
            case CallEnd(index):
                ended.add(index)
    calls = tuple(Call(call.call_id, call.name, "".join(arguments[call.index]), call.index in ended) for call in begun)
    return Message("".join(content), "".join(reasoning), calls)


class PartReader(Protocol):
    """Takes text apart as it comes. How the text was cut changes nothing but where the parts are cut.

    Every reader gives out what is certain at once, holds back what isn't, and loses nothing but the markup that it
    knows and white space beside it.
    """

    def push(self, text: str) -> list[Part]:
        """What is certain now."""
        ...

    def finish(self) -> list[Part]:
        """What was held back: no more text comes."""
        ...


class ReasoningReader(PartReader, Protocol):
    """A reader that tells reasoning from content."""

    @property
    def is_open(self) -> bool:
        """Whether what comes next is reasoning, as far as is known."""
        ...

    @property
    def is_undecided(self) -> bool:
        """Whether what was held back may turn out to be a tag that opens reasoning."""
        ...
