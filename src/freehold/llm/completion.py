"""What the offline API gives back, and the answers in the making that it comes from."""

from dataclasses import dataclass

from freehold.protocol import Event, Finish
from freehold.text.jobs import Job
from freehold.text.logprobs import TokenLogprob
from freehold.text.params import SamplingParams
from freehold.text.stream import AnswerEnd


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
        logprobs: one for each of `token_ids`, if asked for.
        prompt_logprobs: one for each token of the prompt but the first, if asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    finish_reason: AnswerEnd
    stop: str | int | None
    error: str | None
    num_prompt_tokens: int
    num_output_tokens: int
    prompt_index: int = 0
    choice: int = 0
    num_cached_tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    @classmethod
    def refused(cls, prompt_index: int, error: str) -> "Completion":
        """For a prompt that can't be used."""
        return cls("", (), (), "failed", None, error, 0, 0, prompt_index)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a streamed answer.

    Attributes:
        text: what comes next; may be empty.
        token_ids: the ids that this event brought.
        completion: the whole answer, on the last piece only.
        logprobs: one for each of `token_ids`, if asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    completion: Completion | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer in the making."""

    prompt_index: int
    params: SamplingParams
    job: Job

    def take(self, event: Event) -> Piece:
        """The text that an event adds. Ids that come after a stop string was found add nothing."""
        if not isinstance(event, Finish):
            delta = self.job.text.push(event)
            return Piece(delta.text, delta.token_ids, logprobs=delta.logprobs)
        result = self.job.text.finish(event)
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
            choice=self.job.generate.sampling.choice,
            num_cached_tokens=result.num_cached_tokens,
            logprobs=result.logprobs,
            prompt_logprobs=result.prompt_logprobs,
        )
        return Piece(result.tail_text, (), completion)
