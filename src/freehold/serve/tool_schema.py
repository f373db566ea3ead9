"""Tools in bodies of requests and answers: what may be called, and what was called."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType


class FunctionCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call that the assistant made; `arguments` is JSON in a string."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """One of the calls in an assistant's message, sent or answered."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class FunctionDelta(msgspec.Struct):
    """What a chunk adds to a call: its name in the first, and more of its arguments."""

    name: str | UnsetType = UNSET
    arguments: str = ""


class ToolCallDelta(msgspec.Struct):
    """What a chunk adds to one of the calls. The first of a call has its id and type."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
