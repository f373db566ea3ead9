"""Native sampling against its definition in numpy: the same id, always."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from freehold import _native
from freehold.backends.base import RowSampling
from freehold.sample.digest import digest_logits
from freehold.sample.sampler import sample

PLAIN = RowSampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, choice=0)
NO_IDS = np.empty(0, dtype=np.int32)


def native_id(isa, logits, rules: RowSampling, pos: int, allowed=None, context_ids=NO_IDS) -> int:
    token_id, is_restored = _native.kernels.sample(isa, logits, rules, pos, context_ids, allowed)
    assert is_restored, "logits are lent, and come back as they were"
    return token_id


def shapes(size: int) -> dict[str, np.ndarray]:
    """Logits as models make them, and as they shouldn't be."""
    rng = np.random.default_rng(size)
    plain = rng.standard_normal(size).astype(np.float32)
    return {
        "peaked": plain * np.float32(6),
        "flat": plain * np.float32(0.01),
        "equal": np.zeros(size, dtype=np.float32),
        "ties": np.round(plain * 2) / np.float32(2),
        "signed zeros": np.where(rng.random(size) < 0.5, np.float32(0.0), np.float32(-0.0)),
        "huge": plain * np.float32(1e30),
        "one far ahead": np.where(np.arange(size) == size // 2, np.float32(80), plain),
    }


KEEP = [  # top_k, top_p, min_p
    (0, 1.0, 0.0),
    (1, 1.0, 0.0),
    (7, 1.0, 0.0),
    (10**9, 1.0, 0.0),
    (0, 0.0, 0.0),
    (0, 0.5, 0.0),
    (0, 0.999, 0.0),
    (0, 1 - 2.0**-53, 0.0),
    (0, 1.0, 0.1),
    (0, 1.0, 1.0),
    (0, 1.0, 1e-320),
    (50, 0.9, 0.02),
    (64, 1.0, 0.01),
    (65, 1.0, 0.01),
    (64, 0.99, 0.0),
    (65, 0.99, 0.0),
    (3, 0.0, 0.0),
]
FILTERS = [
    replace(PLAIN, temperature=t, top_k=k, top_p=p, min_p=m)
    for t, (k, p, m) in itertools.product(
        (0.0, 0.3, 1.0, 2.5, 1e-30),
        KEEP,
    )
]


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 600])
def test_every_filter_on_every_shape(isa, size) -> None:
    for (name, logits), (index, rules) in itertools.product(shapes(size).items(), enumerate(FILTERS)):
        seeded = replace(rules, seed=2**64 - 1 - index, choice=index)
        assert native_id(isa, logits, seeded, 11) == sample(logits, seeded, pos=11), (name, rules)


@pytest.mark.parametrize("keep", [{}, {"top_p": 0.95}, {"top_k": 40, "top_p": 0.9}, {"min_p": 0.05}], ids=str)
def test_a_whole_vocabulary_at_many_positions(isa, keep) -> None:
    rng = np.random.default_rng(3)
    found = set()
    for pos in range(12):
        logits = rng.standard_normal(49_152).astype(np.float32) * np.float32(rng.uniform(0.5, 4))
        seeded = replace(PLAIN, **keep, seed=pos * 77, choice=pos % 3)
        expected = sample(logits, seeded, pos=2**31 + pos)
        assert native_id(isa, logits, seeded, 2**31 + pos) == expected
        found.add(expected)
    assert len(found) > 6  # the noise matters


def test_masks(isa) -> None:
    rng = np.random.default_rng(4)
    logits = rng.standard_normal(333).astype(np.float32) * np.float32(3)
    for share, keep in itertools.product((0.5, 0.01), ({}, {"temperature": 0.0}, {"top_k": 5}, {"top_p": 0.4})):
        rules = replace(PLAIN, **keep)
        bits = rng.random(352) < share
        bits[7] = True
        allowed = np.packbits(bits, bitorder="little").view(np.uint32)
        for pos in range(20):
            expected = sample(logits, rules, pos=pos, allowed=allowed)
            assert native_id(isa, logits, rules, pos, allowed) == expected
            assert bits[expected]


@pytest.mark.parametrize("size", [1, 16, 17, 1000])
def test_digests(isa, size) -> None:
    for logits in shapes(size).values():
        assert _native.kernels.digest(isa, logits) == digest_logits(logits)
