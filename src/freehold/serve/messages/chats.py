"""From a body of the Messages API to the chat that it means, and from errors of that chat to the body's fields."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec

from freehold.errors import RequestError
from freehold.serve.messages.schema import (
    AnyChoice,
    AutoChoice,
    Block,
    Choice,
    MessagesRequest,
    NamedChoice,
    NoChoice,
    OutputConfig,
    PlainText,
    PromptFields,
    TextBlock,
    ThinkingBlock,
    ThinkingDisabled,
    ThinkingEnabled,
    ToolDefinition,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
)
from freehold.serve.schema import ChatRequest, Message, ReasoningEffort, TextPart
from freehold.serve.structured_schema import JsonSchemaFormat, NamedSchema, ResponseFormat
from freehold.serve.toolcalls.schema import Function, FunctionCall, FunctionName, NamedTool, Tool, ToolCall, ToolChoice
from freehold.text.param_checks import check_int
from freehold.text.params import MAX_INT

_TIERS = {"standard_only": "default"}

_NAMES = (
    (re.compile(r"\btools\[(\d+)\]\.function\.parameters\b"), r"tools[\1].input_schema"),
    (re.compile(r"\btools\[(\d+)\]\.function\b"), r"tools[\1]"),
    (re.compile(r"\bthinking_token_budget\b"), "thinking.budget_tokens"),
    (re.compile(r"\breasoning_effort\b"), "output_config.effort"),
    (re.compile(r"\bresponse_format\.json_schema\b"), "output_config.format"),
    (re.compile(r"\bstop(?=\[| is| has)"), "stop_sequences"),
)
_PLACE_IN_CHAT = re.compile(r"\bmessages\[\d+\]\S*")
"""A chat's messages aren't those of the body: results of calls are messages of their own."""


def chat_of(body: PromptFields) -> ChatRequest:
    """The chat that a body means.

    Raises:
        RequestError: blocks in a turn where they can't stand, or a budget of thinking that leaves no answer.
    """
    chat = ChatRequest(
        model=body.model,
        messages=[*_system(body.system), *_messages(body.messages)],
        tools=None if body.tools is None else [_tool(tool) for tool in body.tools],
        tool_choice=_choice(body.tool_choice),
        parallel_tool_calls=False if _wants_one_call(body.tool_choice) else None,
        reasoning_effort="none" if isinstance(body.thinking, ThinkingDisabled) else _effort(body.output_config),
        thinking_token_budget=body.thinking.budget_tokens if isinstance(body.thinking, ThinkingEnabled) else None,
        response_format=_format(body.output_config),
    )
    _check_budget(body)
    if not isinstance(body, MessagesRequest):
        return chat
    return msgspec.structs.replace(
        chat,
        max_tokens=body.max_tokens,
        stop=body.stop_sequences,
        stream=body.stream,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        metadata=body.metadata,
        service_tier=None if body.service_tier is None else _TIERS.get(body.service_tier, body.service_tier),
    )


def renamed(error: RequestError) -> RequestError:
    """An error of the chat, by the names of the body's fields."""
    message, param = _renamed(str(error)), error.param
    if param is not None:
        param = {"stop": "stop_sequences"}.get(param, _renamed(param))
    return RequestError(message, param=param, code=error.code)


def _renamed(text: str) -> str:
    for pattern, name in _NAMES:
        text = pattern.sub(name, text)
    return _PLACE_IN_CHAT.sub("messages", text)


def _check_budget(body: PromptFields) -> None:
    if not isinstance(body.thinking, ThinkingEnabled):
        return
    budget, field = body.thinking.budget_tokens, "thinking.budget_tokens"
    check_int(field, budget, 1, MAX_INT, "thinking of the type disabled has none")
    if isinstance(body, MessagesRequest) and budget >= body.max_tokens:
        raise RequestError(
            f"{field} is {budget} and max_tokens {body.max_tokens}, which leaves no tokens for the answer; lower the "
            "one or raise the other",
            param=field,
        )


def _system(system: str | list[PlainText] | None) -> list[Message]:
    if not system:
        return []
    return [Message(role="system", content=system if isinstance(system, str) else _parts(system))]


def _messages(turns: Iterable[Turn]) -> Iterator[Message]:
    """Turns as messages. Turns of one role that follow one another are one turn."""
    for role, group in groupby(enumerate(turns), key=lambda pair: pair[1].role):
        placed = [(f"messages[{position}]", turn) for position, turn in group]
        if len(placed) == 1 and isinstance(text := placed[0][1].content, str):
            yield Message(role=role, content=text)
            continue
        blocks = [(place, block) for place, turn in placed for block in _blocks(turn)]
        if role == "assistant":
            yield _assistant(blocks)
        else:
            yield from _said_to_it(role, blocks)


def _blocks(turn: Turn) -> list[Block]:
    return [TextBlock(turn.content)] if isinstance(turn.content, str) else turn.content


def _assistant(blocks: list[tuple[str, Block]]) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for place, block in blocks:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ThinkingBlock():
                thoughts.append(block.thinking)
            case ToolUseBlock():
                calls.append(ToolCall(block.id, FunctionCall(block.name, _json(block.input))))
            case ToolResultBlock():
                raise _misplaced(place, "tool_result", "a user's turn")
    return Message(
        role="assistant",
        content="".join(texts) or (None if calls or any(thoughts) else ""),
        reasoning_content="\n\n".join(thoughts) or None,
        tool_calls=calls or None,
    )


def _said_to_it(role: Any, blocks: list[tuple[str, Block]]) -> Iterator[Message]:
    """Results of calls and texts, in their order."""
    texts: list[TextBlock] = []
    for place, block in blocks:
        if isinstance(block, TextBlock):
            texts.append(block)
        elif isinstance(block, ToolResultBlock) and role == "user":
            if texts:
                yield Message(role=role, content=_parts(texts))
                texts = []
            yield _result(block)
        else:
            kind = str(block.__struct_config__.tag)
            raise _misplaced(place, kind, "a user's turn" if kind == "tool_result" else "an assistant's turn")
    if texts or not blocks:
        yield Message(role=role, content=_parts(texts))


def _result(block: ToolResultBlock) -> Message:
    """Templates know no results that are errors, so the text says it."""
    content = block.content or ""
    text = content if isinstance(content, str) else "\n".join(part.text for part in content)
    return Message(role="tool", tool_call_id=block.tool_use_id, content=f"Error: {text}" if block.is_error else text)


def _misplaced(place: str, kind: str, where: str) -> RequestError:
    return RequestError(f"{place}.content holds a block {kind!r}, which stands in {where}", param=f"{place}.content")


def _parts(texts: Iterable[PlainText | TextBlock]) -> list[TextPart]:
    return [TextPart("text", block.text) for block in texts]


def _tool(tool: ToolDefinition) -> Tool:
    return Tool("function", Function(tool.name, tool.description, tool.input_schema, tool.strict))


def _choice(choice: Choice | None) -> ToolChoice | None:
    match choice:
        case None:
            return None
        case AnyChoice():
            return "required"
        case NamedChoice():
            return NamedTool("function", FunctionName(choice.name))
        case NoChoice():
            return "none"
    return "auto"


def _wants_one_call(choice: Choice | None) -> bool:
    return isinstance(choice, AutoChoice | AnyChoice | NamedChoice) and bool(choice.disable_parallel_tool_use)


def _effort(config: OutputConfig | None) -> ReasoningEffort | None:
    if config is None or config.effort is None:
        return None
    return "xhigh" if config.effort == "max" else config.effort


def _format(config: OutputConfig | None) -> ResponseFormat | None:
    if config is None or config.format is None:
        return None
    return JsonSchemaFormat(NamedSchema(config.format.schema))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
