"""Prompts and parameters become jobs: what the engine is asked, and the text that its events grow into."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import msgspec

from freehold.errors import RequestError
from freehold.protocol import EngineInfo, Generate, Grammar, Pin, RequestId, Sampling, ServiceClass, ThinkingLimit
from freehold.text.answer import Reading
from freehold.text.params import SamplingParams, context_room
from freehold.text.stream import PLAIN, TextStream
from freehold.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How a request is treated. Fields as in `Generate`, and `reading`. Its tokens depend on `thinking` alone.

    Attributes:
        reading: how the answers' text is taken apart.
    """

    reading: Reading = PLAIN
    digests: bool = False
    cache_namespace: str = ""
    pin: Pin | None = None
    is_public: bool = False
    service: ServiceClass = "interactive"
    priority: int = 0
    deadline_s: float | None = None
    thinking: ThinkingLimit | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to one prompt, ready to be generated."""

    generate: Generate
    text: TextStream


class JobPlanner:
    """Makes the jobs of one call or request. What depends on the parameters alone is checked and worked out once."""

    def __init__(self, tokenizer: Tokenizer, info: EngineInfo, handling: Handling) -> None:
        """
        Args:
            info: of the engine that the jobs are for.
        """
        self._tokenizer = tokenizer
        self._info = info
        self._reading = handling.reading
        self._handling = {
            item.name: getattr(handling, item.name) for item in fields(handling) if item.name != "reading"
        }
        self._last: tuple[SamplingParams, Sampling] | None = None

    def plan(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str,
        fresh_seed: int,
        param: str = "prompt",
        grammar: Grammar | None = None,
    ) -> list[Job]:
        """Jobs for the `n` answers to one prompt. They don't depend on other prompts.

        Args:
            request_id: those of the jobs begin with it.
            fresh_seed: taken if the parameters have none.
            param: the request's field that the prompt came from.
            grammar: what the answers must be; stands for what the parameters say about that.

        Raises:
            RequestError: a parameter is out of bounds; or the prompt is empty, too long, or holds ids that the model
                doesn't have.
        """
        base = self._sampling(params)
        ids, jobs = tuple(prompt_ids), []
        if not ids:
            raise RequestError(f"{param} is empty; at least one token is needed", param=param, code="empty_prompt")
        least_room = 0 if params.is_scoring else 1
        room = context_room(len(ids), self._info.max_model_len, param=param, least_room=least_room)
        self._tokenizer.check_ids(ids, param=param, vocab_size=self._info.vocab_size)
        for choice in range(params.n):
            sampling = msgspec.structs.replace(
                base,
                choice=choice,
                seed=fresh_seed if params.seed is None else params.seed,
                max_tokens=min(base.max_tokens, room),
                min_tokens=min(base.min_tokens, room),
            )
            generate = Generate(
                request_id=RequestId(f"{request_id}-{choice}"),
                prompt_ids=ids,
                sampling=sampling,
                grammar=grammar,
                family=request_id if params.n > 1 else "",
                **self._handling,
            )
            text = TextStream(
                self._tokenizer,
                ids,
                params.stop_strings,
                sampling.stop_ids,
                min_tokens=params.min_tokens,
                wants_output=params.max_tokens != 0,
                reading=self._reading,
            )
            jobs.append(Job(generate, text))
        return jobs

    def _sampling(self, params: SamplingParams) -> Sampling:
        """For a prompt of no length. Prompts that follow one another mostly share their parameters."""
        if self._last is None or self._last[0] is not params:
            params.validate(vocab_size=self._info.vocab_size)
            room = self._info.max_model_len
            sampling = params.to_engine(eos_ids=self._tokenizer.eos_ids, choice=0, fresh_seed=0, room=room)
            self._last = params, sampling
        return self._last[1]
