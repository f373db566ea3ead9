"""``POST /v1/completions``."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from freehold.errors import RequestError
from freehold.serve import body as bodies
from freehold.serve.answer import Head, respond
from freehold.serve.entrance.caller import caller_of
from freehold.serve.entrance.record import record_of
from freehold.serve.framing import DATA_ONLY, Framing
from freehold.serve.generation import Piece, plan_jobs
from freehold.serve.lanes import INSTANT_BYTES
from freehold.serve.logprobs import prompt_logprobs, text_logprobs
from freehold.serve.parameters import handling_of, sampling_params
from freehold.serve.reply import while_connected
from freehold.serve.schema import Completion, CompletionRequest, TextChoice, TextLogprobs, Usage
from freehold.serve.service import MAX_ANSWERS, Service
from freehold.serve.structured import compile_grammar, wanted
from freehold.serve.tracing.asked import note_completion
from freehold.text.logprobs import TokenLogprob, pieces
from freehold.text.param_checks import check_int
from freehold.text.params import MAX_LOGPROBS, SamplingParams, context_room
from freehold.text.stream import TextResult

DEFAULT_MAX_TOKENS = 16
"""As in OpenAI's API. Chats default to what the context holds."""

MAX_TEXT_LOGPROBS = 5

_decoder = msgspec.json.Decoder(CompletionRequest)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt as ids; and as text, in one piece or a piece an id, if the answer shall begin with it."""

    ids: Sequence[int]
    echo: Sequence[str]


async def create_completion(request: Request) -> Response | ASGIApp:
    """Continue one or several prompts, streamed or whole."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _decoder)
    caller = caller_of(request.scope)
    service.check_model(body.model, caller)
    params = _params(body, service.info.vocab_size)
    head = Head.of(service, body, params, "cmpl")
    least_room = 0 if params.is_scoring else 1
    _check_lengths(service, body.prompt, least_room)
    raw_prompts = separate(body.prompt)
    num_answers = len(raw_prompts) * params.n
    if num_answers > MAX_ANSWERS:
        raise RequestError(
            f"{len(raw_prompts)} prompts times n {params.n} are {num_answers} answers; up to {MAX_ANSWERS} are allowed",
            param="prompt",
        )
    handling = handling_of(body, caller)
    record = record_of(request.scope)
    note_completion(record, body, num_bytes)
    held: ExitStack[None] = ExitStack()
    with held:
        places = service.enter(num_answers, held)
        if num_bytes <= INSTANT_BYTES:
            prompts = _encode(service, raw_prompts, body, least_room)
        else:
            encoding = service.lanes.run(num_bytes, _encode, service, raw_prompts, body, least_room)
            prompts = await while_connected(request.receive, encoding)
        record.tokenized_s = time.monotonic()
        ids = [prompt.ids for prompt in prompts]
        grammar = await compile_grammar(service, request.receive, wanted(body), record)
        jobs = plan_jobs(
            service, head.id, ids, params, seed=head.seed, param="prompt", handling=handling, grammar=grammar
        )
        form = _TextForm(head, prompts, params, body)
        places.fill([job.generate for job in jobs])
        return await respond(request, service, form, jobs, stream=bool(body.stream), held=held)


def _params(body: CompletionRequest, vocab_size: int) -> SamplingParams:
    """Sampling parameters. Echoed prompts are scored if log probabilities are asked for.

    Raises:
        RequestError: see `sampling_params`.
    """
    logprobs = _num_top(body)
    if logprobs is not None:
        check_int("logprobs", logprobs, 0, MAX_TEXT_LOGPROBS, "leave it out for none")
    prompt_logprobs = body.prompt_logprobs
    if prompt_logprobs is not None:
        check_int("prompt_logprobs", prompt_logprobs, 0, MAX_LOGPROBS, "leave it out for none")
    if body.echo and logprobs is not None:
        prompt_logprobs = max(logprobs, prompt_logprobs or 0)
    return sampling_params(
        body,
        vocab_size=vocab_size,
        max_tokens=DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def _num_top(body: CompletionRequest) -> int | None:
    """How many of the likeliest tokens are asked for; None asks for no log probabilities."""
    return None if body.logprobs is False else body.logprobs


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


def _check_lengths(service: Service, prompt: str | list[str | int | list[int]], least_room: int) -> None:
    """Refuse what can't fit, before its items are looked at one by one.

    Args:
        least_room: tokens that an answer must be able to have.

    Raises:
        RequestError: too many ids, too many prompts, or a text too long.
    """
    max_model_len = service.info.max_model_len
    items = [prompt] if isinstance(prompt, str) else prompt
    if items and isinstance(items[0], int):
        context_room(len(items), max_model_len, param="prompt", least_room=least_room)
    elif len(items) > MAX_ANSWERS:
        raise RequestError(
            f"prompt holds {len(items)} prompts; up to {MAX_ANSWERS} answers are allowed", param="prompt"
        )
    for item in items:
        if isinstance(item, str):
            service.check_may_fit(item, "prompt", least_room=least_room)
        elif isinstance(item, list):
            context_room(len(item), max_model_len, param="prompt", least_room=least_room)


def _encode(
    service: Service, prompts: Sequence[str | list[int]], body: CompletionRequest, least_room: int
) -> list[_Prompt]:
    """Blocks for as long as tokenizing takes.

    Args:
        least_room: tokens that an answer must be able to have.

    Raises:
        RequestError: a prompt without tokens, or ids that the model doesn't have.
    """
    tokenizer = service.text.tokenizer
    encoded: list[_Prompt] = []
    for prompt in prompts:
        is_text = isinstance(prompt, str)
        ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            raise RequestError("prompt is empty; at least one token is needed", param="prompt", code="empty_prompt")
        # Before the next is tokenized.
        context_room(len(ids), service.info.max_model_len, param="prompt", least_room=least_room)
        echo: list[str] = []
        if body.echo and _num_top(body) is None and isinstance(prompt, str):
            echo = [prompt]
        elif body.echo:
            tokenizer.check_ids(ids, param="prompt", vocab_size=service.info.vocab_size)
            echo = pieces(tokenizer, ids, skip_control=is_text)
        encoded.append(_Prompt(ids, echo))
    return encoded


class _TextForm:
    """The completions surface's form of an answer.

    Attributes:
        head: what all its parts share.
    """

    framing: Framing = DATA_ONLY

    def __init__(self, head: Head, prompts: Sequence[_Prompt], params: SamplingParams, body: CompletionRequest) -> None:
        self.head = head
        self._prompts = prompts
        self._params = params
        self._num_prompt_top = body.prompt_logprobs
        self._echoes_scores = bool(body.echo) and params.logprobs is not None
        # Of each streamed answer: tokens of the echoed prompt that were sent, and characters of all that was.
        self._num_echoed = [0] * (len(prompts) * head.n)
        self._num_sent = [0] * (len(prompts) * head.n)

    def begin(self, index: int) -> Iterator[Completion]:
        """The prompt's echo, or of one that is scored its first token, which has no probability."""
        prompt = self._prompts[index // self.head.n]
        if not prompt.echo and not self.head.with_ids:
            return
        if self._echoes_scores:
            choice = self._echo(index, [None])
        else:
            choice = TextChoice(index, "".join(prompt.echo))
            self._num_sent[index] = len(choice.text)
        choice.prompt_token_ids = list(prompt.ids) if self.head.with_ids else UNSET
        yield self._chunk(choice)

    def go_on(self, piece: Piece) -> Iterator[Completion]:
        """New text, ids that add none yet, or more of the echo."""
        delta, index = piece.delta, piece.index
        if delta.prompt_logprobs:
            if self._echoes_scores:
                yield self._chunk(self._echo(index, delta.prompt_logprobs))
            return
        token_ids = list(delta.token_ids) if self.head.with_ids and delta.token_ids else UNSET
        text = delta.text
        if not text and not token_ids and not delta.logprobs:
            return
        choice = TextChoice(index, text, token_ids=token_ids)
        if delta.logprobs:
            choice.logprobs = self._scored(index, delta.logprobs, delta.pieces)
        yield self._chunk(choice)

    def end(self, index: int, result: TextResult) -> Iterator[Completion]:
        """Why it ended, and what vLLM's field tells of the prompt."""
        choice = TextChoice(index, "", finish_reason=result.finish_reason)
        if self._params.logprobs is not None and not result.logprobs and not self._echoes_scores:
            choice.logprobs = self._scored(index, [], [])  # none came before; whole, the answer has empty lists
        self._add_prompt_logprobs(choice, result)
        yield self._chunk(choice)

    def sum_up(self, usage: Usage) -> Iterator[Completion]:
        """Usage, and no choices."""
        chunk = self._chunk()
        chunk.usage = usage
        yield chunk

    def whole(self, results: Sequence[TextResult], usage: Usage) -> Completion:
        """All at once."""
        whole = self._chunk(*(self._choice(index, result) for index, result in enumerate(results)))
        whole.usage = usage
        return whole

    def _choice(self, index: int, result: TextResult) -> TextChoice:
        prompt = self._prompts[index // self.head.n]
        choice = TextChoice(index, "".join(prompt.echo) + result.text, finish_reason=result.finish_reason)
        if self._params.logprobs is not None:
            echoed: Sequence[TokenLogprob | None] = (None, *result.prompt_logprobs) if self._echoes_scores else ()
            texts = [*prompt.echo, *result.pieces]
            choice.logprobs = self._scored(index, [*echoed, *result.logprobs], texts)
        if self.head.with_ids:
            choice.token_ids, choice.prompt_token_ids = list(result.token_ids), list(prompt.ids)
        self._add_prompt_logprobs(choice, result)
        return choice

    def _echo(self, index: int, scores: Sequence[TokenLogprob | None]) -> TextChoice:
        """The next tokens of a prompt that is scored."""
        begin = self._num_echoed[index]
        self._num_echoed[index] += len(scores)
        texts = self._prompts[index // self.head.n].echo[begin : begin + len(scores)]
        return TextChoice(index, "".join(texts), logprobs=self._scored(index, scores, texts))

    def _scored(self, index: int, scores: Sequence[TokenLogprob | None], texts: Sequence[str]) -> TextLogprobs:
        offset = self._num_sent[index]
        self._num_sent[index] += sum(map(len, texts))
        return text_logprobs(scores, texts, num_top=self._params.logprobs or 0, offset=offset)

    def _add_prompt_logprobs(self, choice: TextChoice, result: TextResult) -> None:
        if self._num_prompt_top is not None:
            choice.prompt_logprobs = prompt_logprobs(result.prompt_logprobs, self._num_prompt_top)

    def _chunk(self, *choices: TextChoice) -> Completion:
        head = self.head
        usage = UNSET if head.tells_usage == "never" else None
        return Completion(head.id, head.created, head.model, list(choices), head.fingerprint, usage=usage)
