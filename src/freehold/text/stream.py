"""From an engine's events to an answer: parts while it runs, and one result that everything is trimmed by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeVar

import msgspec

from freehold.protocol import Finish, FinishReason, PromptLogprobs, Tokens
from freehold.text.answer import AnswerReader, Reading
from freehold.text.logprobs import TokenLogprob, with_text
from freehold.text.parts import Content, Message, Part, fold
from freehold.text.tokenizer import Tokenizer

AnswerEnd = FinishReason | Literal["tool_calls"]
"""Why an answer ended: the engine's reasons, and ``tool_calls`` where the answer calls tools and isn't cut short."""

PLAIN = Reading()
"""All of an answer is content."""

T = TypeVar("T")


class TextDelta(msgspec.Struct, frozen=True):
    """What one event added.

    Attributes:
        parts: what the text of its ids adds: valid text, never a part of a stop string. May be none while ids come.
        token_ids, digests, logprobs: of this event, trimmed by the rule of `TextStream`.
        pieces: the text that each of these ids adds, before stop strings are looked for; given with log probabilities.
        prompt_logprobs: of further ids of the prompt.
    """

    parts: tuple[Part, ...]
    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    pieces: tuple[str, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def text(self) -> str:
        """The content that was added."""
        return _content(self.parts)


@dataclass(frozen=True, slots=True)
class TextResult:
    """The whole answer.

    Attributes:
        message: what `parts` make.
        parts: those of all deltas, `tail` included.
        tail: parts that became certain at the end only: those of the last delta of a streamed answer.
        token_ids, digests, logprobs: trimmed by the rule of `TextStream`; the latter are empty if none were asked for.
        finish_reason: ``stop`` if a stop string or stop id ended the answer, ``tool_calls`` if it also holds calls,
            ``length`` if a call's arguments are incomplete; else the engine's reason.
        stop: the stop string or stop id.
        num_output_tokens: ``len(token_ids)``: what the answer is charged for.
        num_reasoning_tokens: of these, tokens of reasoning and its tags.
        num_cached_tokens: of the prompt's, those that were reused instead of computed.
        pieces: as in `TextDelta`.
        prompt_logprobs: of each id of the prompt but the first, if asked for.
    """

    message: Message
    parts: tuple[Part, ...]
    tail: tuple[Part, ...]
    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    finish_reason: AnswerEnd
    stop: str | int | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_reasoning_tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    pieces: tuple[str, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def text(self) -> str:
        """The content."""
        return self.message.content

    @property
    def tail_text(self) -> str:
        """The content in `tail`."""
        return _content(self.tail)


class TextStream:
    """Text of one answer. Not thread-safe.

    **The rule for the cut.** A stop string ends the text before its first character, and ends the ids after the token
    that completed it. A stop id ends the ids with itself and adds no text. Where one call is wanted, its end ends the
    ids as a stop string does. Ids, digests, log probabilities and counts are cut at the same place; whatever the engine
    computed beyond it is dropped.
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
        reading: Reading = PLAIN,
    ) -> None:
        """
        Arguments:
            stop_ids: the ids the engine stops at, as in `Sampling.stop_ids`.
            min_tokens: the text of so many tokens is taken as it is, whatever stop strings it holds.
            wants_output: if false, all ids are dropped: the request was made for its prompt's log probabilities.
            reading: how the text is taken apart.
        """
        self._tokenizer = tokenizer
        self._prompt_ids = prompt_ids
        self._detokenizer = tokenizer.detokenizer(prompt_ids, literals=reading.literals)
        self._reader = AnswerReader(reading, stop_strings)
        self._stop_ids = frozenset(stop_ids)
        self._min_tokens = min_tokens
        self._wants_output = wants_output
        self._deltas: list[TextDelta] = []
        self._num_ids = 0

    @property
    def stopped(self) -> bool:
        """Whether the text ended the answer: the caller aborts the engine's request, and goes on to `finish`."""
        return self._reader.has_ended

    def push(self, event: Tokens | PromptLogprobs) -> TextDelta:
        """Take in new ids. Once `stopped`, all further ones are dropped."""
        delta = self._score_prompt(event) if isinstance(event, PromptLogprobs) else self._take(event)
        self._deltas.append(delta)
        return delta

    def _score_prompt(self, event: PromptLogprobs) -> TextDelta:
        ids = self._prompt_ids[event.start_pos : event.start_pos + len(event.logprobs)]
        return TextDelta((), (), (), prompt_logprobs=with_text(self._tokenizer, ids, event.logprobs))

    def _take(self, event: Tokens) -> TextDelta:
        parts: list[Part] = []
        pieces: list[str] = []
        for token_id in event.token_ids if self._wants_output else ():
            if self.stopped:
                break
            piece = "" if token_id in self._stop_ids else self._detokenizer.push(token_id)
            self._num_ids += 1
            parts += self._reader.push(piece, stops=self._num_ids > self._min_tokens)
            pieces.append(piece)
        num_kept = len(pieces)
        ids, scores = event.token_ids[:num_kept], event.logprobs[:num_kept]
        return TextDelta(
            tuple(parts),
            ids,
            event.digests[:num_kept],
            with_text(self._tokenizer, ids, scores) if scores else (),
            tuple(pieces) if scores else (),
        )

    def finish(self, event: Finish) -> TextResult:
        """End the answer with the engine's terminal event: give out what is held, and settle why it ended."""
        # What the last bytes decode to may still complete a stop string.
        tail = self._reader.finish(self._detokenizer.finish(), stops=self._num_ids >= self._min_tokens)
        parts = (*_joined(delta.parts for delta in self._deltas), *tail)
        message = fold(parts)
        reason: AnswerEnd = "stop" if self.stopped else event.reason
        stop = self._reader.stop if self.stopped else event.stop_id
        if not self._wants_output and reason == "stop":
            reason, stop = "length", None
        return TextResult(
            message=message,
            parts=parts,
            tail=tuple(tail),
            token_ids=_joined(delta.token_ids for delta in self._deltas),
            digests=_joined(delta.digests for delta in self._deltas),
            finish_reason=_reason(message, reason),
            stop=stop,
            num_prompt_tokens=event.num_prompt_tokens,
            num_output_tokens=self._num_ids,
            num_cached_tokens=event.num_cached_tokens,
            num_reasoning_tokens=self._reader.num_reasoning_tokens,
            logprobs=_joined(delta.logprobs for delta in self._deltas),
            pieces=_joined(delta.pieces for delta in self._deltas),
            prompt_logprobs=_joined(delta.prompt_logprobs for delta in self._deltas),
        )


def _reason(message: Message, reason: AnswerEnd) -> AnswerEnd:
    """Calls change why an answer that came to its end has ended."""
    if reason != "stop" or not message.calls:
        return reason
    return "tool_calls" if all(call.is_complete for call in message.calls) else "length"


def _content(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Content))


def _joined(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))
