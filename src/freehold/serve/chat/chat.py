"""``POST /v1/chat/completions``."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from freehold.errors import RequestError
from freehold.protocol import Pin
from freehold.serve import body as bodies
from freehold.serve.answer import Form, Head, respond
from freehold.serve.chat.form import ChatForm
from freehold.serve.chat.prompt import render
from freehold.serve.chat.thinking import thinking_limit
from freehold.serve.chat.wish import answer_wish
from freehold.serve.entrance.caller import Caller, caller_of
from freehold.serve.entrance.record import record_of
from freehold.serve.generation import plan_jobs
from freehold.serve.parameters import handling_of, sampling_params, usage_telling
from freehold.serve.reply import while_connected
from freehold.serve.schema import ChatRequest, Message
from freehold.serve.service import Service
from freehold.serve.structured import compile_grammar, wanted
from freehold.serve.toolcalls.choice import ToolUse, tool_use
from freehold.serve.tracing.asked import note_chat
from freehold.text.jobs import Handling
from freehold.text.param_checks import check_int
from freehold.text.params import MAX_INT, MAX_LOGPROBS, SamplingParams

_decoder = msgspec.json.Decoder(ChatRequest)


@dataclass(frozen=True, slots=True)
class Planned:
    """A chat that is about to be answered.

    Attributes:
        use: what is wanted of its tools.
    """

    head: Head
    prompt_ids: Sequence[int]
    params: SamplingParams
    use: ToolUse | None
    handling: Handling


@dataclass(frozen=True, slots=True)
class Surface:
    """What a surface does in its own way with chats.

    Attributes:
        kind: what ids of its answers begin with.
        form: makes the form of an answer.
        pin: finds the beginning of a prompt that shall stay cached, in place of what the chat says. May block.
        is_system_apart: what the system says isn't one of the messages.
    """

    kind: str
    form: Callable[[Planned], Form]
    pin: Callable[[Service, Sequence[int]], Pin] | None = None
    is_system_apart: bool = False


async def create_chat(request: Request) -> Response | ASGIApp:
    """Answer a chat, streamed or whole."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _decoder)
    return await answer(request, body, num_bytes, Surface("chatcmpl", _form))


async def answer(request: Request, body: ChatRequest, num_bytes: int, surface: Surface) -> Response | ASGIApp:
    """Answer a chat as a surface does.

    Args:
        num_bytes: what the request's body had.

    Raises:
        RequestError, HttpError: by the name of the chat's field.
        LimitError, EngineError: no room for it.
    """
    service: Service = request.app.state.service
    params, handling = check(service, body, caller_of(request.scope))
    record = record_of(request.scope)
    note_chat(record, body, num_bytes, is_system_apart=surface.is_system_apart)
    use = tool_use(body, auto=service.config.enable_auto_tool_choice)
    head = Head.of(service, body, params, surface.kind)
    _check_lengths(service, body.messages)
    held: ExitStack[None] = ExitStack()
    with held:
        places = service.enter(params.n, held)
        prompt_ids = await while_connected(request.receive, service.lanes.run(num_bytes, _prompt, service, body))
        record.tokenized_s = time.monotonic()
        handling = _with_reading(service, body, use, prompt_ids, handling)
        if surface.pin is not None:
            pinning = service.lanes.run(num_bytes, surface.pin, service, prompt_ids)
            handling = replace(handling, pin=await while_connected(request.receive, pinning))
        wish = answer_wish(service.dialect, wanted(body), use, prompt_ids)
        grammar = await compile_grammar(service, request.receive, wish, record)
        jobs = plan_jobs(
            service, head.id, [prompt_ids], params, seed=head.seed, param="messages", handling=handling, grammar=grammar
        )
        form = surface.form(Planned(head, prompt_ids, params, use, handling))
        places.fill([job.generate for job in jobs])
        return await respond(request, service, form, jobs, stream=bool(body.stream), held=held)


def _form(chat: Planned) -> ChatForm:
    is_named = chat.use is not None and chat.use.is_named
    return ChatForm(chat.head, chat.prompt_ids, chat.params, is_named=is_named)


def check(service: Service, body: ChatRequest, caller: Caller) -> tuple[SamplingParams, Handling]:
    """Check what doesn't need the prompt.

    Raises:
        RequestError, HttpError: by name.
    """
    service.check_model(body.model, caller)
    params = _params(body, service.info.vocab_size)
    usage_telling(body)
    if body.thinking_token_budget is not None:
        check_int("thinking_token_budget", body.thinking_token_budget, 0, MAX_INT, "leave it out for no limit")
    return params, handling_of(body, caller)


def _params(body: ChatRequest, vocab_size: int) -> SamplingParams:
    """Sampling parameters, with ``max_completion_tokens`` and its older name as one.

    Raises:
        RequestError: see `sampling_params`; the two names disagree or forbid an answer; or top_logprobs without
            logprobs.
    """
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise RequestError(
            f"max_tokens is {old} and max_completion_tokens is {new}; send one of them", param="max_completion_tokens"
        )
    max_tokens, field = (old, "max_tokens") if new is None else (new, "max_completion_tokens")
    if max_tokens == 0:
        raise RequestError(f"{field} is 0; it must be at least 1", param=field)
    num_top = body.top_logprobs or 0
    check_int("top_logprobs", num_top, 0, MAX_LOGPROBS, "0 lists none")
    if num_top and not body.logprobs:
        raise RequestError(f"top_logprobs is {num_top}; it needs logprobs: true", param="top_logprobs")
    return sampling_params(
        body,
        vocab_size=vocab_size,
        max_tokens=max_tokens,
        logprobs=num_top if body.logprobs else None,
        prompt_logprobs=body.prompt_logprobs,
        max_tokens_field=field,
    )


def _prompt(service: Service, body: ChatRequest) -> list[int]:
    """Token ids of the rendered chat.

    Raises:
        RequestError: see `render`; or the prompt is too long.
    """
    rendered = render(service, body)
    service.check_may_fit(rendered.text, "messages")
    return rendered.encode(service.text.tokenizer)


def _with_reading(
    service: Service, body: ChatRequest, use: ToolUse | None, prompt_ids: Sequence[int], handling: Handling
) -> Handling:
    """How a request is treated, now that its prompt is known.

    Raises:
        RequestError: see `thinking_limit`.
    """
    dialect = service.dialect
    tools = () if use is None else use.callable
    return replace(
        handling,
        reading=dialect.reading(prompt_ids, tools, one_call=use is not None and use.one_call),
        thinking=thinking_limit(dialect, service.text.template, body, prompt_ids),
    )


def _check_lengths(service: Service, messages: Sequence[Message]) -> None:
    """Refuse messages that can't fit, before they are rendered. Templates may trim them, and cut the assistant's.

    Raises:
        RequestError: a message is too long.
    """
    for message in messages:
        content = message.content or ""
        if message.role != "assistant":
            for text in [content] if isinstance(content, str) else [part.text for part in content]:
                service.check_may_fit(text.strip(), "messages")
