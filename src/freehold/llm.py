"""The offline API: load a model in this process and generate text with it.

    from freehold import LLM, SamplingParams

    with LLM("smollm2") as llm:
        for completion in llm.generate(["Hello", "The sea"], SamplingParams(max_tokens=20)):
            print(completion.text)

It goes the same way as a request to the server: ids to the engine, events back, text made from them here.
"""

import itertools
import queue
import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from freehold import resolve
from freehold.engine.aio import AsyncEngine
from freehold.engine.client import Engine
from freehold.engine.handle import EngineHandle
from freehold.errors import EngineError, ModelFileError, RequestError
from freehold.files.model import open_model
from freehold.files.vocabulary import TextAssets, load_text
from freehold.protocol import EngineInfo, Event, Finish, FinishReason, Generate, RequestId
from freehold.settings import DEFAULT_MODEL
from freehold.text.jobs import Handling, Job, JobPlanner
from freehold.text.params import SamplingParams
from freehold.text.prompts import Chat, Prompt, as_chats, as_prompts, is_chat, one_each, token_ids
from freehold.text.stream import TextStream

OnProgress = Callable[[int, int], None]
"""Called with the completions that are done and the number of all."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer to one prompt.

    Attributes:
        token_ids: what was sampled, up to and including the token that ended the answer.
        digests: of the logits behind each id, if asked for.
        finish_reason: ``stop``, ``length``, ``cancelled`` (the model was closed meanwhile) or ``failed``.
        stop: the stop string or stop id that ended the answer.
        error: what went wrong if the reason is ``failed``.
        prompt_index: which prompt of the call this answers.
        choice: which of the prompt's `n` answers this is.
        num_cached_tokens: of the prompt's, those that were reused instead of computed.
    """

    text: str
    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    finish_reason: FinishReason
    stop: str | int | None
    error: str | None
    num_prompt_tokens: int
    num_output_tokens: int
    prompt_index: int = 0
    choice: int = 0
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a streamed answer.

    Attributes:
        text: what comes next; may be empty.
        token_ids: the ids that this event brought.
        completion: the whole answer, on the last piece only.
    """

    text: str
    token_ids: tuple[int, ...]
    completion: Completion | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer that is to be made: what the engine is asked, and the text it grows into."""

    prompt_index: int
    job: Job

    @property
    def generate(self) -> Generate:
        return self.job.generate

    @property
    def text(self) -> TextStream:
        return self.job.text

    def take(self, event: Event) -> Piece:
        """The text that an event adds. Ids that come after a stop string was found add nothing."""
        if not isinstance(event, Finish):
            delta = self.text.push(event)
            return Piece(delta.text, delta.token_ids)
        result = self.text.finish(event)
        completion = Completion(
            text=result.text,
            token_ids=result.token_ids,
            digests=result.digests,
            finish_reason=result.finish_reason,
            stop=result.stop,
            error=event.message if result.finish_reason == "failed" else None,
            num_prompt_tokens=result.num_prompt_tokens,
            num_output_tokens=result.num_output_tokens,
            prompt_index=self.prompt_index,
            choice=self.generate.sampling.choice,
            num_cached_tokens=result.num_cached_tokens,
        )
        return Piece(result.tail, (), completion)


class LLM:
    """A loaded model. Safe to use from several threads; their requests run side by side.

    Attributes:
        info: what the engine decided at start-up.
    """

    def __init__(self, model: str | Path = DEFAULT_MODEL, **settings: Any) -> None:
        """Load a model.

        Args:
            model: a name in the model store, a path, or a Hugging Face id.
            settings: as on the command line, such as ``max_model_len=2048`` or ``threads=2``.

        Raises:
            UserError: no such model or setting, or it doesn't fit; says what to do.
        """
        config = resolve.engine_config(model=model, **settings)
        with open_model(config.model_path, cache_dir=config.cache_dir) as files:
            text = load_text(files)
        self._adopt(Engine.start(config), text)

    @classmethod
    def over(cls, engine: EngineHandle, text: TextAssets) -> Self:
        """An `LLM` over an engine that runs already. Closing it shuts the engine down."""
        self = cls.__new__(cls)
        self._adopt(engine, text)
        return self

    def _adopt(self, engine: EngineHandle, text: TextAssets) -> None:
        self.info: EngineInfo = engine.info
        self._engine = engine
        self._text = text
        self._numbers = itertools.count()
        self._close = weakref.finalize(self, _close, engine, text)  # also when it is forgotten, or Python ends

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        digests: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Completion]:
        """Answer one or many prompts.

        Args:
            params: for all prompts, or one for each.
            digests: also give digests of the logits.

        Returns:
            The answers in the order of the prompts; for ``n`` > 1, a prompt's answers one after the other.

        Raises:
            RequestError: a prompt or parameter is unusable. All are checked before anything runs.
            EngineError: the model was closed, or this process is a fork of the one that loaded it.
        """
        self._check_open()
        encoded = [self._encode(prompt, place) for place, prompt in as_prompts(prompts)]
        return self._answer_all(encoded, params, digests, on_progress)

    def chat(
        self,
        messages: Chat | Sequence[Chat],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        digests: bool = False,
        on_progress: OnProgress | None = None,
        **template: Any,
    ) -> list[Completion]:
        """Answer one or many conversations; otherwise as `generate`.

        Args:
            template: further arguments of `freehold.text.template.ChatTemplate.render`, such as ``tools``.
        """
        self._check_open()
        prompts = [self._encode_chat(chat, template) for chat in as_chats(messages)]
        return self._answer_all(prompts, params, digests, on_progress)

    def stream(self, prompt: Prompt | Chat, params: SamplingParams | None = None) -> Iterator[Piece]:
        """Answer one prompt or conversation piece by piece. Leaving the iteration early ends the request.

        Raises as `generate` does; if the model is closed only now, that shows at the first step of the iteration.
        """
        return _stream(self._engine, self._one_job(prompt, params))

    def astream(self, prompt: Prompt | Chat, params: SamplingParams | None = None) -> AsyncGenerator[Piece, None]:
        """Like `stream`, for coroutines."""
        return _stream_async(AsyncEngine(self._engine), self._one_job(prompt, params))

    def close(self) -> None:
        """Cancel what still runs and free the model's memory. Idempotent."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ prompts become jobs

    def _check_open(self) -> None:
        """First of all, since rendering a chat would start processes."""
        self._engine.check_process()
        if not self._close.alive:
            raise EngineError("the model was closed; load it again", code="engine_stopped")

    def _encode(self, prompt: object, place: str) -> tuple[int, ...]:
        """Ids of a prompt; `place` is what messages call it."""
        return tuple(self._text.tokenizer.encode(prompt)) if isinstance(prompt, str) else token_ids(prompt, place)

    def _encode_chat(self, chat: Chat, template: Mapping[str, Any]) -> tuple[int, ...]:
        if self._text.template is None:
            raise ModelFileError("the model has no chat template; use generate with a prompt instead")
        return tuple(self._text.template.render(chat, **template).encode(self._text.tokenizer))

    def _one_job(self, prompt: Prompt | Chat, params: SamplingParams | None) -> _Answer:
        self._check_open()
        prompt_ids = self._encode_chat(prompt, {}) if is_chat(prompt) else self._encode(prompt, "prompt")
        (params,) = one_each(params, 1)
        if params.n != 1:
            raise RequestError(f"n is {params.n}; a stream has 1 answer", param="n")
        (job,) = self._jobs(0, prompt_ids, params, digests=False)
        return job

    def _jobs(
        self, prompt_index: int, prompt_ids: tuple[int, ...], params: SamplingParams, *, digests: bool
    ) -> Iterator[_Answer]:
        """One for each of the `n` answers."""
        params.validate(vocab_size=self.info.vocab_size)
        jobs = JobPlanner(self._text.tokenizer, self.info).plan(
            prompt_ids,
            params,
            request_id=f"llm-{next(self._numbers)}",
            fresh_seed=secrets.randbits(64),
            handling=Handling(digests=digests),
        )
        for job in jobs:
            self._engine.check(job.generate)
            yield _Answer(prompt_index, job)

    # ------------------------------------------------------------------ jobs become completions

    def _answer_all(
        self,
        prompts: Sequence[tuple[int, ...]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        digests: bool,
        on_progress: OnProgress | None,
    ) -> list[Completion]:
        jobs = [
            job
            for position, (prompt_ids, one) in enumerate(zip(prompts, one_each(params, len(prompts)), strict=True))
            for job in self._jobs(position, prompt_ids, one, digests=digests)
        ]
        completions: dict[RequestId, Completion] = {}
        for job, completion in self._run(jobs):
            completions[job.generate.request_id] = completion
            if on_progress:
                on_progress(len(completions), len(jobs))
        return [completions[job.generate.request_id] for job in jobs]

    def _run(self, jobs: Iterable[_Answer]) -> Iterator[tuple[_Answer, Completion]]:
        """Run jobs side by side, a few more than fit in a step; yield them as they end."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        running: dict[RequestId, _Answer] = {}
        waiting = iter(jobs)
        try:
            while True:
                for job in itertools.islice(waiting, 2 * self.info.max_num_seqs - len(running)):
                    self._engine.submit(job.generate, events.put)
                    running[job.generate.request_id] = job
                if not running:
                    return
                event = events.get()
                job = running[event.request_id]
                completion = job.take(event).completion
                if completion:
                    del running[event.request_id]
                    yield job, completion
                elif job.text.stopped:
                    self._engine.abort(event.request_id)
        finally:
            for request_id in running:
                self._engine.abort(request_id)


def _close(engine: EngineHandle, text: TextAssets) -> None:
    if engine.is_forked:  # engine and template worker are the parent's
        return
    engine.shutdown()
    if text.template:
        text.template.close()


def _stream(engine: EngineHandle, job: _Answer) -> Iterator[Piece]:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine.submit(job.generate, events.put)
    completion: Completion | None = None
    try:
        while completion is None:
            engine.check_process()  # may have been forked between two steps
            piece = job.take(events.get())
            completion = piece.completion
            if job.text.stopped:
                engine.abort(job.generate.request_id)
            yield piece
    finally:
        if completion is None:
            engine.abort(job.generate.request_id)


async def _stream_async(engine: AsyncEngine, job: _Answer) -> AsyncGenerator[Piece, None]:
    events = engine.generate(job.generate)
    try:
        async for event in events:
            piece = job.take(event)
            if job.text.stopped:
                engine.engine.abort(job.generate.request_id)
            yield piece
    finally:
        await events.aclose()
