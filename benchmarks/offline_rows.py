"""The rows of an offline comparison: what is asked of an engine, which rate counts, and its roof."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from freehold.limits import Limits
from freehold.roofs import ModelCost, decode_tokens_per_s, prefill_tokens_per_s

Measured = Mapping[str, float]
"""What `engine_worker.MeasuredEngine.run` returns."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work.

    Attributes:
        num_prompt: tokens of each prompt.
        num_output: tokens of each answer.
        num_requests: at once.
        phase: whose rate counts.
    """

    name: str
    num_prompt: int
    num_output: int
    num_requests: int
    phase: Literal["prefill", "decode"]

    def prompts(self, turn: int, vocab_size: int) -> list[list[int]]:
        """Random ids, distinct among requests. A prefill has new ones each turn; a decode keeps its prompts, so that
        an engine that remembers them needn't compute them again."""
        seed = f"{self.name}, {turn if self.phase == 'prefill' else 'every turn'}"
        draw = random.Random(seed)
        return [[draw.randrange(vocab_size) for _ in range(self.num_prompt)] for _ in range(self.num_requests)]

    def rate(self, measured: Measured) -> float:
        """Tokens a second: of the prompts, or of what all answers together grew by."""
        if self.phase == "prefill":
            return self.num_requests * self.num_prompt / measured["prefill_s"]
        return measured["num_decoded"] / measured["decode_s"]

    def roof(self, cost: ModelCost, limits: Limits) -> float:
        """Tokens a second that no program passes; for a decode, in the middle of the answers."""
        if self.phase == "prefill":
            return prefill_tokens_per_s(cost, limits, self.num_prompt)
        return decode_tokens_per_s(cost, limits, self.num_prompt + self.num_output // 2, self.num_requests)


ROWS = {
    row.name: row
    for row in (
        Row("decode128", 128, 65, 1, "decode"),
        Row("decode2048", 2048, 65, 1, "decode"),
        Row("prefill512", 512, 1, 1, "prefill"),
        Row("prefill2048", 2048, 1, 1, "prefill"),
        Row("batch8", 128, 65, 8, "decode"),
        Row("batch32", 128, 33, 32, "decode"),
        Row("batch64", 128, 33, 64, "decode"),
    )
}
