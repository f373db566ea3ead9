"""Prompts and parameters become jobs: what the engine is asked, and the text that its events grow into."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from freehold.errors import RequestError
from freehold.protocol import EngineInfo, Generate, RequestId, Sampling, ServiceClass
from freehold.text.params import SamplingParams, context_room
from freehold.text.stream import TextStream
from freehold.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How the engine shall treat a request; its tokens don't depend on it. Fields as in `Generate`."""

    digests: bool = False
    cache_namespace: str = ""
    service: ServiceClass = "interactive"
    priority: int = 0
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to one prompt, ready to be generated."""

    generate: Generate
    text: TextStream


@dataclass(frozen=True, slots=True)
class JobPlanner:
    """Makes the jobs of one model, whose engine `info` is of."""

    tokenizer: Tokenizer
    info: EngineInfo

    def plan(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str,
        fresh_seed: int,
        handling: Handling,
        param: str = "prompt",
    ) -> list[Job]:
        """Jobs for the `n` answers to one prompt. They don't depend on other prompts.

        Args:
            params: valid ones.
            request_id: those of the jobs begin with it.
            fresh_seed: taken if the parameters have none.
            param: the request's field that the prompt came from.

        Raises:
            RequestError: the prompt is empty, too long, or holds ids that the model doesn't have.
        """
        ids, jobs = tuple(prompt_ids), []
        for choice in range(params.n):
            sampling = self._sampling(ids, params, choice=choice, fresh_seed=fresh_seed, param=param)
            generate = Generate(
                request_id=RequestId(f"{request_id}-{choice}"),
                prompt_ids=ids,
                sampling=sampling,
                family=request_id if params.n > 1 else "",
                **asdict(handling),
            )
            text = TextStream(
                self.tokenizer,
                ids,
                params.stop_strings,
                sampling.stop_ids,
                min_tokens=params.min_tokens,
                wants_output=params.max_tokens != 0,
            )
            jobs.append(Job(generate, text))
        return jobs

    def _sampling(
        self, ids: Sequence[int], params: SamplingParams, *, choice: int, fresh_seed: int, param: str
    ) -> Sampling:
        if not ids:
            raise RequestError(f"{param} is empty; at least one token is needed", param=param, code="empty_prompt")
        room = context_room(len(ids), self.info.max_model_len, param=param)
        self.tokenizer.check_ids(ids, param=param, vocab_size=self.info.vocab_size)
        return params.to_engine(eos_ids=self.tokenizer.eos_ids, choice=choice, fresh_seed=fresh_seed, room=room)
