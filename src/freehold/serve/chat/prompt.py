"""From a chat to its prompt: messages and tools in the shape that the model's template reads."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from freehold.errors import RequestError, shown
from freehold.serve.chat.thinking import template_variables
from freehold.serve.schema import ChatRequest, Message
from freehold.serve.service import Service
from freehold.serve.toolcalls.choice import ToolUse, described, tool_use
from freehold.serve.toolcalls.prompt import tell_of_tools, without_tool_roles
from freehold.serve.toolcalls.schema import ToolCall
from freehold.text.rendered import Rendered
from freehold.text.template import ChatTemplate, TemplateError

_Plain = dict[str, Any]

_log = logging.getLogger(__name__)


def render(service: Service, body: ChatRequest) -> Rendered:
    """The prompt of a chat. Blocks: the template runs in a worker process.

    Raises:
        RequestError: the model has no template, its template refuses the messages, or it can't show the tools.
    """
    template = service.text.template
    if template is None:
        raise RequestError(
            "this model has no chat template, so it can't chat; send text to /v1/completions",
            param="messages",
            code="no_chat_template",
        )
    use = tool_use(body, auto=service.config.enable_auto_tool_choice)
    messages = [_plain(message, position) for position, message in enumerate(body.messages)]
    variables = template_variables(template, body)
    if service.dialect.calls.is_shown_by_template:
        return _render(template, body, messages, variables, tools=_template_tools(template, use))
    if not service.dialect.shows_calls:
        messages = without_tool_roles(messages)
    return _render_told(template, body, messages, variables, use)


def warn_of_hidden_tools(service: Service) -> None:
    """Say in the log that all requests with tools will be refused, if the parser that was chosen makes it so. Blocks as
    `render` does. A parser that the template itself has shown needs no look."""
    name, template = service.config.tool_call_parser, service.text.template
    if name == "auto" or template is None or not service.dialect.calls.is_shown_by_template:
        return
    try:
        is_hidden = not _shows_tools(template)
    except TemplateError:
        return  # each chat will say so
    if is_hidden:
        _log.warning(
            "requests with tools will be refused: this model's chat template doesn't show tools, which "
            "--tool-call-parser %s needs; with json the model is told of them in a message", name,
        )  # fmt: skip


def _shows_tools(template: ChatTemplate) -> bool:
    return template.reads("tools", with_tools=True)


def _render(
    template: ChatTemplate,
    body: ChatRequest,
    messages: Sequence[_Plain],
    variables: Mapping[str, Any],
    tools: Sequence[_Plain] | None = None,
) -> Rendered:
    return template.render(
        messages,
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=body.continue_final_message,
        tools=tools,
        variables=variables,
    )


def _template_tools(template: ChatTemplate, use: ToolUse | None) -> list[_Plain] | None:
    if use is None:
        return None
    if not _shows_tools(template):
        raise RequestError(
            "this model's chat template doesn't show tools to it; start the server with --tool-call-parser json, "
            "and it is told of them in a message",
            param="tools",
            code="unsupported",
        )
    return [described(function) for function in use.shown]


def _render_told(
    template: ChatTemplate,
    body: ChatRequest,
    messages: Sequence[_Plain],
    variables: Mapping[str, Any],
    use: ToolUse | None,
) -> Rendered:
    """Tools are told of in the system's message, or in the first user's where the template takes none of the system."""
    if use is None:
        return _render(template, body, messages, variables)
    try:
        return _render(template, body, tell_of_tools(messages, use.shown, "system"), variables)
    except TemplateError:
        if any(message["role"] == "system" for message in messages):
            raise
        return _render(template, body, tell_of_tools(messages, use.shown, "user"), variables)


def _plain(message: Message, position: int) -> _Plain:
    """A message as templates know them: arguments of calls as objects, and the developer is the system."""
    plain: _Plain = msgspec.to_builtins(message)
    if message.role == "developer":
        plain["role"] = "system"
    if message.tool_calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": _arguments(call, f"messages[{position}].tool_calls[{index}]"),
                },
            }
            for index, call in enumerate(message.tool_calls)
        ]
    return plain


def _arguments(call: ToolCall, place: str) -> object:
    """Arguments as an object. Some clients write none as an empty text."""
    text = call.function.arguments
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        field = f"{place}.function.arguments"
        raise RequestError(
            f"{field}: {shown(text, most=40)} is no JSON object; give one in a string, or an empty string", param=field
        ) from None
