"""Which tools a request lets the model call, and which it must."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from freehold.errors import RequestError, shown
from freehold.serve.schema import ChatRequest
from freehold.serve.toolcalls.schema import Function, NamedTool, Tool
from freehold.serve.toolcalls.writing import Callable

MAX_TOOLS = 128
"""In one request."""

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""What a function without parameters takes."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request wants of its tools.

    Attributes:
        shown: all of them, for the prompt.
        callable: those that may be called.
        is_forced: the answer is a call or several.
        is_named: the request names the one.
        one_call: one call at most.
    """

    shown: Sequence[Function]
    callable: Sequence[Callable]
    is_forced: bool
    is_named: bool
    one_call: bool


def tool_use(body: ChatRequest, *, auto: bool) -> ToolUse | None:
    """What a body wants of its tools; None if it has none, or none may be called.

    Args:
        auto: the model may decide whether to call.

    Raises:
        RequestError: tools that can't be told apart or have no object of parameters, or a choice among none or of
            another.
    """
    choice = body.tool_choice
    functions = _functions(body.tools or [])
    if not functions:
        if isinstance(choice, NamedTool) or choice == "required":
            raise RequestError("tool_choice asks for a call, but there are no tools to call", param="tool_choice")
        return None
    if choice == "none":
        return None
    callables = [
        Callable(
            function.name,
            parameters_of(function),
            f"tools[{position}].function.parameters",
            is_lenient=choice in (None, "auto") and not function.strict,
        )
        for position, function in enumerate(functions)
    ]
    if isinstance(choice, NamedTool):
        named = [each for each in callables if each.name == choice.function.name]
        if not named:
            raise RequestError(
                f"tool_choice names {shown(choice.function.name)}, which is none of the tools", param="tool_choice"
            )
        return ToolUse(functions, named, is_forced=True, is_named=True, one_call=True)
    if choice != "required" and not auto:
        raise RequestError(
            "tool_choice is auto, which this server was started without (--no-enable-auto-tool-choice); send "
            "required, none, or the name of a function",
            param="tool_choice",
        )
    return ToolUse(
        functions,
        callables,
        is_forced=choice == "required",
        is_named=False,
        one_call=body.parallel_tool_calls is False,
    )


def parameters_of(function: Function) -> dict[str, Any]:
    """The schema of a function's arguments: always of an object."""
    if function.parameters is None or function.parameters == {}:
        return NO_PARAMETERS
    return {"type": "object", **function.parameters}


def described(function: Function) -> dict[str, Any]:
    """A tool as templates know it."""
    return {
        "type": "function",
        "function": {
            "name": function.name,
            "description": function.description or "",
            "parameters": parameters_of(function),
        },
    }


def _functions(tools: Sequence[Tool]) -> list[Function]:
    if len(tools) > MAX_TOOLS:
        raise RequestError(f"tools holds {len(tools)} tools; up to {MAX_TOOLS} are allowed", param="tools")
    names: set[str] = set()
    for position, tool in enumerate(tools):
        function = tool.function
        field = f"tools[{position}].function"
        if function.name in names:
            raise RequestError(f"{field}.name is {function.name!r}, as of another tool", param=f"{field}.name")
        names.add(function.name)
        kind = (function.parameters or {}).get("type", "object")
        if kind != "object":
            raise RequestError(
                f"{field}.parameters has the type {shown(kind)}; arguments are an object",
                param=f"{field}.parameters",
            )
    return [tool.function for tool in tools]


def written_call(name: str, arguments: object) -> str:
    """A call as the JSON format writes it."""
    return f'{{"name": {_json(name)}, "arguments": {_json(arguments)}}}'


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
