"""Sampling noise as a pure function of (seed, choice, absolute position, token id).

Because nothing else enters, an answer doesn't depend on batching, speculation or restarts: whoever computes the noise
of a token at a position gets the same number. The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel
random numbers: as easy as 1, 2, 3", 2011).
"""

import numpy as np
from numpy.typing import NDArray

from freehold.sample import mathx

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10

_WORD = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)


def philox(
    counter: tuple[NDArray[np.uint64], int, int, int], key: tuple[int, int]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Philox4x32-10 for counters that differ in their first word. All words are 32 bits wide, kept in uint64."""
    c0 = counter[0]
    c1, c2, c3 = (np.full_like(c0, word) for word in counter[1:])
    key0, key1 = key
    multiplier0, multiplier1 = (np.uint64(m) for m in PHILOX_MULTIPLIERS)
    for _ in range(PHILOX_ROUNDS):
        product0 = multiplier0 * c0
        product1 = multiplier1 * c2
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT32) ^ c1 ^ np.uint64(key0),
            product1 & _WORD,
            (product0 >> _SHIFT32) ^ c3 ^ np.uint64(key1),
            product0 & _WORD,
        )
        key0 = (key0 + PHILOX_KEY_STEPS[0]) & 0xFFFFFFFF
        key1 = (key1 + PHILOX_KEY_STEPS[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def uniform(token_ids: NDArray[np.int64], *, seed: int, choice: int, pos: int) -> NDArray[np.float64]:
    """Uniform numbers strictly between 0 and 1, one for each token id.

    Key (seed low 32 bits, seed high 32 bits), counter (token id, position, choice, 0), output words w0 and w1:
    ``((w0 << 20 | w1 >> 12) + 0.5) * 2**-52``. 52 bits, since with 53 the half would round, and 1.0 (infinite noise)
    could come out.
    """
    w0, w1, _, _ = philox((token_ids.astype(np.uint64), pos, choice, 0), (seed & 0xFFFFFFFF, seed >> 32))
    mantissa = (w0 << np.uint64(20)) | (w1 >> np.uint64(12))
    return (mantissa.astype(np.float64) + 0.5) * 2.0**-52


def gumbel(token_ids: NDArray[np.int64], *, seed: int, choice: int, pos: int) -> NDArray[np.float64]:
    """Standard Gumbel noise, ``-log(-log(u))``, one number for each token id; between -3.6 and 36.8."""
    return -mathx.log(-mathx.log(uniform(token_ids, seed=seed, choice=choice, pos=pos)))
