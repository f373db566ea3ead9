"""How many tokens a step may compute while answers grow, or a batch runs where others come too: so many that it lasts
no longer than readers, and whoever comes next, should wait."""

FEWEST_PROMPT_TOKENS = 16
"""Of a prompt, beside the tokens of answers, however slow steps are: prompts must get on."""

_COUNTED_TOKENS = 32  # a step of fewer says little of what a prompt's tokens cost
_NEW_SHARE = 0.3  # of one more step in the average


class StepPace:
    """Learns from the steps that have run what a token costs.

    Args:
        target_s: what a step may last while answers grow.

    Attributes:
        newest_s: how long the newest step has run; 0 before the first.
    """

    def __init__(self, target_s: float) -> None:
        self._target_s = target_s
        self._token_s: float | None = None
        self.newest_s = 0.0

    def observe(self, num_tokens: int, run_s: float) -> None:
        """A step of so many tokens has run for so long."""
        self.newest_s = run_s
        if num_tokens < _COUNTED_TOKENS:
            return
        token_s = run_s / num_tokens
        self._token_s = token_s if self._token_s is None else self._token_s + _NEW_SHARE * (token_s - self._token_s)

    def most_tokens(self, num_decoding: int, budget: int) -> int:
        """Of `budget` tokens, how many a step may compute in which so many requests decode: all if none does, or as
        long as nothing is known."""
        if not num_decoding or not self._token_s:
            return budget
        affordable = int(self._target_s / self._token_s)
        return min(budget, max(affordable, num_decoding + FEWEST_PROMPT_TOKENS))
