"""``cache_control``: which beginning of a prompt shall stay cached."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from freehold.errors import RequestError
from freehold.protocol import Pin
from freehold.serve.chat.prompt import render
from freehold.serve.messages.chats import chat_of
from freehold.serve.messages.schema import (
    CacheControl,
    CountTokensRequest,
    PlainText,
    PromptFields,
    ThinkingBlock,
    ToolDefinition,
    ToolResultBlock,
    Turn,
)
from freehold.serve.pinning import BREAKPOINT_TTLS_S, pin_up_to
from freehold.serve.service import Service

_DEFAULT_TTL = "5m"
_ANYTHING = Turn("user", "x")


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Where the last mark of a body stands.

    Attributes:
        ttl: the longest that any mark of the body names.
        beginning: the body up to the mark; None if that is all of it.
    """

    ttl: str
    beginning: PromptFields | None

    def pin(self, service: Service, prompt_ids: Sequence[int]) -> Pin:
        """The beginning of the prompt up to the mark. Blocks for as long as rendering takes.

        What is rendered up to the mark says how far: as many ids as both have in common. If the template doesn't take
        it that way, all of the prompt is meant.
        """
        num_tokens = len(prompt_ids)
        if self.beginning is not None:
            chat = chat_of(self.beginning)
            chat.add_generation_prompt = chat.continue_final_message = False
            try:
                ids = render(service, chat).encode(service.text.tokenizer)
            except RequestError:
                pass
            else:
                pairs = zip(prompt_ids, ids, strict=False)
                num_tokens = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return pin_up_to(num_tokens, self.ttl, "cache_control")


def breakpoint_of(body: PromptFields) -> Breakpoint | None:
    """The last mark of a body; None if it has none."""
    tools, system = body.tools or [], body.system if isinstance(body.system, list) else []
    given = [tool.cache_control for tool in tools] + [text.cache_control for text in system] + [body.cache_control]
    marks = [mark for mark in given if mark is not None] + [mark for turn in body.messages for mark in _marks(turn)]
    if not marks:
        return None
    ttl = max((mark.ttl or _DEFAULT_TTL for mark in marks), key=BREAKPOINT_TTLS_S.__getitem__)
    return Breakpoint(ttl, None if body.cache_control else _beginning(body, tools, system))


def _beginning(body: PromptFields, tools: Sequence[ToolDefinition], system: Sequence[PlainText]) -> PromptFields | None:
    """Tools come first in a prompt, then the system's text, then the messages. Templates want some message."""
    for position in reversed(range(len(body.messages))):
        turn = body.messages[position]
        if not _marks(turn):
            continue
        blocks = [] if isinstance(turn.content, str) else turn.content
        last = max(index for index, block in enumerate(blocks) if _marks(Turn(turn.role, [block])))
        if position == len(body.messages) - 1 and last == len(blocks) - 1:
            return None
        cut = Turn(turn.role, blocks[: last + 1])
        return _with(body, messages=[*body.messages[:position], cut])
    for index in reversed(range(len(system))):
        if system[index].cache_control:
            return _with(body, system=system[: index + 1], messages=[_ANYTHING])
    num_tools = max(index for index, tool in enumerate(tools) if tool.cache_control) + 1
    return _with(body, tools=tools[:num_tools], system=None, messages=[_ANYTHING])


def _with(body: PromptFields, **fields: object) -> PromptFields:
    prompt = {name: getattr(body, name) for name in PromptFields.__struct_fields__}
    return CountTokensRequest(**{**prompt, **fields})


def _marks(turn: Turn) -> list[CacheControl]:
    marks: list[CacheControl] = []
    for block in [] if isinstance(turn.content, str) else turn.content:
        if isinstance(block, ThinkingBlock):
            continue
        inner = block.content if isinstance(block, ToolResultBlock) and isinstance(block.content, list) else []
        marks += (mark for one in (block, *inner) if (mark := one.cache_control))
    return marks
