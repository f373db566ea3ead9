"""Single requests of words that mean nothing: fixed, ranged or published lengths."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from freehold.loadtest.workloads.base import Conversation, Turn
from freehold.loadtest.workloads.filler import Filler
from freehold.loadtest.workloads.lengths import Lengths
from freehold.loadtest.workloads.on_demand import OnDemand


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Prompts that have nothing in common.

    Attributes:
        name: as in `Workload`.
        input, output: tokens of prompts and answers.
        max_model_len: tokens of context, prompt and answer together; None if nobody knows. Longer draws are cut to it.
    """

    name: str
    input: Lengths
    output: Lengths
    filler: Filler
    max_model_len: int | None = None

    @property
    def shares_prefixes(self) -> bool:
        """As in `Workload`."""
        return False

    def conversations(self, num: int, seed: int) -> Sequence[Conversation]:
        """As `Workload.conversations`."""
        return OnDemand(num, lambda index: self._conversation(random.Random(f"{seed} {index}")))

    def _conversation(self, source: random.Random) -> Conversation:
        input_len, output_len = self.input.draw(source), self.output.draw(source)
        if self.max_model_len is not None:
            output_len = min(output_len, self.max_model_len - self.filler.overhead - 1)
            input_len = min(input_len, self.max_model_len - output_len)
        prompt = self.filler.prompt(self.filler.draw(self.filler.room(input_len), source))
        return Conversation((Turn(prompt, output_len, input_len=input_len),))
