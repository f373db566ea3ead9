"""From an answer's text to its parts: reasoning first, then calls of tools, then stop strings in what is left."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from freehold.text.parts import CallEnd, Content, Part, PartReader, ReasoningReader
from freehold.text.stops import StopMatcher


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a request's answers. Readers keep state, so each answer gets its own.

    Attributes:
        reasoning: makes the reader that tells reasoning from the rest; None: nothing is reasoning.
        calls: makes the reader that finds calls in what isn't reasoning; None: nothing is a call.
        one_call: the answer ends with its first call.
        literals: control ids that add their literal to the text, for the readers to see.
    """

    reasoning: Callable[[], ReasoningReader] | None = None
    calls: Callable[[], PartReader] | None = None
    one_call: bool = False
    literals: Mapping[int, str] = field(default_factory=dict)


class AnswerReader:
    """Takes one answer apart. Not thread-safe.

    Stop strings act on content alone: not in reasoning, not in calls, and not across one of these.

    Attributes:
        num_reasoning_tokens: tokens that were reasoning at least in part, its tags included.
        has_ended: a stop string was found, or the one call that was wanted is there: nothing more is taken in.
    """

    def __init__(self, reading: Reading, stops: Sequence[str]) -> None:
        self.num_reasoning_tokens = 0
        self.has_ended = False
        self._reasoning = None if reading.reasoning is None else reading.reasoning()
        self._calls = None if reading.calls is None else reading.calls()
        self._one_call = reading.one_call
        self._matcher = StopMatcher(stops)
        self._num_undecided_tokens = 0

    @property
    def stop(self) -> str | None:
        """The stop string that was found."""
        return self._matcher.hit

    def push(self, text: str, *, stops: bool) -> list[Part]:
        """What one token adds.

        Args:
            stops: look for stop strings.
        """
        if self._reasoning is None:
            return self._tell_calls(_content(text), stops)
        was_reasoning = self._reasoning.is_open
        parts = self._reasoning.push(text)
        self._count_token(self._reasoning, was_reasoning)
        return self._tell_calls(parts, stops)

    def finish(self, text: str, *, stops: bool) -> list[Part]:
        """What the last bytes add, and all that was held back: through the same readers as everything else."""
        parts = self._tell_calls(_content(text) if self._reasoning is None else self._reasoning.push(text), stops)
        if self._reasoning is not None:
            parts += self._tell_calls(self._reasoning.finish(), stops)
        if self._calls is not None:
            parts += self._stop(self._calls.finish(), stops)
        if not self.has_ended:
            parts += _content(self._matcher.finish())
        return parts

    def _count_token(self, reasoning: ReasoningReader, was_reasoning: bool) -> None:
        """Tokens of an opening tag are known as such with its last one."""
        if was_reasoning or reasoning.is_open:
            self.num_reasoning_tokens += self._num_undecided_tokens + 1
            self._num_undecided_tokens = 0
        else:
            self._num_undecided_tokens += reasoning.is_undecided

    def _tell_calls(self, parts: Iterable[Part], stops: bool) -> list[Part]:
        if self._calls is None:
            return self._stop(parts, stops)
        told: list[Part] = []
        for part in parts:
            told += self._calls.push(part.text) if isinstance(part, Content) else [part]
        return self._stop(told, stops)

    def _stop(self, parts: Iterable[Part], stops: bool) -> list[Part]:
        """The parts up to where the answer ends."""
        kept: list[Part] = []
        for part in parts:
            if self.has_ended:
                break
            if isinstance(part, Content):
                kept += _content(self._matcher.push(part.text)) if stops else [part]
                self.has_ended = self._matcher.hit is not None
            else:
                kept += _content(self._matcher.finish())
                kept.append(part)
                self.has_ended = self._one_call and isinstance(part, CallEnd)
        return kept


def _content(text: str) -> list[Part]:
    return [Content(text)] if text else []
