"""Telling a model of tools in words, where its template doesn't, or writes calls in a way that isn't read here."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from freehold.serve.toolcalls.choice import described, written_call
from freehold.serve.toolcalls.schema import Function

_Plain = dict[str, Any]

_INTRODUCTION = "You can call these functions:"
_INSTRUCTION = (
    'To call a function, answer with nothing but a JSON object: {"name": "the function\'s name", "arguments": {"its '
    'parameter": "a value"}}. To call several, answer with a list of such objects. If you need no function, answer in '
    "words."
)


def tell_of_tools(
    messages: Sequence[_Plain], tools: Sequence[Function], role: Literal["system", "user"]
) -> list[_Plain]:
    """Messages of which one tells of the tools: a system's at the beginning, the first user's, or a new one."""
    listed = "\n".join(msgspec.json.encode(described(tool)["function"]).decode() for tool in tools)
    text = f"{_INTRODUCTION}\n{listed}\n\n{_INSTRUCTION}"
    told = list(messages)
    for position, message in enumerate(messages):
        if message["role"] == role and (role == "user" or position == 0):
            told[position] = _with_text(message, text, at_end=role == "system")
            return told
    return [{"role": role, "content": text}, *told]


def without_tool_roles(messages: Sequence[_Plain]) -> list[_Plain]:
    """Messages in which calls are what the assistant said, and their results what the user said next."""
    names: dict[str, str] = {}
    told: list[_Plain] = []
    follows_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and follows_result:
            told[-1] = _with_text(told[-1], _result(message, names), at_end=True)
        elif is_result:
            told.append({"role": "user", "content": _result(message, names)})
        elif message.get("tool_calls"):
            told.append(_said(message, names))
        else:
            told.append(message)
        follows_result = is_result
    return told


def _said(message: _Plain, names: dict[str, str]) -> _Plain:
    functions = [call["function"] for call in message["tool_calls"]]
    names.update((call["id"], call["function"]["name"]) for call in message["tool_calls"])
    written = [written_call(function["name"], function["arguments"]) for function in functions]
    text = written[0] if len(written) == 1 else f"[{', '.join(written)}]"
    bare = {name: value for name, value in message.items() if name != "tool_calls"}
    return _with_text(bare, text, at_end=True)


def _result(message: _Plain, names: dict[str, str]) -> str:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
    name = message.get("name") or names.get(message.get("tool_call_id") or "")
    return f"Result of {name}:\n{text}" if name else f"Result:\n{text}"


def _with_text(message: _Plain, text: str, *, at_end: bool) -> _Plain:
    """A message that says one thing more."""
    content = message.get("content") or ""
    if isinstance(content, list):
        part = {"type": "text", "text": text}
        return {**message, "content": [*content, part] if at_end else [part, *content]}
    return {**message, "content": "\n\n".join(filter(None, (content, text) if at_end else (text, content)))}
