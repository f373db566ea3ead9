"""Biases and penalties: logits as they are before anything is picked from them."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

LARGEST = float(np.finfo(np.float32).max)


class AdjustmentRules(Protocol):
    """What changes logits; `freehold.backends.base.RowSampling` is one. All numbers are finite."""

    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def logit_bias(self) -> Sequence[tuple[int, float]]: ...
    @property
    def has_penalties(self) -> bool: ...


def adjust(logits: NDArray[np.float32], rules: AdjustmentRules, context_ids: NDArray[np.int32]) -> NDArray[np.float32]:
    """Logits after bias and penalties, a copy unless nothing changes.

    For each id, in float64 and in this order: its bias is added; if the context holds it, a positive logit is divided
    by the repetition penalty and any other multiplied; the frequency penalty times how often the answer holds it is
    subtracted, and if it does at all the presence penalty. The result is rounded to float32 once, the largest finite
    number at most. Ids that are neither biased nor in the context keep their bits.

    Args:
        logits: (V,), finite.
        context_ids: the ids at all positions before the one to be sampled, the prompt's first; used by penalties only.
    """
    num_tokens = logits.size
    changed = np.zeros(num_tokens, dtype=bool)
    x = logits.astype(np.float64)
    for token_id, bias in rules.logit_bias:
        x[token_id] += bias
        changed[token_id] = True
    if rules.has_penalties:
        is_used = np.bincount(context_ids, minlength=num_tokens) > 0
        counts = np.bincount(context_ids[rules.num_prompt_tokens :], minlength=num_tokens)
        repeated = np.where(x > 0, x / rules.repetition_penalty, x * rules.repetition_penalty)
        x = np.where(is_used, repeated, x)
        x = np.where(counts > 0, x - rules.frequency_penalty * counts, x)
        x = np.where(counts > 0, x - rules.presence_penalty, x)
        changed |= is_used
    return np.where(changed, np.clip(x, -LARGEST, LARGEST), logits).astype(np.float32) if changed.any() else logits
