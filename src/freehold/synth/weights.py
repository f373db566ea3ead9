"""Random weights that depend on the seed, the tensor and the element's place alone: not on chunks, order or threads."""

import hashlib
from collections.abc import Iterator
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from freehold.arch.spec import Slot
from freehold.synth.sizes import SynthConfig, TensorPlan

PIECE_ELEMENTS = 1 << 21
_BLOCK_ELEMENTS = 1 << 16  # elements drawn from one stream; a multiple of every row block that can be written
_NORMS = frozenset({Slot.ATTN_NORM, Slot.MLP_NORM, Slot.FINAL_NORM, Slot.Q_NORM, Slot.K_NORM})
_BIASES = frozenset({Slot.Q_BIAS, Slot.K_BIAS, Slot.V_BIAS})
_BRANCH_GAIN = 2.0  # lets layers outweigh the embedding, else a tied head answers each token with itself
_LOGIT_STD = 3.0  # wide enough that distributions over tokens have a shape, narrow enough that none is certain


def values(config: SynthConfig, plan: TensorPlan, seed: int) -> Iterator[NDArray[np.float32]]:
    """The tensor's elements in row-major order, in pieces of `PIECE_ELEMENTS` (the last may be shorter); each (n,).

    Matrices keep the size of their input on average, so logits of any depth stay finite; norms are near 1.
    """
    mean, std = _mean_and_std(config, plan)
    key = _key(seed, plan)
    total = prod(plan.shape)
    for start in range(0, total, PIECE_ELEMENTS):
        blocks = range(start // _BLOCK_ELEMENTS, -(-min(start + PIECE_ELEMENTS, total) // _BLOCK_ELEMENTS))
        piece = np.concatenate([_bell(key, block) for block in blocks])[: total - start]
        piece *= np.float32(std)
        piece += np.float32(mean)
        yield piece


def _mean_and_std(config: SynthConfig, plan: TensorPlan) -> tuple[float, float]:
    if plan.slot in _NORMS:
        return 1.0, 0.1
    if plan.slot in _BIASES:
        return 0.0, 0.3
    if plan.slot in (Slot.EMBED, Slot.HEAD):
        return 0.0, _LOGIT_STD / sqrt(config.hidden_size)
    gain = _BRANCH_GAIN if plan.slot in (Slot.O, Slot.DOWN) else 1.0
    return 0.0, gain / sqrt(plan.shape[-1])


def _key(seed: int, plan: TensorPlan) -> NDArray[np.uint64]:
    place = f"{plan.slot.value} {'' if plan.layer is None else plan.layer} {seed}"
    return np.frombuffer(hashlib.sha256(place.encode()).digest()[:16], dtype="<u8")


def _bell(key: NDArray[np.uint64], block: int) -> NDArray[np.float32]:
    """(65536,) values of mean 0 and variance 1: sums of four uniform 16-bit numbers.

    Sums rather than numpy's normal distribution, whose stream may differ between versions: integers don't.
    Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    raw = np.random.Philox(key=key, counter=[0, 0, block, 0]).random_raw(_BLOCK_ELEMENTS)
    pairs = (raw & np.uint64(0x0000FFFF0000FFFF)) + (raw >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF))
    sums = (pairs & np.uint64(0xFFFFFFFF)) + (pairs >> np.uint64(32))
    centred = sums.astype(np.float32) - np.float32(2 * 65535)
    return centred / np.float32(sqrt(4 * (65536**2 - 1) / 12))
