"""Prompts become answers: one stream of pieces, which a streamed reply sends on and a plain one folds."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from freehold.engine.aio import AsyncEngine
from freehold.errors import EngineError, FreeholdError, RequestError
from freehold.observe.record.take import Take
from freehold.protocol import Event, Finish, Grammar, Tokens
from freehold.serve.entrance.record import Record
from freehold.serve.schema import CompletionTokensDetails, PromptTokensDetails, Usage
from freehold.serve.service import Service
from freehold.text.jobs import Handling, Job, JobPlanner
from freehold.text.params import SamplingParams
from freehold.text.stream import TextDelta, TextResult

MAX_PROMPT_LOGPROBS = 1 << 20
"""Log probabilities of prompts' tokens that one request may ask for, the likeliest ones at each place included."""


_log = logging.getLogger(__name__)


class Piece(msgspec.Struct, frozen=True):
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


class Answers:
    """The answers to one request while they grow. For the event loop's thread."""

    def __init__(
        self, engine: AsyncEngine, jobs: Sequence[Job], record: Record, on_piece: Callable[[Piece], None]
    ) -> None:
        """
        Args:
            record: learns when the first token came, how many came or were reused, and how the answers ended.
            on_piece: gets the pieces of all jobs as they come, each job's in order. If it raises, `run` does.
        """
        self._engine = engine
        self._jobs = jobs
        self._record = record
        self._on_piece = on_piece
        self._takes: list[Take | None] = []
        self._running: set[int] = set()  # jobs that have not ended in the engine
        self._num_open = len(jobs)  # answers without a result
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Have the jobs answered, and return when all pieces were given. Cancelled, it aborts what still runs.

        Raises:
            EngineError: the engine refused, failed, ended or cancelled a request; the others are aborted.
            RequestError: nothing can answer the request.
        """
        record = self._record
        record.note_queued([job.generate.request_id for job in self._jobs])
        if record.notes is not None:
            record.notes.note_jobs(self._jobs)
        try:
            for index, job in enumerate(self._jobs):
                take = None if record.flight is None else record.flight.follow(job.generate)
                self._takes.append(take)
                self._engine.submit(job.generate, partial(self._see, index), take)
                self._running.add(index)
            await self._over
        finally:
            if not self._over.done():
                self._over.cancel()
            elif not self._over.cancelled():
                self._over.exception()  # that it failed while its client left is no news
            self._over = _cancelled()  # an error holds, by its traceback, all that is here: who holds it holds a cycle
            for index in self._running:
                self._engine.engine.abort(self._jobs[index].generate.request_id)
            record.note_over()

    def _see(self, index: int, event: Event) -> None:
        """An event of one of the jobs, perhaps after `run` has ended."""
        try:
            if isinstance(event, Finish):
                self._running.discard(index)
                self._record.note_finish(index, event)
            if not self._over.done():
                self._take(index, event)
        except Exception as error:
            if not self._over.done():
                self._over.set_exception(error)
            else:
                _log.exception("the end of request %s isn't noted", event.request_id)

    def _take(self, index: int, event: Event) -> None:
        job = self._jobs[index]
        if isinstance(event, Finish):
            self._end(index, job, event)
            return
        if isinstance(event, Tokens) and event.started_s is not None:
            self._record.note_begun(event.started_s, event.held_s)
        was_stopped = job.text.stopped
        delta = job.text.push(event)
        if was_stopped:
            return
        if job.text.stopped:
            if (take := self._takes[index]) is not None:
                take.stop()
            self._engine.engine.abort(job.generate.request_id)
        if delta.token_ids:
            self._record.note_tokens(index, len(delta.token_ids))
        self._on_piece(Piece(index, delta))

    def _end(self, index: int, job: Job, finish: Finish) -> None:
        """
        Raises:
            FreeholdError: it has no result.
        """
        if finish.reason == "failed":
            raise _failure(job, finish)
        result = job.text.finish(finish)
        if result.finish_reason == "cancelled":
            raise EngineError("the server is shutting down and cut this answer short", code="engine_stopping")
        record = self._record
        if job.generate.sampling.choice == 0:
            record.num_cached_tokens += result.num_cached_tokens
        record.num_reasoning_tokens += result.num_reasoning_tokens
        record.note_result(index, result)
        self._on_piece(Piece(index, TextDelta(result.tail, (), ()), result))
        self._num_open -= 1
        if not self._num_open:
            self._over.set_result(None)


def _cancelled() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


async def fold(engine: AsyncEngine, jobs: Sequence[Job], record: Record) -> list[TextResult]:
    """Results of all jobs, by index: a plain reply is a streamed one, read to its end.

    Raises:
        as `Answers.run`.
    """
    results: dict[int, TextResult] = {}

    def keep(piece: Piece) -> None:
        if piece.result is not None:
            results[piece.index] = piece.result

    await Answers(engine, jobs, record, keep).run()
    return [results[index] for index in range(len(jobs))]


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


def _failure(job: Job, event: Finish) -> FreeholdError:
    """Why an answer failed, as its client shall read it."""
    message, code = event.message or "the engine failed on this request", event.code or "engine_failed"
    if code == "mask_empty" and job.generate.sampling.allowed_ids:
        return RequestError(message, param="allowed_token_ids", code=code)
    return EngineError(message, code=code)
