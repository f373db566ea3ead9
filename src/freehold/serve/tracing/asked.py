"""What a request asks for, from its body to the attributes of its span."""

from typing import Any

import msgspec
from msgspec import UnsetType

from freehold.observe import genai
from freehold.serve.entrance.record import Record
from freehold.serve.schema import ChatRequest, CompletionRequest, Message, SamplingFields, TextPart
from freehold.serve.tracing.content import MAX_INTEGER
from freehold.serve.tracing.notes import Asked, Attributes

MAX_NAME_LENGTH = 200
"""Characters that Langfuse takes in the name of a user, a session or a tag; the rest is cut off."""
MAX_TAGS = 10

_USERS = ("langfuse_user_id", "user_id")
_SESSIONS = ("langfuse_session_id", "session_id", "conversation_id")
_TAGS = ("langfuse_tags", "tags")


def note_chat(record: Record, body: ChatRequest, num_bytes: int, *, is_system_apart: bool) -> None:
    """Note what a chat asks for, if it is traced.

    Args:
        is_system_apart: its surface has what the system says apart from the messages.
    """
    if record.notes is None:
        return
    attributes = _attributes(body, body.max_completion_tokens or body.max_tokens)
    if body.reasoning_effort is not None:
        attributes[genai.REQUEST_REASONING_LEVEL] = body.reasoning_effort
    with_content = record.notes.with_content
    record.notes.asked = Asked(
        attributes=attributes,
        **_belonging(body),
        messages=body.messages if with_content else None,
        tools=body.tools if with_content else None,
        is_system_apart=is_system_apart,
        num_bytes=num_bytes,
    )


def note_completion(record: Record, body: CompletionRequest, num_bytes: int) -> None:
    """Note what a completion asks for, if it is traced. Prompts of ids have no text to be shown."""
    if record.notes is None:
        return
    messages = None
    if record.notes.with_content:
        prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        texts = [TextPart("text", prompt) for prompt in prompts if isinstance(prompt, str)]
        messages = [Message("user", texts)] if texts else None
    record.notes.asked = Asked(
        attributes=_attributes(body, body.max_tokens), **_belonging(body), messages=messages, num_bytes=num_bytes
    )


def _attributes(body: SamplingFields, max_tokens: int | None) -> Attributes:
    """Parameters that the request gives."""
    stop = [body.stop] if isinstance(body.stop, str) else body.stop
    given: dict[str, Any] = {
        genai.REQUEST_MODEL: body.model,
        genai.REQUEST_MAX_TOKENS: max_tokens,
        genai.REQUEST_TEMPERATURE: body.temperature,
        genai.REQUEST_TOP_P: body.top_p,
        genai.REQUEST_TOP_K: body.top_k,
        genai.REQUEST_SEED: body.seed if (body.seed or 0) <= MAX_INTEGER else None,
        genai.REQUEST_STOP_SEQUENCES: stop,
        genai.REQUEST_FREQUENCY_PENALTY: body.frequency_penalty,
        genai.REQUEST_PRESENCE_PENALTY: body.presence_penalty,
        genai.REQUEST_STREAM: body.stream or None,
        genai.REQUEST_CHOICE_COUNT: None if body.n == 1 else body.n,
        genai.OUTPUT_TYPE: _output_type(body),
    }
    return {name: value for name, value in given.items() if value is not None}


def _output_type(body: SamplingFields) -> str | None:
    """The kind of output that the request says it wants."""
    if body.response_format is None:
        return None
    return "text" if body.response_format.__struct_config__.tag == "text" else "json"


def _belonging(body: SamplingFields) -> dict[str, Any]:
    """Whom the request is for, and what it belongs to."""
    decoded = _decoded(body.metadata)
    metadata = decoded if isinstance(decoded, dict) else {}
    tags = next((tags for key in _TAGS if (tags := metadata.get(key))), ())
    listed = [tags] if isinstance(tags, str) else tags if isinstance(tags, list) else []
    conversation = _first_name(*(metadata.get(key) for key in _SESSIONS))
    return {
        "user": _first_name(
            _decoded(body.user), _decoded(body.safety_identifier), *(metadata.get(key) for key in _USERS)
        ),
        "session": conversation or _first_name(body.prompt_cache_key),
        "conversation": conversation,
        "tags": tuple(tag[:MAX_NAME_LENGTH] for tag in listed if isinstance(tag, str))[:MAX_TAGS],
    }


def _decoded(raw: msgspec.Raw | UnsetType) -> Any:
    """What a field holds, whatever that is; None if nothing can be made of it."""
    try:
        return None if isinstance(raw, UnsetType) else msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None


def _first_name(*candidates: object) -> str:
    return next((name[:MAX_NAME_LENGTH] for name in candidates if name and isinstance(name, str)), "")
