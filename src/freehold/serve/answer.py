"""What all surfaces do alike once a request has become jobs: answer it streamed or whole, in the surface's own form."""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from freehold.serve.entrance.gate import visit_of
from freehold.serve.entrance.record import Record, record_of
from freehold.serve.framing import Framing
from freehold.serve.generation import Answers, Piece, count, fold
from freehold.serve.parameters import Telling, usage_telling
from freehold.serve.reply import EventStream, while_connected
from freehold.serve.schema import SamplingFields, Usage
from freehold.serve.service import Service, fresh_seed
from freehold.text.jobs import Job
from freehold.text.params import SamplingParams
from freehold.text.stream import TextResult

SCORE_BYTES = 100
"""About what the log probabilities at one place take in an answer, with one of the likeliest tokens."""


@dataclass(frozen=True, slots=True)
class Head:
    """What all parts of one answer share. Answer i continues prompt ``i // n``.

    Attributes:
        seed: the request's, or the one that was drawn for it.
    """

    id: str
    created: int
    model: str
    fingerprint: str
    with_ids: bool
    tells_usage: Telling
    n: int
    seed: int

    @classmethod
    def of(cls, service: Service, body: SamplingFields, params: SamplingParams, kind: str) -> "Head":
        """
        Args:
            kind: what ids of such answers begin with.

        Raises:
            RequestError: options of a stream without a stream.
        """
        return cls(
            id=f"{kind}-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=service.config.served_model_name,
            fingerprint=service.info.fingerprint,
            with_ids=bool(body.return_token_ids),
            tells_usage=usage_telling(body),
            n=params.n,
            seed=fresh_seed() if params.seed is None else params.seed,
        )


class Form(Protocol):
    """How a surface writes an answer: in chunks, or whole."""

    @property
    def head(self) -> Head: ...

    @property
    def framing(self) -> Framing: ...

    def begin(self, index: int) -> Iterable[msgspec.Struct]:
        """Chunks of one answer before anything is generated."""
        ...

    def go_on(self, piece: Piece) -> Iterable[msgspec.Struct]:
        """Chunks of what a piece adds."""
        ...

    def end(self, index: int, result: TextResult) -> Iterable[msgspec.Struct]:
        """Chunks that tell why an answer ended."""
        ...

    def sum_up(self, usage: Usage) -> Iterable[msgspec.Struct]:
        """The last chunks of a stream that shall tell its usage."""
        ...

    def whole(self, results: Sequence[TextResult], usage: Usage) -> msgspec.Struct:
        """The answers of a request that isn't streamed."""
        ...


async def respond(
    request: Request, service: Service, form: Form, jobs: Sequence[Job], *, stream: bool, held: ExitStack[None]
) -> Response | ASGIApp:
    """Run the jobs and answer.

    Args:
        held: left when the answer has ended; a streamed one takes it over.

    Raises:
        RequestError, LimitError: it may use more tokens than its key has left.
        ClientLeftError, EngineError: of an answer that isn't streamed.
    """
    record = record_of(request.scope)
    record.prompt_lengths = [len(job.generate.prompt_ids) for job in jobs[:: form.head.n]]
    record.num_prompt_tokens = sum(record.prompt_lengths)
    record.num_answers, record.is_stream, record.service = len(jobs), stream, jobs[0].generate.service
    if record.notes is not None:
        record.notes.response_id = form.head.id
    max_output = sum(job.generate.sampling.max_tokens for job in jobs)
    visit_of(request.scope).reserve(record.num_prompt_tokens + max_output)
    headers = {"x-seed": str(form.head.seed)}
    if stream:
        tell = partial(_tell, service, form, jobs, record)
        return EventStream(tell, form.framing, headers, held.pop_all())
    results = await while_connected(request.receive, fold(service.engine, jobs, record))
    num_scores = sum(len(result.logprobs) + len(result.prompt_logprobs) for result in results)
    if num_scores:  # of a long prompt they take a second to write, in which others must be answered
        writing = service.lanes.run(num_scores * SCORE_BYTES, _write, form, results)
        body = await while_connected(request.receive, writing)
    else:
        body = _write(form, results)
    return Response(body, media_type="application/json", headers=headers)


def _write(form: Form, results: Sequence[TextResult]) -> bytes:
    return msgspec.json.encode(form.whole(results, count(results, form.head.n)))


async def _tell(
    service: Service, form: Form, jobs: Sequence[Job], record: Record, put: Callable[[msgspec.Struct], None]
) -> None:
    """Chunks of a stream: how each answer begins, what comes, why it ended; then, if asked for, the usage."""
    for index in range(len(jobs)):
        for chunk in form.begin(index):
            put(chunk)
    results: dict[int, TextResult] = {}
    tells_always = form.head.tells_usage == "always"

    def take(piece: Piece) -> None:
        for chunk in form.go_on(piece):
            put(_with_usage(chunk, record) if tells_always else chunk)
        if piece.result is not None:
            results[piece.index] = piece.result
            for chunk in form.end(piece.index, piece.result):
                put(_with_usage(chunk, record) if tells_always else chunk)

    await Answers(service.engine, jobs, record, take).run()
    if form.head.tells_usage != "never":
        for chunk in form.sum_up(count([results[index] for index in range(len(jobs))], form.head.n)):
            put(chunk)


def _with_usage(chunk: msgspec.Struct, record: Record) -> msgspec.Struct:
    """The chunk with what was used so far. What was reused of the prompt is known at the end alone."""
    num_prompt, num_output = record.num_prompt_tokens, record.num_output_tokens
    return msgspec.structs.replace(chunk, usage=Usage(num_prompt, num_output, num_prompt + num_output))
