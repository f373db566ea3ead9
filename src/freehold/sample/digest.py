"""A 64-bit digest of a row of logits, to see drift that equal token ids would hide."""

import numpy as np
from numpy.typing import NDArray


def digest_logits(logits: NDArray[np.float32]) -> int:
    """Digest of float32 logits of shape (V,), bit for bit.

    Logit i with bits b gives ``mix(i << 32 | b)``; the digest is their sum modulo 2**64, so that it can be computed in
    any order and by any number of threads. `mix` is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
    """
    bits = np.ascontiguousarray(logits, dtype=np.float32).view(np.uint32).astype(np.uint64)
    x = bits | (np.arange(bits.size, dtype=np.uint64) << np.uint64(32))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return int(np.add.reduce(x))
