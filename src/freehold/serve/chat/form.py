"""The chat surface's form of an answer, in chunks or whole."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from freehold.serve.answer import Head
from freehold.serve.framing import DATA_ONLY, Framing
from freehold.serve.generation import Piece
from freehold.serve.logprobs import chat_logprobs, prompt_logprobs
from freehold.serve.schema import ChatChoice, ChatChunk, ChatCompletion, ChatMessage, ChunkChoice, Delta, Usage
from freehold.serve.toolcalls.schema import FunctionCall, FunctionDelta, ToolCall, ToolCallDelta
from freehold.text.params import SamplingParams
from freehold.text.parts import CallArguments, CallBegin, Content, Message, Part, Reasoning
from freehold.text.stream import TextResult


@dataclass(frozen=True, slots=True)
class ChatForm:
    """How a chat is answered.

    Attributes:
        is_named: the request names the function to call. The answer then ends with ``stop``, as OpenAI's does, where
            others that call tools end with ``tool_calls``.
    """

    head: Head
    prompt_ids: Sequence[int]
    params: SamplingParams
    framing: Framing = DATA_ONLY
    is_named: bool = False

    def begin(self, index: int) -> Iterator[ChatChunk]:
        """The role."""
        chunk = self._chunk(ChunkChoice(index, Delta(role="assistant", content="")))
        if self.head.with_ids and index == 0:
            chunk.prompt_token_ids = list(self.prompt_ids)
        yield chunk

    def go_on(self, piece: Piece) -> Iterator[ChatChunk]:
        """New parts, or ids that add none yet."""
        delta = piece.delta
        token_ids = list(delta.token_ids) if self.head.with_ids and delta.token_ids else UNSET
        if not delta.parts and not token_ids and not delta.logprobs:
            return
        logprobs = chat_logprobs(delta.logprobs) if delta.logprobs else None
        yield self._chunk(ChunkChoice(piece.index, delta_of(delta.parts), logprobs=logprobs, token_ids=token_ids))

    def end(self, index: int, result: TextResult) -> Iterator[ChatChunk]:
        """Why it ended, and what vLLM's field tells of the prompt."""
        chunk = self._chunk(ChunkChoice(index, Delta(), finish_reason=self._reason(result)))
        if self.params.prompt_logprobs is not None and index == 0:
            chunk.prompt_logprobs = prompt_logprobs(result.prompt_logprobs, self.params.prompt_logprobs)
        yield chunk

    def sum_up(self, usage: Usage) -> Iterator[ChatChunk]:
        """Usage, and no choices."""
        chunk = self._chunk()
        chunk.usage = usage
        yield chunk

    def whole(self, results: Sequence[TextResult], usage: Usage) -> ChatCompletion:
        """All at once."""
        head = self.head
        chat = ChatCompletion(
            id=head.id,
            created=head.created,
            model=head.model,
            system_fingerprint=head.fingerprint,
            choices=[self._choice(index, result) for index, result in enumerate(results)],
            usage=usage,
            prompt_token_ids=list(self.prompt_ids) if head.with_ids else UNSET,
        )
        if self.params.prompt_logprobs is not None:
            chat.prompt_logprobs = prompt_logprobs(results[0].prompt_logprobs, self.params.prompt_logprobs)
        return chat

    def _choice(self, index: int, result: TextResult) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=message_of(result.message),
            finish_reason=self._reason(result),
            logprobs=None if self.params.logprobs is None else chat_logprobs(result.logprobs),
            token_ids=list(result.token_ids) if self.head.with_ids else UNSET,
        )

    def _reason(self, result: TextResult) -> str:
        reason = result.finish_reason
        return "stop" if reason == "tool_calls" and self.is_named else reason

    def _chunk(self, *choices: ChunkChoice) -> ChatChunk:
        head = self.head
        usage = UNSET if head.tells_usage == "never" else None
        return ChatChunk(head.id, head.created, head.model, list(choices), head.fingerprint, usage=usage)


def delta_of(parts: Iterable[Part]) -> Delta:
    """Parts as one chunk's delta; each call that they add to has one entry."""
    delta, calls = Delta(), dict[int, ToolCallDelta]()
    for part in parts:
        match part:
            case Content(text):
                delta.content = text if delta.content is UNSET else delta.content + text
            case Reasoning(text):
                delta.reasoning_content = text if delta.reasoning_content is UNSET else delta.reasoning_content + text
            case CallBegin(index, call_id, name):
                calls[index] = ToolCallDelta(index, FunctionDelta(name), call_id, "function")
            case CallArguments(index, text):
                calls.setdefault(index, ToolCallDelta(index, FunctionDelta())).function.arguments += text
    if calls:
        delta.tool_calls = list(calls.values())
    return delta


def message_of(message: Message) -> ChatMessage:
    """A whole message. One that calls tools and says nothing has no content."""
    calls = [ToolCall(call.call_id, FunctionCall(call.name, call.arguments)) for call in message.calls]
    return ChatMessage(
        content=None if calls and not message.content else message.content,
        reasoning_content=message.reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
