"""``POST /v1/chat/completions``."""

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from freehold.errors import RequestError
from freehold.serve import body as bodies
from freehold.serve.generation import Job, count, fold, plan_jobs, run
from freehold.serve.parameters import sampling_params, wants_usage
from freehold.serve.reply import EventStream, Record, record_of, while_connected
from freehold.serve.schema import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    ChunkChoice,
    Delta,
    Message,
)
from freehold.serve.service import Service, fresh_seed
from freehold.text.params import SamplingParams
from freehold.text.stream import TextResult

_decoder = msgspec.json.Decoder(ChatRequest)


@dataclass(frozen=True, slots=True)
class _Head:
    """What all parts of one answer share."""

    id: str
    created: int
    model: str
    fingerprint: str
    with_ids: bool
    with_usage: bool
    prompt_ids: Sequence[int]


async def create_chat(request: Request) -> Response | ASGIApp:
    """Answer a chat, streamed or whole."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _decoder)
    service.check_model(body.model)
    params = _params(body, service.text.tokenizer.vocab_size)
    with_usage = wants_usage(body)
    _check_lengths(service, body.messages)
    record = record_of(request.scope)
    held: ExitStack[None] = ExitStack()
    with held:
        service.enter(params.n, held)
        prompt_ids = await while_connected(request.receive, service.lanes.run(num_bytes, _prompt, service, body))
        head = _Head(
            id=f"chatcmpl-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=service.config.served_model_name,
            fingerprint=service.info.fingerprint,
            with_ids=bool(body.return_token_ids),
            with_usage=with_usage,
            prompt_ids=prompt_ids,
        )
        seed = fresh_seed() if params.seed is None else params.seed
        jobs = plan_jobs(
            service, head.id, [prompt_ids], params, seed=seed, param="messages", cache_salt=body.cache_salt
        )
        headers = {"x-seed": str(seed)}
        record.num_prompt_tokens = len(prompt_ids)
        if body.stream:
            return EventStream(_events(service, head, jobs, record), headers, held.pop_all())
        results = await while_connected(request.receive, fold(run(service.engine, jobs, record), len(jobs)))
        return Response(msgspec.json.encode(_whole(head, results)), media_type="application/json", headers=headers)


def _params(body: ChatRequest, vocab_size: int) -> SamplingParams:
    """Sampling parameters, with ``max_completion_tokens`` and its older name as one.

    Raises:
        RequestError: see `sampling_params`; or the two names disagree.
    """
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise RequestError(
            f"max_tokens is {old} and max_completion_tokens is {new}; send one of them", param="max_completion_tokens"
        )
    return sampling_params(
        body,
        vocab_size=vocab_size,
        max_tokens=old if new is None else new,
        max_tokens_field="max_tokens" if new is None else "max_completion_tokens",
    )


def _prompt(service: Service, body: ChatRequest) -> list[int]:
    """Token ids of the rendered chat. Blocks: the template runs in a worker process.

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
    rendered = template.render(
        [_plain(message, position) for position, message in enumerate(body.messages)],
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=body.continue_final_message,
        variables=body.chat_template_kwargs,
    )
    service.check_may_fit(rendered.text, "messages")
    return rendered.encode(service.text.tokenizer)


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


def _whole(head: _Head, results: Sequence[TextResult]) -> ChatCompletion:
    return ChatCompletion(
        id=head.id,
        created=head.created,
        model=head.model,
        system_fingerprint=head.fingerprint,
        choices=[
            ChatChoice(
                index=index,
                message=ChatMessage(content=result.text),
                finish_reason=result.finish_reason,
                token_ids=list(result.token_ids) if head.with_ids else UNSET,
            )
            for index, result in enumerate(results)
        ],
        usage=count(results, len(results)),
        prompt_token_ids=list(head.prompt_ids) if head.with_ids else UNSET,
    )


async def _events(
    service: Service, head: _Head, jobs: Sequence[Job], record: Record
) -> AsyncGenerator[msgspec.Struct, None]:
    """Chunks: each answer's role, its text as it comes, why it ended; then, if asked for, the usage."""
    usage = None if head.with_usage else UNSET

    def chunk(*choices: ChunkChoice) -> ChatChunk:
        return ChatChunk(head.id, head.created, head.model, list(choices), head.fingerprint, usage=usage)

    for job in jobs:
        first = chunk(ChunkChoice(job.index, Delta(role="assistant", content="")))
        first.prompt_token_ids = list(head.prompt_ids) if head.with_ids and job.index == 0 else UNSET
        yield first
    results: dict[int, TextResult] = {}
    async with aclosing(run(service.engine, jobs, record)) as pieces:
        async for piece in pieces:
            token_ids = list(piece.token_ids) if head.with_ids and piece.token_ids else UNSET
            if piece.text or token_ids:
                yield chunk(ChunkChoice(piece.index, Delta(content=piece.text), token_ids=token_ids))
            if piece.result is not None:
                results[piece.index] = piece.result
                yield chunk(ChunkChoice(piece.index, Delta(), finish_reason=piece.result.finish_reason))
    if head.with_usage:
        last = chunk()
        last.usage = count([results[job.index] for job in jobs], len(jobs))
        yield last
