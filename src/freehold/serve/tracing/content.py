"""Messages and tools in the form that OpenTelemetry's conventions give them."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from freehold.serve.schema import Message
from freehold.serve.toolcalls.schema import Tool
from freehold.text.parts import Message as Said

Part = dict[str, Any]

MAX_NESTED = 64
"""Lists and objects in a call's arguments. Whoever takes more apart goes as deep."""
MAX_INTEGER = 2**63 - 1

_FINISH_REASONS = {"tool_calls": "tool_call"}
"""Where the conventions spell them in their own way."""


def told(messages: Iterable[Message]) -> list[Part]:
    """What the model is told: each message with its parts."""
    return [{"role": message.role, "parts": _parts(message)} for message in messages]


def instructions(message: Message) -> list[Part]:
    """What the system says apart from the messages."""
    return _parts(message)


def said(message: Said, reason: str) -> Part:
    """What the model answers."""
    parts: list[Part] = []
    if message.reasoning:
        parts.append({"type": "reasoning", "content": message.reasoning})
    if message.content:
        parts.append(_text(message.content))
    parts += [_call(call.call_id, call.name, call.arguments) for call in message.calls]
    return {"role": "assistant", "parts": parts, "finish_reason": _FINISH_REASONS.get(reason, reason)}


def defined(tools: Sequence[Tool]) -> list[Part]:
    """The tools that the model may call."""
    definitions = [_bounded(msgspec.to_builtins(tool.function)) for tool in tools]
    return [{"type": "function", **definition} for definition in definitions]


def _parts(message: Message) -> list[Part]:
    content = message.content or ""
    texts = [content] if isinstance(content, str) else [part.text for part in content]
    if message.role == "tool":
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": "".join(texts)}]
    parts: list[Part] = []
    if message.reasoning_content:
        parts.append({"type": "reasoning", "content": message.reasoning_content})
    parts += [_text(text) for text in texts if text]
    parts += [_call(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    return parts


def _text(text: str) -> Part:
    return {"type": "text", "content": text}


def _call(call_id: str | None, name: str, arguments: str) -> Part:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": _json(arguments)}


def _json(arguments: str) -> Any:
    """Arguments as what they mean; as they were written if the call was cut short, or they mean too much."""
    if arguments.count("[") + arguments.count("{") > MAX_NESTED:
        return arguments
    try:
        return _bounded(msgspec.json.decode(arguments))
    except msgspec.DecodeError:
        return arguments


def _bounded(value: Any) -> Any:
    """A value without integers that OTLP can't hold."""
    match value:
        case dict():
            return {name: _bounded(inner) for name, inner in value.items()}
        case list():
            return [_bounded(inner) for inner in value]
        case int() if abs(value) > MAX_INTEGER:
            return str(value)
    return value
