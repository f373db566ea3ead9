"""From an engine's events to text: deltas while it runs, and one result that everything is trimmed by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from freehold.protocol import Finish, FinishReason, PromptLogprobs, Tokens
from freehold.text.logprobs import TokenLogprob, with_text
from freehold.text.stops import StopMatcher
from freehold.text.tokenizer import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What one event added.

    Attributes:
        text: valid text, never a part of a stop string. May be empty while ids are not.
        token_ids, digests, logprobs: of this event, trimmed by the rule of `TextStream`.
        pieces: the text that each of these ids adds, before stop strings are looked for; given with log probabilities.
        prompt_logprobs: of further ids of the prompt.
    """

    text: str
    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    pieces: tuple[str, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TextResult:
    """The whole answer.

    Attributes:
        text: all deltas, `tail` included.
        tail: text that became certain at the end only: the last delta of a streamed answer.
        token_ids, digests, logprobs: trimmed by the rule of `TextStream`; the latter are empty if none were asked for.
        finish_reason: ``stop`` if a stop string or stop id ended the answer, else the engine's reason.
        stop: the stop string or stop id.
        num_output_tokens: ``len(token_ids)``: what the answer is charged for.
        num_cached_tokens: of the prompt's, those that were reused instead of computed.
        pieces: as in `TextDelta`.
        prompt_logprobs: of each id of the prompt but the first, if asked for.
    """

    text: str
    tail: str
    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    finish_reason: FinishReason
    stop: str | int | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    pieces: tuple[str, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


class TextStream:
    """Text of one answer. Not thread-safe.

    **The rule for the cut.** A stop string ends the text before its first character, and ends the ids after the token
    that completed it. A stop id ends the ids with itself and adds no text. Ids, digests, log probabilities and counts
    are cut at the same place; whatever the engine computed beyond it is dropped.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        stop_strings: Sequence[str] = (),
        stop_ids: Iterable[int] = (),
        *,
        min_tokens: int = 0,
        wants_output: bool = True,
    ) -> None:
        """
        Arguments:
            stop_ids: the ids the engine stops at, as in `Sampling.stop_ids`.
            min_tokens: the text of so many tokens is taken as it is, whatever stop strings it holds.
            wants_output: if false, all ids are dropped: the request was made for its prompt's log probabilities.
        """
        self._tokenizer = tokenizer
        self._prompt_ids = prompt_ids
        self._detokenizer = tokenizer.detokenizer(prompt_ids)
        self._matcher = StopMatcher(stop_strings)
        self._stop_ids = frozenset(stop_ids)
        self._min_tokens = min_tokens
        self._wants_output = wants_output
        self._parts: list[TextDelta] = []
        self._num_ids = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: the caller aborts the engine's request, and goes on to `finish`."""
        return self._matcher.hit is not None

    def push(self, event: Tokens | PromptLogprobs) -> TextDelta:
        """Take in new ids. Once `stopped`, all further ones are dropped."""
        delta = self._score_prompt(event) if isinstance(event, PromptLogprobs) else self._take(event)
        self._parts.append(delta)
        return delta

    def _score_prompt(self, event: PromptLogprobs) -> TextDelta:
        ids = self._prompt_ids[event.start_pos : event.start_pos + len(event.logprobs)]
        return TextDelta("", (), (), prompt_logprobs=with_text(self._tokenizer, ids, event.logprobs))

    def _take(self, event: Tokens) -> TextDelta:
        text, pieces = "", []
        for token_id in event.token_ids if self._wants_output else ():
            if self.stopped:
                break
            piece = "" if token_id in self._stop_ids else self._detokenizer.push(token_id)
            self._num_ids += 1
            text += piece if self._num_ids <= self._min_tokens else self._matcher.push(piece)
            pieces.append(piece)
        num_kept = len(pieces)
        ids, scores = event.token_ids[:num_kept], event.logprobs[:num_kept]
        return TextDelta(
            text,
            ids,
            event.digests[:num_kept],
            with_text(self._tokenizer, ids, scores) if scores else (),
            tuple(pieces) if scores else (),
        )

    def finish(self, event: Finish) -> TextResult:
        """End the answer with the engine's terminal event: give out what is held, and settle why it ended."""
        # What the last bytes decode to may still complete a stop string.
        rest = self._detokenizer.finish()
        tail = rest if self._num_ids < self._min_tokens else self._matcher.push(rest)
        tail += self._matcher.finish()
        reason: FinishReason = "stop" if self.stopped else event.reason
        stop = self._matcher.hit if self.stopped else event.stop_id
        if not self._wants_output and reason == "stop":
            reason, stop = "length", None
        return TextResult(
            text="".join(part.text for part in self._parts) + tail,
            tail=tail,
            token_ids=_joined(part.token_ids for part in self._parts),
            digests=_joined(part.digests for part in self._parts),
            finish_reason=reason,
            stop=stop,
            num_prompt_tokens=event.num_prompt_tokens,
            num_output_tokens=self._num_ids,
            num_cached_tokens=event.num_cached_tokens,
            logprobs=_joined(part.logprobs for part in self._parts),
            pieces=_joined(part.pieces for part in self._parts),
            prompt_logprobs=_joined(part.prompt_logprobs for part in self._parts),
        )


def _joined(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))
