"""The Messages API's form of an answer, in events or whole."""

from collections.abc import Iterator, Sequence

from freehold.serve.chat.chat import Planned
from freehold.serve.framing import TYPED_EVENTS, Framing
from freehold.serve.generation import Piece
from freehold.serve.messages.blocks import BlockWriter, fold
from freehold.serve.messages.schema import (
    MessageAnswer,
    MessageDelta,
    MessageEnd,
    MessageEvent,
    MessageStart,
    MessageStop,
    MessageUsage,
    OutputTokensDetails,
    StopReason,
)
from freehold.serve.schema import Usage
from freehold.text.stream import TextResult


class MessageForm:
    """How a message is answered.

    Attributes:
        head: what all parts of the answer share.
        framing: each event has its type as name, and nothing follows the last.
    """

    framing: Framing = TYPED_EVENTS

    def __init__(self, planned: Planned, max_tokens: int) -> None:
        """
        Args:
            max_tokens: as asked for; an answer of less that ends for its length has filled the context.
        """
        self.head = planned.head
        self._num_prompt_tokens = len(planned.prompt_ids)
        pin = planned.handling.pin
        self._num_pinned_tokens = 0 if pin is None or pin.num_tokens is None else pin.num_tokens
        self._max_tokens = max_tokens
        self._writer = BlockWriter()

    def begin(self, _index: int) -> Iterator[MessageEvent]:
        """The message without content. What of its prompt is cached turns out at its end."""
        yield MessageStart(self._message(MessageUsage(self._num_prompt_tokens, 0)))

    def go_on(self, piece: Piece) -> Iterator[MessageEvent]:
        """New content."""
        for part in piece.delta.parts:
            yield from self._writer.push(part)

    def end(self, _index: int, result: TextResult) -> Iterator[MessageEvent]:
        """Why it ended, and the usage."""
        yield from self._writer.close()
        yield MessageDelta(self._end(result), self._usage(result))
        yield MessageStop()

    def sum_up(self, _usage: Usage) -> Iterator[MessageEvent]:
        """Nothing: the end has told it."""
        return iter(())

    def whole(self, results: Sequence[TextResult], _usage: Usage) -> MessageAnswer:
        """All at once."""
        (result,) = results
        message, end = self._message(self._usage(result)), self._end(result)
        message.content = fold(result.parts)
        message.stop_reason, message.stop_sequence = end.stop_reason, end.stop_sequence
        return message

    def _message(self, usage: MessageUsage) -> MessageAnswer:
        return MessageAnswer(self.head.id, self.head.model, [], usage)

    def _end(self, result: TextResult) -> MessageEnd:
        if result.finish_reason == "stop" and isinstance(result.stop, str):
            return MessageEnd("stop_sequence", result.stop)
        return MessageEnd(self._reason(result))

    def _reason(self, result: TextResult) -> StopReason:
        if result.finish_reason == "tool_calls":
            return "tool_use"
        if result.finish_reason == "stop":
            return "end_turn"
        return "max_tokens" if result.num_output_tokens >= self._max_tokens else "model_context_window_exceeded"

    def _usage(self, result: TextResult) -> MessageUsage:
        num_read = result.num_cached_tokens
        num_created = max(0, self._num_pinned_tokens - num_read)
        return MessageUsage(
            input_tokens=result.num_prompt_tokens - num_read - num_created,
            output_tokens=result.num_output_tokens,
            cache_creation_input_tokens=num_created,
            cache_read_input_tokens=num_read,
            output_tokens_details=OutputTokensDetails(result.num_reasoning_tokens),
        )
