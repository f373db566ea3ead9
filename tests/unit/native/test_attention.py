"""Paged attention against its slow twin; its bits depend on a query's position and its keys alone."""

import numpy as np
import pytest
from numpy.typing import NDArray

from freehold import _native
from freehold.backends.reference.cache import to_int8

BF16_RELATIVE = 2.0**-8


def case(num_positions: int, num_tokens: int, num_heads: int, head_dim: int):
    rng = np.random.default_rng([num_positions, num_tokens, num_heads, head_dim])
    queries = rng.standard_normal((num_tokens, num_heads * head_dim), dtype=np.float32) * np.float32(head_dim**-0.5)
    keys, values = (rng.standard_normal((num_positions, head_dim), dtype=np.float32) for _ in range(2))
    return queries * np.float32(2), keys, values


def table(num_positions: int, block_size: int, seed: int = 0) -> NDArray[np.int32]:
    num_blocks = -(-num_positions // block_size)
    return np.random.default_rng(seed).permutation(num_blocks + 3)[:num_blocks].astype(np.int32)


FORMS = ["f32", "bf16", "bf16-dot", "int8"]
"""float32 keys and values; bf16 ones; bf16 queries and weights too, where there are such products; int8 ones."""


def run(isa, queries, keys, values, *, block_size=16, form="f32", window=None, tokens_each=1, seed=0):
    blocks = table(len(keys), block_size, seed)
    kv_dtype = form.partition("-")[0]
    return _native.kernels.attend(
        isa, queries, keys, values, blocks, block_size, kv_dtype, window, tokens_each, form == "bf16-dot"
    )


def rounded(x: NDArray[np.float32]) -> NDArray[np.float32]:
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def stored(x: NDArray[np.float32], form: str) -> NDArray[np.float32]:
    """Keys or values as attention gets them back."""
    if form == "int8":
        integers, scales = to_int8(x)
        return integers * scales
    return x if form == "f32" else rounded(x)


def twin(queries, keys, values, window) -> NDArray[np.float64]:
    num_tokens, head_dim = len(queries), keys.shape[1]
    out = np.empty(queries.shape)
    for token in range(num_tokens):
        pos = len(keys) - num_tokens + token
        seen = slice(0 if window is None else max(0, pos + 1 - window), pos + 1)
        for head in range(queries.shape[1] // head_dim):
            part = slice(head * head_dim, (head + 1) * head_dim)
            scores = keys[seen].astype(np.float64) @ queries[token, part]
            weights = np.exp(scores - scores.max())
            out[token, part] = weights / weights.sum() @ values[seen].astype(np.float64)
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [None, 1, 3, 64, 65, 100])
@pytest.mark.parametrize(
    ("num_positions", "num_tokens", "num_heads", "head_dim"),
    [
        (1, 1, 1, 8),
        (17, 17, 3, 24),
        (64, 5, 2, 64),
        (65, 1, 7, 64),
        (200, 40, 3, 64),
        (300, 9, 1, 128),
        (130, 2, 9, 80),
        (90, 33, 4, 6),
        (70, 3, 2, 30),
        (67, 8, 1, 520),
    ],
)
def test_parity(isa, num_positions, num_tokens, num_heads, head_dim, window, form) -> None:  # sw-01, sw-03
    queries, keys, values = case(num_positions, num_tokens, num_heads, head_dim)
    found = run(isa, queries, keys, values, form=form, window=window, tokens_each=16)
    expected = twin(queries, *(stored(x, form) for x in (keys, values)), window)
    if form == "bf16-dot" and isa == "avx512bf16":
        # Queries and weights are rounded: a score moves by a few times 2**-9, a weight by as much again.
        np.testing.assert_allclose(found, expected, rtol=0, atol=0.06)
        assert np.abs(found - expected).mean() < 0.004
    elif form == "int8":
        # Queries become integers of 15 bits, weights of 14 bits.
        np.testing.assert_allclose(found, expected, rtol=0, atol=6e-4)
        assert np.abs(found - expected).mean() < 7e-5
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [None, 50, 70])
@pytest.mark.parametrize(("num_heads", "head_dim"), [(1, 24), (3, 64), (8, 32)])
def test_chunks_and_blocks_change_nothing(isa, num_heads, head_dim, window, form) -> None:  # sw-03
    queries, keys, values = case(150, 150, num_heads, head_dim)
    whole = run(isa, queries, keys, values, window=window, form=form)
    for tokens_each in (2, 7, 16, 17, 150):
        np.testing.assert_array_equal(
            run(isa, queries, keys, values, window=window, form=form, tokens_each=tokens_each), whole
        )
    for block_size, seed in ((16, 5), (32, 1), (64, 2), (256, 3)):
        np.testing.assert_array_equal(
            run(isa, queries, keys, values, window=window, form=form, block_size=block_size, seed=seed, tokens_each=16),
            whole,
        )


@pytest.mark.parametrize("form", FORMS)
def test_a_query_alone_equals_the_query_in_a_prompt(isa, form) -> None:
    queries, keys, values = case(150, 150, 3, 64)
    whole = run(isa, queries, keys, values, form=form, tokens_each=16)
    for pos in (0, 1, 15, 16, 63, 64, 65, 127, 128, 149):
        alone = run(isa, queries[pos : pos + 1], keys[: pos + 1], values[: pos + 1], form=form)
        np.testing.assert_array_equal(alone[0], whole[pos])


def test_scores_far_apart(isa) -> None:
    """Weights that underflow, and a maximum that moves from piece to piece."""
    queries, keys, values = case(200, 3, 2, 64)
    keys *= np.linspace(1, 60, 200, dtype=np.float32)[:, None]
    found = run(isa, queries, keys, values)
    np.testing.assert_allclose(found, twin(queries, keys, values, None), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_finite_stays_with_those_who_see_it(isa, form) -> None:
    queries, keys, values = case(100, 100, 2, 64)
    clean = run(isa, queries, keys, values, form=form, tokens_each=16)
    for array in (keys, values):
        spoilt = array.copy()
        spoilt[71, 3] = np.nan
        pair = (spoilt, values) if array is keys else (keys, spoilt)
        found = run(isa, queries, *pair, form=form, tokens_each=16)
        np.testing.assert_array_equal(found[:71], clean[:71])
        assert not np.isfinite(found[71:]).all(axis=1).any()
