"""Prompts become answers: one stream of pieces, which a streamed reply sends on and a plain one folds."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from freehold.engine.aio import AsyncEngine
from freehold.errors import EngineError, FreeholdError, RequestError
from freehold.protocol import Finish, Grammar, Tokens
from freehold.serve.entrance.record import Record
from freehold.serve.schema import CompletionTokensDetails, PromptTokensDetails, Usage
from freehold.serve.service import Service
from freehold.text.jobs import Handling, Job, JobPlanner
from freehold.text.params import SamplingParams
from freehold.text.stream import TextDelta, TextResult

MAX_PROMPT_LOGPROBS = 1 << 20
"""Log probabilities of prompts' tokens that one request may ask for, the likeliest ones at each place included."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What happened to one answer.

    Attributes:
        index: which of the request's answers.
        delta: what is new; on the last piece the result's tail alone.
        result: the whole answer, on its last piece alone.
    """

    index: int
    delta: TextDelta
    result: TextResult | None = None


def plan_jobs(  # noqa: PLR0913  what a request is made of
    service: Service,
    head_id: str,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    *,
    seed: int,
    param: str,
    handling: Handling,
    grammar: Grammar | None = None,
) -> list[Job]:
    """Jobs of a request: `n` answers to each prompt.

    Args:
        head_id: the jobs' ids begin with it.
        prompts: token ids.
        seed: taken if the parameters have none.
        param: the field that the prompts came from.
        grammar: what the answers must be.

    Raises:
        RequestError: a prompt is too long or holds ids that the model doesn't have, or too much is to be scored.
    """
    if params.prompt_logprobs is not None:
        num_scores = sum(map(len, prompts)) * params.n * (params.prompt_logprobs + 1)
        if num_scores > MAX_PROMPT_LOGPROBS:
            raise RequestError(
                f"{param} asks for {num_scores} log probabilities of prompts' tokens; up to {MAX_PROMPT_LOGPROBS} are "
                "allowed in one request: send fewer prompts in one, or ask for fewer of the likeliest tokens",
                param=param,
            )
    if handling.service != "batch":
        handling = replace(handling, deadline_s=service.config.request_timeout_s)
    planner = JobPlanner(service.text.tokenizer, service.info, handling)
    jobs: list[Job] = []
    for position, ids in enumerate(prompts):
        jobs += planner.plan(
            ids, params, request_id=f"{head_id}-{position}", fresh_seed=seed, param=param, grammar=grammar
        )
    return jobs


async def run(engine: AsyncEngine, jobs: Sequence[Job], record: Record) -> AsyncGenerator[Piece, None]:
    """Pieces of all jobs as they come, each job's in order. Closing the iterator early aborts what still runs.

    Args:
        record: learns when the first token came, how many came or were reused, and how the answers ended.

    Raises:
        EngineError: the engine failed, ended or cancelled a request; the others are aborted.
    """
    record.note_queued([job.generate.request_id for job in jobs])
    if record.notes is not None:
        record.notes.note_jobs(jobs)
    run_all = _answer(engine, 0, jobs[0], record) if len(jobs) == 1 else _merge(engine, jobs, record)
    try:
        async with aclosing(run_all) as pieces:
            async for piece in pieces:
                if piece.delta.token_ids:
                    record.note_tokens(piece.index, len(piece.delta.token_ids))
                if (result := piece.result) is not None:
                    if jobs[piece.index].generate.sampling.choice == 0:
                        record.num_cached_tokens += result.num_cached_tokens
                    record.num_reasoning_tokens += result.num_reasoning_tokens
                    record.note_result(piece.index, result)
                yield piece
    finally:
        record.note_over()


async def _merge(engine: AsyncEngine, jobs: Sequence[Job], record: Record) -> AsyncGenerator[Piece, None]:
    """Pieces of several jobs that run at the same time."""
    arrived: asyncio.Queue[Piece | Exception] = asyncio.Queue()
    tasks = [
        asyncio.create_task(_forward(_answer(engine, index, job, record), arrived)) for index, job in enumerate(jobs)
    ]
    num_running = len(jobs)
    try:
        while num_running:
            piece = await arrived.get()
            if isinstance(piece, Exception):
                raise piece
            num_running -= piece.result is not None
            yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def fold(pieces: AsyncGenerator[Piece, None], num_jobs: int) -> list[TextResult]:
    """Results of all jobs, by index: a plain reply is a streamed one, read to its end."""
    results: dict[int, TextResult] = {}
    async with aclosing(pieces):
        async for piece in pieces:
            if piece.result is not None:
                results[piece.index] = piece.result
    return [results[index] for index in range(num_jobs)]


def count(results: Sequence[TextResult], jobs_per_prompt: int) -> Usage:
    """Usage of a request: each prompt once, every output. What was reused is what a prompt's first answer reused."""
    num_prompt = sum(result.num_prompt_tokens for result in results[::jobs_per_prompt])
    num_output = sum(result.num_output_tokens for result in results)
    num_cached = sum(result.num_cached_tokens for result in results[::jobs_per_prompt])
    num_reasoning = sum(result.num_reasoning_tokens for result in results)
    return Usage(
        prompt_tokens=num_prompt,
        completion_tokens=num_output,
        total_tokens=num_prompt + num_output,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=num_cached),
        completion_tokens_details=CompletionTokensDetails(reasoning_tokens=num_reasoning),
    )


async def _answer(engine: AsyncEngine, index: int, job: Job, record: Record) -> AsyncGenerator[Piece, None]:
    """Pieces of one job."""
    take = None if record.flight is None else record.flight.follow(job.generate)
    async with aclosing(engine.generate(job.generate, partial(record.note_finish, index), take)) as events:
        async for event in events:
            if not isinstance(event, Finish):
                if isinstance(event, Tokens) and event.started_s is not None:
                    record.note_begun(event.started_s, event.held_s)
                was_stopped = job.text.stopped
                delta = job.text.push(event)
                if job.text.stopped and not was_stopped:
                    if take is not None:
                        take.stop()
                    engine.engine.abort(job.generate.request_id)
                if not was_stopped:
                    yield Piece(index, delta)
                continue
            if event.reason == "failed":
                raise _failure(job, event)
            result = job.text.finish(event)
            if result.finish_reason == "cancelled":
                raise EngineError("the server is shutting down and cut this answer short", code="engine_stopping")
            yield Piece(index, TextDelta(result.tail, (), ()), result)


def _failure(job: Job, event: Finish) -> FreeholdError:
    """Why an answer failed, as its client shall read it."""
    message, code = event.message or "the engine failed on this request", event.code or "engine_failed"
    if code == "mask_empty" and job.generate.sampling.allowed_ids:
        return RequestError(message, param="allowed_token_ids", code=code)
    return EngineError(message, code=code)


async def _forward(answer: AsyncGenerator[Piece, None], arrived: "asyncio.Queue[Piece | Exception]") -> None:
    """Put one job's pieces, or the error that ended it, into the queue of all."""
    try:
        async with aclosing(answer) as pieces:
            async for piece in pieces:
                arrived.put_nowait(piece)
    except Exception as error:
        arrived.put_nowait(error)
