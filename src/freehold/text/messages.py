"""Chat messages as templates expect them."""

from collections.abc import Mapping, Sequence
from typing import Any

from freehold.errors import RequestError, shown

# One idea under three names, by year. Templates read the first; a few older ones the second.
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


def normalize(messages: Sequence[Mapping[str, Any]], *, keep_parts: bool) -> list[dict[str, Any]]:
    """Copies of the messages in one shape: absent and null content are empty content, null fields are absent.

    Arguments:
        keep_parts: the template goes through lists of content parts itself; else their texts are joined by line ends.

    Raises:
        RequestError: no messages, or one that has no role, or content of another type than text and text parts.
    """
    if not messages:
        raise RequestError("messages is empty; send at least one message", param="messages", code="invalid_value")
    return [_normalize_one(message, position, keep_parts) for position, message in enumerate(messages)]


def _normalize_one(message: Mapping[str, Any], position: int, keep_parts: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise _wrong(position, f"is {shown(message)}; an object with role and content is needed")
    if not isinstance(message.get("role"), str):
        raise _wrong(position, f"has role {shown(message.get('role'))}; a string is needed")
    fields = {name: value for name, value in message.items() if value is not None}
    content = fields.setdefault("content", "")
    if isinstance(content, list):
        fields["content"] = content if keep_parts else "\n".join(_texts(content, position))
    elif not isinstance(content, str):
        raise _wrong(position, f"has content {shown(content)}; a string or a list of parts is needed")
    reasoning = next((fields[name] for name in _REASONING_FIELDS if name in fields), None)
    if reasoning is not None:
        fields = {"thinking": reasoning, **fields, "reasoning_content": reasoning}
    return fields


def _texts(parts: Sequence[Any], position: int) -> list[str]:
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else part
            raise _wrong(position, f"has a content part of type {shown(kind)}; this model reads text parts only")
        texts.append(text)
    return texts


def _wrong(position: int, what: str) -> RequestError:
    return RequestError(f"messages[{position}] {what}", param="messages", code="invalid_value")


def check_continuable(messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to continue a message that isn't the assistant's, or that follows another of the assistant's.

    Raises:
        RequestError: see above.
    """
    if messages[-1]["role"] != "assistant":
        raise _wrong(
            len(messages) - 1,
            f"has role {messages[-1]['role']!r}; continue_final_message needs an assistant message at the end",
        )
    if len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise _wrong(
            len(messages) - 1, "and the one before it are both the assistant's; only one message can be continued"
        )


def append_to_content(message: dict[str, Any], tail: str) -> None:
    """Append to the message's text: to its last text part if it has parts. Copies what it changes.

    Raises:
        RequestError: there is no text to append to.
    """
    content = message["content"]
    if isinstance(content, str):
        message["content"] = content + tail
        return
    for nth in range(len(content) - 1, -1, -1):
        if isinstance(content[nth], Mapping) and isinstance(content[nth].get("text"), str):
            part = {**content[nth], "text": content[nth]["text"] + tail}
            message["content"] = [*content[:nth], part, *content[nth + 1 :]]
            return
    raise RequestError(
        "the last message has no text to continue; send content as text", param="messages", code="invalid_value"
    )
