"""From an engine's events to text: deltas while it runs, and one result that everything is trimmed by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from freehold.protocol import Finish, FinishReason, PromptLogprobs, Tokens
from freehold.text.stops import StopMatcher
from freehold.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What one event added.

    Attributes:
        text: valid text, never a part of a stop string. May be empty while ids are not.
        token_ids, digests: of this event, trimmed by the rule of `TextStream`.
    """

    text: str
    token_ids: tuple[int, ...]
    digests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextResult:
    """The whole answer.

    Attributes:
        text: all deltas, `tail` included.
        tail: text that became certain at the end only: the last delta of a streamed answer.
        token_ids, digests: trimmed by the rule of `TextStream`; digests are empty if none were asked for.
        finish_reason: ``stop`` if a stop string or stop id ended the answer, else the engine's reason.
        stop: the stop string or stop id.
        num_output_tokens: ``len(token_ids)``: what the answer is charged for.
        num_cached_tokens: of the prompt's, those that were reused instead of computed.
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


class TextStream:
    """Text of one answer. Not thread-safe.

    **The rule for the cut.** A stop string ends the text before its first character, and ends the ids after the token
    that completed it. A stop id ends the ids with itself and adds no text. Ids, digests and counts are cut at the same
    place; whatever the engine computed beyond it is dropped.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        stop_strings: Sequence[str] = (),
        stop_ids: Iterable[int] = (),
    ) -> None:
        """
        Arguments:
            stop_ids: the ids the engine stops at, as in `Sampling.stop_ids`.
        """
        self._detokenizer = tokenizer.detokenizer(prompt_ids)
        self._matcher = StopMatcher(stop_strings)
        self._stop_ids = frozenset(stop_ids)
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._digests: list[int] = []

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: the caller aborts the engine's request, and goes on to `finish`."""
        return self._matcher.hit is not None

    def push(self, event: Tokens | PromptLogprobs) -> TextDelta:
        """Take in new ids. Once `stopped`, all further ones are dropped."""
        if isinstance(event, PromptLogprobs):
            return TextDelta("", (), ())
        texts: list[str] = []
        num_kept = 0
        for token_id in event.token_ids:
            if self.stopped:
                break
            num_kept += 1
            if token_id not in self._stop_ids:
                texts.append(self._matcher.push(self._detokenizer.push(token_id)))
        delta = TextDelta("".join(texts), event.token_ids[:num_kept], event.digests[:num_kept])
        self._texts.append(delta.text)
        self._token_ids += delta.token_ids
        self._digests += delta.digests
        return delta

    def finish(self, event: Finish) -> TextResult:
        """End the answer with the engine's terminal event: give out what is held, and settle why it ended."""
        # What the last bytes decode to may still complete a stop string.
        tail = self._matcher.push(self._detokenizer.finish())
        tail += self._matcher.finish()
        self._texts.append(tail)
        stopped_by_text = self._matcher.hit is not None
        return TextResult(
            text="".join(self._texts),
            tail=tail,
            token_ids=tuple(self._token_ids),
            digests=tuple(self._digests),
            finish_reason="stop" if stopped_by_text else event.reason,
            stop=self._matcher.hit if stopped_by_text else event.stop_id,
            num_prompt_tokens=event.num_prompt_tokens,
            num_output_tokens=len(self._token_ids),
            num_cached_tokens=event.num_cached_tokens,
        )
