"""Log probabilities of tokens, in numpy: the definition that native code reproduces bit for bit."""

import numpy as np
from numpy.typing import NDArray

from freehold.protocol import Logprobs
from freehold.sample import mathx

LANES = 16
"""Partial sums: lane i adds the tokens i, i + 16, i + 32 … in this order."""


def log_of_sum(logits: NDArray[np.float32]) -> float:
    """Logarithm of the sum of ``exp(logit - highest)`` over all tokens, in float64.

    Each lane starts at 0 and adds its tokens one by one; then lane i gets lane i + 8 added for i below 8, and likewise
    with 4, 2 and 1.
    """
    num_rows = -(-logits.size // LANES)
    padded = np.full(num_rows * LANES, -np.inf)
    padded[: logits.size] = logits.astype(np.float64) - np.float64(logits.max())
    lanes = np.add.accumulate(mathx.exp(padded).reshape(num_rows, LANES), axis=0)[-1]  # one by one, by definition
    width = LANES // 2
    while width:
        lanes = lanes[:width] + lanes[width:]
        width //= 2
    return float(mathx.log(lanes)[0])


def logprobs_of(logits: NDArray[np.float32], token_id: int, num_top: int) -> Logprobs:
    """How likely a token was, and which ones were likeliest.

    A token's log probability is ``(float64(logit) - float64(highest)) - log_of_sum``. The likelier of two tokens is the
    one with the higher logit, among equals the one with the lower id.

    Args:
        logits: (V,), finite, as the model gave them.
        num_top: how many of the likeliest to name; all V if that is less.
    """
    log_sum = log_of_sum(logits)
    logprobs = (logits.astype(np.float64) - np.float64(logits.max())) - log_sum
    rank = 1 + np.count_nonzero(logits > logits[token_id]) + np.count_nonzero(logits[:token_id] == logits[token_id])
    order = np.argsort(-logits, kind="stable")[:num_top]
    top = tuple((int(i), float(logprobs[i])) for i in order)
    return Logprobs(float(logprobs[token_id]), int(rank), top)
