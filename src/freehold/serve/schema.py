"""Bodies of requests and answers. The one schema of the HTTP API; field names and meanings are OpenAI's.

Requests: `body.decode` refuses what stands in none of a struct's fields, its `neutral` and its `ignored` ones. Fields
of `None` mean absent. Types are checked here, values where they are used (`freehold.text.params`, the surfaces).
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from freehold.serve import field_types as types
from freehold.serve.structured_schema import ResponseFormat, StructuredOutputs
from freehold.serve.toolcalls.schema import Tool, ToolCall, ToolCallDelta, ToolChoice

IGNORED = frozenset({"user", "metadata", "safety_identifier"})
"""Fields that are accepted and do nothing: they describe the caller, as traces may tell."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": ("none",),
    "store": (False,),
    "suffix": ("",),
    "thinking_token_budget": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields of the API that aren't supported yet, with the values that ask for nothing. Null asks for nothing anywhere."""


class Body(msgspec.Struct, kw_only=True):
    """A request's body.

    Attributes:
        ignored: fields that are accepted and do nothing.
        neutral: fields that aren't supported, with the values that ask for nothing, which are accepted.
    """

    ignored: ClassVar[frozenset[str]] = frozenset()
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a stream. `include_obfuscation` may only be false: nothing is obfuscated. `continuous_usage_stats` is
    vLLM's: with `include_usage`, every chunk tells how much was used so far."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] | None = None


class SamplingFields(Body, kw_only=True):
    """What both surfaces say about how to pick tokens, how many, in which form to answer, and how soon."""

    ignored: ClassVar[frozenset[str]] = IGNORED
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = NEUTRAL

    model: str | None = None
    max_tokens: types.NumTokens | None = None
    temperature: types.Temperature | None = None
    top_p: types.Share | None = None
    top_k: types.TopK | None = None
    min_p: types.Share | None = None
    n: types.NumAnswers | None = None
    seed: types.Seed | None = None
    stop: types.Stop | None = None
    stop_token_ids: types.StopTokenIds | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    min_tokens: types.NumTokens | None = None
    presence_penalty: types.Penalty | None = None
    frequency_penalty: types.Penalty | None = None
    repetition_penalty: types.RepetitionPenalty | None = None
    logit_bias: types.LogitBias | None = None
    allowed_token_ids: types.AllowedTokenIds | None = None
    prompt_logprobs: types.NumLogprobs | None = None
    cache_salt: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    prompt_cache_key: types.CacheKey | None = None
    prompt_cache_retention: types.CacheRetention | None = None
    service_tier: types.ServiceTier | None = None
    priority: types.Priority | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    user: msgspec.Raw | UnsetType = UNSET
    safety_identifier: msgspec.Raw | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class TextPart(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a message's content. Only text is understood."""

    type: Literal["text"]
    text: str


class Message(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One message of a chat. Content may be text or parts of text; null or absent only where the assistant's message
    has something else to say."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[Any] | None = None

    def __post_init__(self) -> None:
        says_more = self.role == "assistant" and (self.tool_calls or self.reasoning_content)
        if self.content is None and not says_more:
            raise ValueError("Object missing required field `content`")  # in msgspec's words, which has the place


_SAYS_SOMETHING = [
    {"required": ["content"], "properties": {"content": {"not": {"type": "null"}}}},
    {
        "required": ["tool_calls"],
        "properties": {"role": {"const": "assistant"}, "tool_calls": {"type": "array", "minItems": 1}},
    },
    {
        "required": ["reasoning_content"],
        "properties": {"role": {"const": "assistant"}, "reasoning_content": {"type": "string", "minLength": 1}},
    },
]
SayingMessage = Annotated[Message, types.told(anyOf=_SAYS_SOMETHING)]
"""A message, with what `Message` itself checks told in the OpenAPI document."""


class ChatRequest(SamplingFields, kw_only=True):
    """Body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[SayingMessage], types.told(minItems=1)]
    max_completion_tokens: types.SomeTokens | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: types.NumLogprobs | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_token_budget: types.NumTokens | None = None


class CompletionRequest(SamplingFields, kw_only=True):
    """Body of ``POST /v1/completions``. `logprobs` counts the likeliest tokens to list; false asks for nothing."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: int | Literal[False] | None = None


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Prompt tokens whose keys and values were reused."""

    cached_tokens: int = 0


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """Output tokens that the model thought with."""

    reasoning_tokens: int = 0


class Usage(msgspec.Struct):
    """Counts of token ids: the prompt once, all choices' outputs summed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails = PromptTokensDetails()
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()


class TopLogprob(msgspec.Struct):
    """One of the likeliest tokens at a place. `bytes` is null for a token that adds nothing to the text."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprob(TopLogprob):
    """A token of the answer, with the likeliest ones at its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """Log probabilities of a chat's answer, or of a chunk's part of it."""

    content: list[ChatTokenLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct):
    """Log probabilities of the completions surface: four lists with an entry a token.

    The tokens are the pieces of the text that begin at `text_offset`, in code points.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(msgspec.Struct):
    """How likely a token was at a place of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class ChatMessage(msgspec.Struct):
    """The assistant's answer. Content is null if it only calls tools."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    """One of the `n` answers."""

    index: int
    message: ChatMessage
    finish_reason: str
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct):
    """Answer of ``POST /v1/chat/completions`` without ``stream``."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str
    object: Literal["chat.completion"] = "chat.completion"
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Delta(msgspec.Struct):
    """What a chunk adds to the answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    """What a chunk adds to one of the `n` answers."""

    index: int
    delta: Delta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    """One event of a streamed chat answer."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    system_fingerprint: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class TextChoice(msgspec.Struct):
    """One answer of the completions surface, or what a chunk adds to it."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: TextLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(msgspec.Struct):
    """Answer of ``POST /v1/completions``, whole or one event of its stream."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    system_fingerprint: str
    object: Literal["text_completion"] = "text_completion"
    usage: Usage | UnsetType | None = UNSET


class ModelCard(msgspec.Struct):
    """A served model and the limits that a client must know."""

    id: str
    created: int
    max_model_len: int
    limits: dict[str, int]
    system_fingerprint: str
    object: Literal["model"] = "model"
    owned_by: str = "freehold"


class ModelList(msgspec.Struct):
    """Answer of ``GET /v1/models``."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Failure(msgspec.Struct):
    """What went wrong: `param` names the request's field, `code` is for machines."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class FailureBody(msgspec.Struct):
    """Body of every answer that isn't 2xx, and the last event before ``[DONE]`` of a stream that failed."""

    error: Failure
