"""Scripts: what the scripted backend answers to which prompt, with pauses and faults between the ids."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from freehold.protocol import Logprobs


@dataclass(frozen=True, slots=True)
class Pause:
    """The step that samples the next id takes this many seconds longer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Gate:
    """The step that samples the next id doesn't end before the event is set."""

    event: threading.Event


@dataclass(frozen=True, slots=True)
class NotFinite:
    """The logits behind the next id hold a NaN."""


@dataclass(frozen=True, slots=True)
class FailStep:
    """The step that samples the next id fails with `StepError`; the backend stays intact."""

    message: str = "scripted failure of a step"


@dataclass(frozen=True, slots=True)
class Break:
    """The step that samples the next id, and all later ones, fail with `RuntimeError`: the backend is broken."""

    message: str = "scripted failure of the backend"


MAX_REMEMBERED = 256  # answers that rules and the default gave

Effect = Pause | Gate | NotFinite | FailStep | Break
Item = int | Effect
Script = Callable[[tuple[int, ...]], Iterable[Item]]
"""Prompt ids → what to answer. Called once a prompt; must give the same every time."""


def echo(prompt_ids: tuple[int, ...]) -> Iterable[Item]:
    """Answer with the prompt."""
    return prompt_ids


def made_up_logprobs(context: int, token_id: int, num_top: int, vocab_size: int) -> Logprobs:
    """Log probabilities after a context, a function of its number: the ids from ``context % vocab_size`` on, and round,
    are ever less likely."""
    first = context % vocab_size
    rank = 1 + (token_id - first) % vocab_size
    top = tuple(((first + i) % vocab_size, -(i + 1) / 64) for i in range(min(num_top, vocab_size)))
    return Logprobs(-rank / 64, rank, top)


@dataclass(frozen=True, slots=True)
class Answer:
    """A script's items, sorted out.

    Attributes:
        ids: what is answered; after the last it starts over. Id 0 alone if the script held no ids.
        effects: by index of the id that they precede. They don't repeat when the ids do.
    """

    ids: tuple[int, ...]
    effects: dict[int, list[Effect]]

    @classmethod
    def of(cls, items: Iterable[Item]) -> "Answer":
        """Sort out a script's items."""
        ids: list[int] = []
        effects: dict[int, list[Effect]] = {}
        for item in items:
            if isinstance(item, int):
                ids.append(item)
            else:
                effects.setdefault(len(ids), []).append(item)
        return cls(tuple(ids) or (0,), effects)

    def id_at(self, index: int) -> int:
        """The id at an index of the answer."""
        return self.ids[index % len(self.ids)]


class Scripts:
    """Answers by prompt. Safe to change from another thread while a backend runs.

    Args:
        default: for prompts that have no script of their own.

    Attributes:
        token_s: seconds that a step takes for each token that it computes, besides its pauses.
    """

    token_s = 0.0

    def __init__(self, default: Script = echo) -> None:
        self._lock = threading.Lock()
        self._default = default
        self._answers: dict[tuple[int, ...], Answer] = {}
        self._rules: list[tuple[Callable[[tuple[int, ...]], bool], Script]] = []
        self._found: dict[tuple[int, ...], Answer] = {}

    def add(self, prompt_ids: Iterable[int], items: Iterable[Item]) -> None:
        """Answer exactly this prompt with these items."""
        with self._lock:
            self._answers[tuple(prompt_ids)] = Answer.of(items)
            self._found.clear()

    def add_rule(self, matches: Callable[[tuple[int, ...]], bool], script: Script) -> None:
        """Answer prompts for which `matches` is true with `script`. Exact prompts go first, then earlier rules."""
        with self._lock:
            self._rules.append((matches, script))
            self._found.clear()

    def answer(self, prompt_ids: tuple[int, ...]) -> Answer:
        """The answer to a prompt."""
        with self._lock:
            answer = self._answers.get(prompt_ids) or self._found.get(prompt_ids)
            if answer is None:
                matching = (script for matches, script in self._rules if matches(prompt_ids))
                answer = Answer.of(next(matching, self._default)(prompt_ids))
                if len(self._found) >= MAX_REMEMBERED:
                    self._found.clear()
                self._found[prompt_ids] = answer
            return answer
