"""An answer's parts as blocks of content: events while they come, and all of them as what the events make."""

from collections.abc import Iterable, Iterator

import msgspec

from freehold.serve.messages.partial_json import partial_object
from freehold.serve.messages.schema import (
    BlockDelta,
    BlockStart,
    BlockStop,
    Content,
    Delta,
    InputJsonDelta,
    SignatureDelta,
    TextContent,
    TextDelta,
    ThinkingContent,
    ThinkingDelta,
    ToolUseContent,
)
from freehold.text import parts
from freehold.text.parts import Part

SIGNATURE = "unsigned"
"""Clients want a signature to send thinking back; ours certifies nothing."""

_EMPTY = msgspec.Raw(b"{}")

BlockEvent = BlockStart | BlockDelta | BlockStop


class BlockWriter:
    """Cuts one answer's parts into blocks: what is said, thought and called in turns. Not thread-safe."""

    def __init__(self) -> None:
        self._num_blocks = 0
        self._open: type[Content] | None = None

    def push(self, part: Part) -> Iterator[BlockEvent]:
        """What a part adds."""
        match part:
            case parts.Content(text):
                yield from self._go_on(TextContent(""), TextDelta(text))
            case parts.Reasoning(text):
                yield from self._go_on(ThinkingContent("", ""), ThinkingDelta(text))
            case parts.CallBegin(_, call_id, name):
                yield from self.close()
                yield self._begin(ToolUseContent(call_id, name, _EMPTY))
            case parts.CallArguments(_, text):
                yield self._delta(InputJsonDelta(text))
            case parts.CallEnd():
                yield from self.close()

    def close(self) -> Iterator[BlockEvent]:
        """End the block that is open, if one is."""
        if self._open is ThinkingContent:
            yield self._delta(SignatureDelta(SIGNATURE))
        if self._open is not None:
            yield BlockStop(self._num_blocks - 1)
        self._open = None

    def _go_on(self, empty: TextContent | ThinkingContent, delta: Delta) -> Iterator[BlockEvent]:
        if self._open is not type(empty):
            yield from self.close()
            yield self._begin(empty)
        yield self._delta(delta)

    def _begin(self, empty: Content) -> BlockStart:
        self._open = type(empty)
        self._num_blocks += 1
        return BlockStart(self._num_blocks - 1, empty)

    def _delta(self, delta: Delta) -> BlockDelta:
        return BlockDelta(self._num_blocks - 1, delta)


def fold(answer: Iterable[Part]) -> list[Content]:
    """The blocks that the events of an answer's parts make."""
    writer = BlockWriter()
    blocks: list[Content] = []
    inputs: dict[int, str] = {}
    for part in answer:
        for event in writer.push(part):
            _apply(event, blocks, inputs)
    for event in writer.close():
        _apply(event, blocks, inputs)
    return blocks


def _apply(event: BlockEvent, blocks: list[Content], inputs: dict[int, str]) -> None:
    if isinstance(event, BlockStart):
        blocks.append(event.content_block)
        return
    block = blocks[event.index]
    if isinstance(event, BlockStop):
        if isinstance(block, ToolUseContent):
            block.input = msgspec.Raw(partial_object(inputs.get(event.index, "")).encode())
        return
    match block, event.delta:
        case TextContent(), TextDelta(text):
            block.text += text
        case ThinkingContent(), ThinkingDelta(thinking):
            block.thinking += thinking
        case ThinkingContent(), SignatureDelta(signature):
            block.signature = signature
        case ToolUseContent(), InputJsonDelta(partial_json):
            inputs[event.index] = inputs.get(event.index, "") + partial_json
