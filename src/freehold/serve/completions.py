"""``POST /v1/completions``."""

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
from freehold.serve.schema import Completion, CompletionRequest, TextChoice
from freehold.serve.service import MAX_ANSWERS, Service, fresh_seed
from freehold.text.params import context_room
from freehold.text.stream import TextResult

DEFAULT_MAX_TOKENS = 16
"""As in OpenAI's API. Chats default to what the context holds."""

_decoder = msgspec.json.Decoder(CompletionRequest)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt as ids, and as text if the answer shall begin with it."""

    ids: Sequence[int]
    echo: str


@dataclass(frozen=True, slots=True)
class _Head:
    """What all parts of one answer share. Answer i continues prompt ``i // n``."""

    id: str
    created: int
    model: str
    fingerprint: str
    with_ids: bool
    with_usage: bool
    prompts: Sequence[_Prompt]
    n: int


async def create_completion(request: Request) -> Response | ASGIApp:
    """Continue one or several prompts, streamed or whole."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _decoder)
    service.check_model(body.model)
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    params = sampling_params(body, vocab_size=service.text.tokenizer.vocab_size, max_tokens=max_tokens)
    with_usage = wants_usage(body)
    _check_lengths(service, body.prompt)
    raw_prompts = separate(body.prompt)
    num_answers = len(raw_prompts) * params.n
    if num_answers > MAX_ANSWERS:
        raise RequestError(
            f"{len(raw_prompts)} prompts times n {params.n} are {num_answers} answers; up to {MAX_ANSWERS} are allowed",
            param="prompt",
        )
    record = record_of(request.scope)
    held: ExitStack[None] = ExitStack()
    with held:
        service.enter(num_answers, held)
        encoding = service.lanes.run(num_bytes, _encode, service, raw_prompts, bool(body.echo))
        prompts = await while_connected(request.receive, encoding)
        head = _Head(
            id=f"cmpl-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=service.config.served_model_name,
            fingerprint=service.info.fingerprint,
            with_ids=bool(body.return_token_ids),
            with_usage=with_usage,
            prompts=prompts,
            n=params.n,
        )
        seed = fresh_seed() if params.seed is None else params.seed
        jobs = plan_jobs(
            service,
            head.id,
            [prompt.ids for prompt in prompts],
            params,
            seed=seed,
            param="prompt",
            cache_salt=body.cache_salt,
        )
        headers = {"x-seed": str(seed)}
        record.num_prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
        if body.stream:
            return EventStream(_events(service, head, jobs, record), headers, held.pop_all())
        results = await while_connected(request.receive, fold(run(service.engine, jobs, record), len(jobs)))
        return Response(msgspec.json.encode(_whole(head, results)), media_type="application/json", headers=headers)


def separate(prompt: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """The prompts in a ``prompt`` field: a text, ids, texts, or lists of ids.

    Raises:
        RequestError: no prompt at all, or ids beside texts.
    """
    if isinstance(prompt, str):
        return [prompt]
    ids = [item for item in prompt if isinstance(item, int)]
    prompts = [item for item in prompt if not isinstance(item, int)]
    if ids and prompts:
        raise RequestError("prompt mixes token ids with other prompts; send lists of ids", param="prompt")
    if not prompt or [] in prompts:
        raise RequestError(
            "prompt holds an empty list; send at least one token id", param="prompt", code="empty_prompt"
        )
    return [ids] if ids else prompts


def _check_lengths(service: Service, prompt: str | list[str | int | list[int]]) -> None:
    """Refuse what can't fit, before its items are looked at one by one.

    Raises:
        RequestError: too many ids, too many prompts, or a text too long.
    """
    max_model_len = service.info.max_model_len
    items = [prompt] if isinstance(prompt, str) else prompt
    if items and isinstance(items[0], int):
        context_room(len(items), max_model_len, param="prompt")
    elif len(items) > MAX_ANSWERS:
        raise RequestError(
            f"prompt holds {len(items)} prompts; up to {MAX_ANSWERS} answers are allowed", param="prompt"
        )
    for item in items:
        if isinstance(item, str):
            service.check_may_fit(item, "prompt")
        elif isinstance(item, list):
            context_room(len(item), max_model_len, param="prompt")


def _encode(service: Service, prompts: Sequence[str | list[int]], with_echo: bool) -> list[_Prompt]:
    """Blocks for as long as tokenizing takes.

    Raises:
        RequestError: a prompt without tokens, or ids that the model doesn't have.
    """
    tokenizer = service.text.tokenizer
    encoded: list[_Prompt] = []
    for prompt in prompts:
        ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            raise RequestError("prompt is empty; at least one token is needed", param="prompt", code="empty_prompt")
        context_room(len(ids), service.info.max_model_len, param="prompt")  # before the next is tokenized
        echo = ""
        if with_echo and isinstance(prompt, str):
            echo = prompt
        elif with_echo:
            tokenizer.check_ids(ids, param="prompt")
            echo = tokenizer.decode(ids, skip_control=False)
        encoded.append(_Prompt(ids, echo))
    return encoded


def _whole(head: _Head, results: Sequence[TextResult]) -> Completion:
    choices = []
    for index, result in enumerate(results):
        prompt = head.prompts[index // head.n]
        choice = TextChoice(index, prompt.echo + result.text, finish_reason=result.finish_reason)
        if head.with_ids:
            choice.token_ids, choice.prompt_token_ids = list(result.token_ids), list(prompt.ids)
        choices.append(choice)
    return Completion(head.id, head.created, head.model, choices, head.fingerprint, usage=count(results, head.n))


async def _events(
    service: Service, head: _Head, jobs: Sequence[Job], record: Record
) -> AsyncGenerator[msgspec.Struct, None]:
    """Chunks: echoed prompts, each answer's text as it comes, why it ended; then, if asked for, the usage."""
    usage = None if head.with_usage else UNSET

    def chunk(*choices: TextChoice) -> Completion:
        return Completion(head.id, head.created, head.model, list(choices), head.fingerprint, usage=usage)

    for job in jobs:
        prompt = head.prompts[job.index // head.n]
        if prompt.echo or head.with_ids:
            first = TextChoice(job.index, prompt.echo)
            first.prompt_token_ids = list(prompt.ids) if head.with_ids else UNSET
            yield chunk(first)
    results: dict[int, TextResult] = {}
    async with aclosing(run(service.engine, jobs, record)) as pieces:
        async for piece in pieces:
            token_ids = list(piece.token_ids) if head.with_ids and piece.token_ids else UNSET
            if piece.text or token_ids:
                yield chunk(TextChoice(piece.index, piece.text, token_ids=token_ids))
            if piece.result is not None:
                results[piece.index] = piece.result
                yield chunk(TextChoice(piece.index, "", finish_reason=piece.result.finish_reason))
    if head.with_usage:
        last = chunk()
        last.usage = count([results[job.index] for job in jobs], head.n)
        yield last
