"""Random prompts of fixed length: nothing that a prefix cache could reuse."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from freehold.errors import ConfigError
from freehold.loadtest.workloads.base import Conversation, Prompt, Turn

_WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school",
    "state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week",
    "company", "system", "program", "question", "work", "government", "number", "night", "point", "home",
    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book",
    "eye", "job", "word", "business", "issue", "side", "kind", "head", "house", "service", "friend",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RandomWorkload:
    """Prompts that have nothing in common.

    Attributes:
        input_len: tokens of each prompt.
        output_len: tokens of each answer.
        vocab_size: prompts are token ids below this; None makes them of common words instead, of which each is about
            one token.
    """

    input_len: int
    output_len: int
    vocab_size: int | None = None

    @property
    def name(self) -> str:
        return "random"

    @property
    def shares_prefixes(self) -> bool:
        return False

    def conversations(self, num: int, seed: int) -> Sequence[Conversation]:
        """As `Workload.conversations`."""
        if self.input_len < 1 or self.output_len < 1:
            raise ConfigError(
                f"random prompts need at least 1 token in and out, not {self.input_len} and {self.output_len}"
            )
        draw = random.Random(seed)
        turns = (Turn(self._prompt(draw), self.output_len, input_len=self.input_len) for _ in range(num))
        return [Conversation((turn,)) for turn in turns]

    def _prompt(self, draw: random.Random) -> Prompt:
        if self.vocab_size is not None:
            return tuple(draw.randrange(self.vocab_size) for _ in range(self.input_len))
        return " ".join(draw.choice(_WORDS) for _ in range(self.input_len))
