"""The class `LLM`."""

import itertools
import queue
import secrets
import weakref
from array import array
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence, Sized
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
from freehold.grammar.compiler import GrammarCompiler
from freehold.llm.batch import Batch
from freehold.llm.completion import Answer, Completion, Piece
from freehold.llm.journal import Journal
from freehold.llm.profile import ProfileBlock
from freehold.protocol import EngineInfo, Event, ServiceClass
from freehold.settings import DEFAULT_MODEL
from freehold.text.jobs import Handling, JobPlanner
from freehold.text.params import SamplingParams
from freehold.text.prompts import Chat, Prompt, as_chats, as_prompts, each, is_chat, one_each, token_ids

OnProgress = Callable[[int, int], None]
"""Called with the completions that are done and the number of all."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """What callers say about a batch."""

    handling: Handling
    progress: bool
    journal: str | Path | None

    def open(self, info: EngineInfo, params: Sequence[SamplingParams], total: int | None, *, in_order: bool) -> Batch:
        """
        Args:
            params: those that will occur, as far as that is known.

        Raises:
            JournalError: the journal is of another model or other parameters.
        """
        journal = None
        if self.journal is not None:
            journal = Journal(Path(self.journal), info, [(one, self.handling.digests) for one in params])
        return Batch(journal, total, self.progress, in_order)


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
        self._grammars = GrammarCompiler(text.tokenizer.token_texts, engine.teach)
        self._numbers = itertools.count()
        self._close = weakref.finalize(
            self, _close, engine, text, self._grammars
        )  # also when it is forgotten, or Python ends

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        digests: bool = False,
        progress: bool = False,
        on_progress: OnProgress | None = None,
        journal: str | Path | None = None,
        service: ServiceClass = "batch",
    ) -> list[Completion]:
        """Answer one or many prompts.

        Args:
            params: for all prompts, or one for each.
            digests: also give digests of the logits.
            progress: show a bar if stderr is a terminal.
            journal: a file that completions are recorded in. A second run with the same prompts takes those that it
                holds from there (`freehold.llm.journal`).
            service: how urgent the requests are, against others of this model.

        Returns:
            The answers in the order of the prompts; for ``n`` > 1, a prompt's answers one after the other.

        Raises:
            RequestError: a prompt or parameter is unusable. All are checked before anything runs.
            JournalError: the journal is of another model or other parameters.
            EngineError: the model was closed, or this process is a fork of the one that loaded it.
        """
        self._check_open()
        placed = as_prompts(prompts)
        encoded = (self._encode(prompt, place) for place, prompt in placed)
        ways = _Ways(Handling(digests=digests, service=service), progress, journal)
        return self._answer_all(encoded, one_each(params, len(placed)), ways, on_progress)

    def chat(
        self,
        messages: Chat | Sequence[Chat],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        digests: bool = False,
        progress: bool = False,
        on_progress: OnProgress | None = None,
        journal: str | Path | None = None,
        service: ServiceClass = "batch",
        **template: Any,
    ) -> list[Completion]:
        """Answer one or many conversations; otherwise as `generate`.

        Args:
            template: further arguments of `freehold.text.template.ChatTemplate.render`, such as ``tools``.
        """
        self._check_open()
        chats = as_chats(messages)
        encoded = (self._encode_chat(chat, template) for chat in chats)
        ways = _Ways(Handling(digests=digests, service=service), progress, journal)
        return self._answer_all(encoded, one_each(params, len(chats)), ways, on_progress)

    def generate_each(  # noqa: PLR0913  what a user may choose
        self,
        prompts: Iterable[Prompt | Chat],
        params: SamplingParams | Iterable[SamplingParams] | None = None,
        *,
        in_order: bool = False,
        strict: bool = False,
        digests: bool = False,
        progress: bool = False,
        journal: str | Path | None = None,
        service: ServiceClass = "batch",
    ) -> Iterator[Completion]:
        """Answer prompts and conversations from any iterable, also an endless one: one completion after the other.

        The name says what it is: `generate`, for each. Prompts are taken as there is room, twice as many as a step
        holds, in the thread that iterates: between two completions nothing is taken, and while the next prompt is
        waited for nothing is given. Memory doesn't grow with their number. Leaving the iteration early ends what runs.

        Args:
            params: for all prompts, or an iterable with one for each.
            in_order: give completions in the order of the prompts, not as they end. A slow one then holds up others:
                up to eight times as many as a step holds are taken ahead of it.
            strict: raise at the first unusable prompt. Else its completion has the reason ``failed`` and the error, and
                the others go on, as after an error of the engine that costs one request.
            digests, progress, journal, service: as in `generate`.

        Raises:
            RequestError: `prompts` is a single text, or `params` no parameters, or unusable for all of them; with
                `strict` also an unusable prompt.
            JournalError, EngineError: as from `generate`; from the iteration too.
        """
        self._check_open()
        pairs = each(prompts, params)
        ways = _Ways(Handling(digests=digests, service=service), progress, journal)
        shared = SamplingParams() if params is None else params if isinstance(params, SamplingParams) else None
        if shared is not None:
            shared.validate(vocab_size=self.info.vocab_size)
        total = len(prompts) * shared.n if isinstance(prompts, Sized) and shared else None
        batch = ways.open(self.info, [shared] if shared else [], total, in_order=in_order)
        return batch.run(self._engine, self._each(pairs, ways.handling, strict))

    def stream(self, prompt: Prompt | Chat, params: SamplingParams | None = None) -> Iterator[Piece]:
        """Answer one prompt or conversation piece by piece. Leaving the iteration early ends the request.

        Raises as `generate` does; if the model is closed only now, that shows at the first step of the iteration.
        """
        return _stream(self._engine, self._one_answer(prompt, params))

    def astream(self, prompt: Prompt | Chat, params: SamplingParams | None = None) -> AsyncGenerator[Piece, None]:
        """Like `stream`, for coroutines."""
        return _stream_async(AsyncEngine(self._engine), self._one_answer(prompt, params))

    def profile(self, max_steps: int = 1000) -> ProfileBlock:
        """Where the time of steps goes, of those that run inside a ``with`` block:

            with llm.profile() as profile:
                llm.generate(prompts)
            print(profile.table())
            profile.save_trace("trace.json")

        Args:
            max_steps: the profile holds the first so many.

        Raises, when the block is entered and left:
            EngineError: the backend can't be profiled, another profile is being taken, or the machine's limits must
                still be measured, which a model's first profile does, and requests run.
        """
        return ProfileBlock(self._engine, max_steps)

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

    def _encode_either(self, prompt: object, place: str) -> Sequence[int]:
        """Ids of a prompt or conversation; `place` is what messages call it."""
        return self._encode_chat(prompt, {}) if is_chat(prompt) else self._encode(prompt, place)

    def _encode(self, prompt: object, place: str) -> Sequence[int]:
        return self._text.tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt, place)

    def _encode_chat(self, chat: Chat, template: Mapping[str, Any]) -> Sequence[int]:
        if self._text.template is None:
            raise ModelFileError("the model has no chat template; use generate with a prompt instead")
        return self._text.template.render(chat, **template).encode(self._text.tokenizer)

    def _one_answer(self, prompt: Prompt | Chat, params: SamplingParams | None) -> Answer:
        self._check_open()
        prompt_ids = self._encode_either(prompt, "prompt")
        (params,) = one_each(params, 1)
        params.validate(vocab_size=self.info.vocab_size)
        if params.n != 1:
            raise RequestError(f"n is {params.n}; a stream has 1 answer", param="n")
        (answer,) = self._answers(0, prompt_ids, params, self._planner(Handling()))
        return answer

    def _planner(self, handling: Handling) -> JobPlanner:
        return JobPlanner(self._text.tokenizer, self.info, handling)

    def _answers(
        self, prompt_index: int, prompt_ids: Sequence[int], params: SamplingParams, planner: JobPlanner
    ) -> list[Answer]:
        """One for each of the `n` answers."""
        request_id, fresh_seed = f"llm-{next(self._numbers)}", secrets.randbits(64)
        grammar = None
        if params.structured_outputs is not None:
            params.validate(vocab_size=self.info.vocab_size)
            grammar = self._grammars.compile(params.structured_outputs, param="structured_outputs")
        jobs = planner.plan(prompt_ids, params, request_id=request_id, fresh_seed=fresh_seed, grammar=grammar)
        for job in jobs:
            self._engine.check(job.generate)
        return [Answer(prompt_index, params, job) for job in jobs]

    # ------------------------------------------------------------------ batches

    def _each(
        self, pairs: Iterable[tuple[object, SamplingParams]], handling: Handling, strict: bool
    ) -> Iterator[Answer | Completion]:
        """Answers to prompts that come one by one."""
        planner = self._planner(handling)
        for index, (prompt, params) in enumerate(pairs):
            try:
                answers = self._answers(index, self._encode_either(prompt, f"prompts[{index}]"), params, planner)
            except RequestError as error:
                if strict:
                    raise
                yield Completion.refused(index, str(error))
            else:
                yield from answers

    def _answer_all(
        self,
        prompts: Iterable[Sequence[int]],
        params: Sequence[SamplingParams],
        ways: _Ways,
        on_progress: OnProgress | None,
    ) -> list[Completion]:
        """Check all prompts, then answer them. Between the two they are kept as arrays, a few bytes a token."""
        planner = self._planner(ways.handling)
        kept: list[array[int]] = []
        for index, (prompt_ids, one) in enumerate(zip(prompts, params, strict=True)):
            self._answers(index, prompt_ids, one, planner)
            kept.append(array("i", prompt_ids))
        source = itertools.chain.from_iterable(
            self._answers(index, prompt_ids, one, planner)
            for index, (prompt_ids, one) in enumerate(zip(kept, params, strict=True))
        )
        total = sum(one.n for one in params)
        completions: list[Completion] = []
        for completion in ways.open(self.info, params, total, in_order=False).run(self._engine, source):
            completions.append(completion)
            if on_progress:
                on_progress(len(completions), total)
        return sorted(completions, key=lambda completion: (completion.prompt_index, completion.choice))


def _close(engine: EngineHandle, text: TextAssets, grammars: GrammarCompiler) -> None:
    if engine.is_forked:  # engine and template worker are the parent's
        return
    engine.shutdown()
    if text.template:
        text.template.close()
    grammars.close()


def _stream(engine: EngineHandle, answer: Answer) -> Iterator[Piece]:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine.submit(answer.job.generate, events.put)
    completion: Completion | None = None
    try:
        while completion is None:
            engine.check_process()  # may have been forked between two steps
            piece = answer.take(events.get())
            completion = piece.completion
            if answer.job.text.stopped:
                engine.abort(answer.job.generate.request_id)
            yield piece
    finally:
        if completion is None:
            engine.abort(answer.job.generate.request_id)


async def _stream_async(engine: AsyncEngine, answer: Answer) -> AsyncGenerator[Piece, None]:
    events = engine.generate(answer.job.generate)
    try:
        async for event in events:
            piece = answer.take(event)
            if answer.job.text.stopped:
                engine.engine.abort(answer.job.generate.request_id)
            yield piece
    finally:
        await events.aclose()
