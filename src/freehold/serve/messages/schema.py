"""Bodies of ``POST /v1/messages`` and ``/v1/messages/count_tokens``. Field names and meanings are Anthropic's."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from freehold.serve import field_types as types
from freehold.serve.schema import Body
from freehold.serve.toolcalls.schema import ToolName

MESSAGES_PATH = "/v1/messages"


class CacheControl(msgspec.Struct, forbid_unknown_fields=True):
    """Keep what was computed of the prompt up to here for so long."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class PlainText(msgspec.Struct, forbid_unknown_fields=True):
    """A text where nothing else may stand."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: None = None


class TextBlock(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """Something that was said."""

    text: str
    cache_control: CacheControl | None = None
    citations: None = None


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking", forbid_unknown_fields=True):
    """What an earlier answer thought. Its signature isn't looked at."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use", forbid_unknown_fields=True):
    """A call of a tool in an earlier answer."""

    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: None = None
    toolset_name: None = None


class ToolResultBlock(msgspec.Struct, tag_field="type", tag="tool_result", forbid_unknown_fields=True):
    """What a call gave."""

    tool_use_id: str
    content: str | list[PlainText] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None
    toolset_name: None = None


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock


class Turn(msgspec.Struct, forbid_unknown_fields=True):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class ToolDefinition(msgspec.Struct, forbid_unknown_fields=True):
    """A tool that may be called. Tools that a server runs itself aren't known here.

    Attributes:
        eager_input_streaming: input is streamed as it comes in any case.
    """

    name: ToolName
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None
    eager_input_streaming: bool | None = None
    defer_loading: Literal[False] | None = None
    allowed_callers: list[Literal["direct"]] | None = None


class AutoChoice(msgspec.Struct, tag_field="type", tag="auto", forbid_unknown_fields=True):
    """The model decides."""

    disable_parallel_tool_use: bool | None = None


class AnyChoice(msgspec.Struct, tag_field="type", tag="any", forbid_unknown_fields=True):
    """The answer calls tools."""

    disable_parallel_tool_use: bool | None = None


class NamedChoice(msgspec.Struct, tag_field="type", tag="tool", forbid_unknown_fields=True):
    """The answer calls this tool."""

    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(msgspec.Struct, tag_field="type", tag="none", forbid_unknown_fields=True):
    """No tool is called."""


Choice = AutoChoice | AnyChoice | NamedChoice | NoChoice


class ThinkingEnabled(msgspec.Struct, tag_field="type", tag="enabled", forbid_unknown_fields=True):
    """Think, so long at most."""

    budget_tokens: types.SomeTokens
    display: Literal["summarized"] | None = None


class ThinkingAdaptive(msgspec.Struct, tag_field="type", tag="adaptive", forbid_unknown_fields=True):
    """Think as long as the model wants."""

    display: Literal["summarized"] | None = None


class ThinkingDisabled(msgspec.Struct, tag_field="type", tag="disabled", forbid_unknown_fields=True):
    """Don't think."""


Thinking = ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled


class JsonFormat(msgspec.Struct, forbid_unknown_fields=True):
    """The answer is JSON that a schema accepts."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    """What the answer must be, and how much the model shall think for it."""

    format: JsonFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class PromptFields(Body, kw_only=True):
    """What a prompt is made of."""

    model: str | None = None
    messages: Annotated[list[Turn], types.told(minItems=1)]
    system: str | list[PlainText] | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None


class MessagesRequest(PromptFields, kw_only=True):
    """Body of ``POST /v1/messages``. `seed` is ours."""

    ignored: ClassVar[frozenset[str]] = frozenset({"metadata", "user_profile_id", "workspace_id"})
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "container": (),
        "mcp_servers": ([],),
        "speed": ("standard",),
    }

    max_tokens: types.SomeTokens
    stop_sequences: types.StopSequences | None = None
    stream: bool | None = None
    temperature: types.Temperature | None = None
    top_p: types.Share | None = None
    top_k: types.TopK | None = None
    seed: types.Seed | None = None
    service_tier: types.MessageTier | None = None
    metadata: msgspec.Raw | UnsetType = UNSET


class CountTokensRequest(PromptFields, kw_only=True):
    """Body of ``POST /v1/messages/count_tokens``."""


class TokenCount(msgspec.Struct):
    """Answer of ``POST /v1/messages/count_tokens``."""

    input_tokens: int


class TextContent(msgspec.Struct, tag_field="type", tag="text"):
    """A text of the answer."""

    text: str


class ThinkingContent(msgspec.Struct, tag_field="type", tag="thinking"):
    """What the model thought. The signature certifies nothing."""

    thinking: str
    signature: str


class ToolUseContent(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of a tool.

    Attributes:
        input: a JSON object as the model wrote it, which may hold what not every reader takes, such as ``1e999``. Of a
            call that was cut short, what is complete.
    """

    id: str
    name: str
    input: Annotated[msgspec.Raw, types.told(type="object")]


Content = TextContent | ThinkingContent | ToolUseContent

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """Output tokens that the model thought with."""

    thinking_tokens: int = 0


class MessageUsage(msgspec.Struct):
    """Counts of token ids. The prompt's are the sum of those that were computed, read from the cache, and computed to
    be kept there."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()


class MessageAnswer(msgspec.Struct):
    """Answer of ``POST /v1/messages`` without ``stream``; in a stream's first event, without content and end."""

    id: str
    model: str
    content: list[Content]
    usage: MessageUsage
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    """An answer begins. What was read from the cache is known at its end."""

    message: MessageAnswer


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """A block of content begins, still empty."""

    index: int
    content_block: Content


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    """More thinking."""

    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta"):
    """The signature of what was thought."""

    signature: str


class InputJsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    """More of a call's input: a part of a JSON object."""

    partial_json: str


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    """More of the block that has begun last."""

    index: int
    delta: Delta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    """A block has ended."""

    index: int


class MessageEnd(msgspec.Struct):
    """Why an answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None = None


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    """An answer's end, and all of its usage."""

    delta: MessageEnd
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """The stream ends."""


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """The server is still there."""


MessageEvent = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping


class MessageError(msgspec.Struct):
    """What went wrong; the message names the request's field."""

    type: str
    message: str


class MessageFailure(msgspec.Struct, tag_field="type", tag="error"):
    """Body of an answer that isn't 2xx, and the last event of a stream that failed."""

    error: MessageError
    request_id: str
