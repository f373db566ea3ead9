"""Tools in bodies of requests and answers: what may be called, and what was called."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from freehold.serve.field_types import TOOL_NAME


class FunctionCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call that the assistant made; `arguments` is JSON in a string."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """One of the calls in an assistant's message, sent or answered."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


ToolName = Annotated[str, msgspec.Meta(pattern=TOOL_NAME)]


class Function(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What may be called.

    Attributes:
        parameters: JSON schema of an object; absent: there are none.
        strict: changes nothing: calls that are forced match the schema anyway, others are as the model writes them.
    """

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """A tool of a request. Functions are the only ones."""

    type: Literal["function"]
    function: Function


class FunctionName(msgspec.Struct, forbid_unknown_fields=True):
    """Names a function."""

    name: str


class NamedTool(msgspec.Struct, forbid_unknown_fields=True):
    """The tool that must be called."""

    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool


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
