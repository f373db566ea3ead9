"""``POST /v1/chat/completions``."""

from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from freehold.errors import RequestError
from freehold.serve import body as bodies
from freehold.serve.answer import Head, respond
from freehold.serve.caller import Caller, caller_of
from freehold.serve.chat_form import ChatForm
from freehold.serve.generation import plan_jobs
from freehold.serve.parameters import handling_of, sampling_params, wants_usage
from freehold.serve.reply import while_connected
from freehold.serve.schema import ChatRequest, Message
from freehold.serve.service import Service
from freehold.serve.structured import compile_grammar, wanted
from freehold.text.jobs import Handling
from freehold.text.param_checks import check_int
from freehold.text.params import MAX_LOGPROBS, SamplingParams
from freehold.text.rendered import Rendered

_decoder = msgspec.json.Decoder(ChatRequest)


async def create_chat(request: Request) -> Response | ASGIApp:
    """Answer a chat, streamed or whole."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _decoder)
    params, handling = check(service, body, caller_of(request.scope))
    head = Head.of(service, body, params, "chatcmpl")
    _check_lengths(service, body.messages)
    held: ExitStack[None] = ExitStack()
    with held:
        places = service.enter(params.n, held)
        prompt_ids = await while_connected(request.receive, service.lanes.run(num_bytes, _prompt, service, body))
        grammar = await compile_grammar(service, request.receive, wanted(body))
        jobs = plan_jobs(
            service, head.id, [prompt_ids], params, seed=head.seed, param="messages", handling=handling, grammar=grammar
        )
        form = ChatForm(head, prompt_ids, params)
        places.fill([job.generate for job in jobs])
        return await respond(request, service, form, jobs, stream=bool(body.stream), held=held)


def check(service: Service, body: ChatRequest, caller: Caller) -> tuple[SamplingParams, Handling]:
    """Check what doesn't need the prompt.

    Raises:
        RequestError, HttpError: by name.
    """
    service.check_model(body.model, caller)
    params = _params(body, service.info.vocab_size)
    wants_usage(body)
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


def render(service: Service, body: ChatRequest) -> Rendered:
    """The prompt of a chat. Blocks: the template runs in a worker process.

    Raises:
        RequestError: the model has no template, or its template refuses the messages.
    """
    template = service.text.template
    if template is None:
        raise RequestError(
            "this model has no chat template, so it can't chat; send text to /v1/completions",
            param="messages",
            code="no_chat_template",
        )
    return template.render(
        [_plain(message, position) for position, message in enumerate(body.messages)],
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=body.continue_final_message,
        variables=body.chat_template_kwargs,
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


def _plain(message: Message, position: int) -> dict[str, object]:
    """A message as templates know them: arguments of calls as objects, and the developer is the system."""
    plain: dict[str, object] = msgspec.to_builtins(message)
    if message.role == "developer":
        plain["role"] = "system"
    if message.tool_calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments, position)},
            }
            for call in message.tool_calls
        ]
    return plain


def _arguments(text: str, position: int) -> object:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        field = f"messages[{position}].tool_calls"
        raise RequestError(f"{field} has arguments that are no JSON object: {text[:100]!r}", param=field) from None
