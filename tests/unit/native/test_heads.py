"""What lies between the projections and attention: heads are turned, keys and values stored, many tokens as one."""

import numpy as np
import pytest
from numpy.typing import NDArray

from freehold import _native
from freehold.backends.reference.cache import to_int8

Floats = NDArray[np.float32]
TILE = 16
HEADS = [(2, 1), (24, 12), (30, 10), (64, 32), (80, 16), (128, 64), (33, 0)]
"""Elements, and pairs of them that are rotated."""


def draw(*shape: int) -> Floats:
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def angles_of(num_tokens: int, num_pairs: int) -> Floats:
    angles = np.random.default_rng(num_pairs).uniform(0, 6, (num_tokens, num_pairs))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.mark.parametrize(("head_dim", "num_pairs"), HEADS)
def test_rotation_and_scale(isa: str, head_dim: int, num_pairs: int) -> None:
    heads, angles = draw(5, head_dim), angles_of(5, num_pairs)
    found = _native.kernels.turn(isa, heads, None, None, 0.0, angles, 0.125)
    cos, sin = angles[:, :num_pairs], angles[:, num_pairs:]
    first, second = heads[:, :num_pairs], heads[:, num_pairs : 2 * num_pairs]
    expected = [first * cos - second * sin, second * cos + first * sin, heads[:, 2 * num_pairs :]]
    np.testing.assert_array_equal(found, np.concatenate(expected, axis=1) * np.float32(0.125))


@pytest.mark.parametrize("head_dim", [1, 5, 16, 31, 32, 33, 128])
def test_bias_and_norm_come_before_the_rotation(isa: str, head_dim: int) -> None:
    heads, bias, weight = draw(4, head_dim), draw(head_dim), draw(head_dim) + 1
    angles = angles_of(4, head_dim // 2)
    found = _native.kernels.turn(isa, heads, bias, weight, 1e-6, angles, 0.5)
    wide = (heads + bias).astype(np.float64)
    normed = (wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6) * weight).astype(np.float32)
    expected = _native.kernels.turn(isa, normed, None, None, 0.0, angles, 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    biased = _native.kernels.turn(isa, heads, bias, None, 0.0, np.empty((4, 0), np.float32), 1.0)
    np.testing.assert_array_equal(biased, heads + bias)


@pytest.mark.parametrize(("head_dim", "num_pairs"), HEADS)
def test_heads_turn_alike_alone_and_together(isa: str, head_dim: int, num_pairs: int) -> None:
    heads, bias, weight, angles = draw(TILE, head_dim), draw(head_dim), draw(head_dim), angles_of(TILE, num_pairs)
    together = _native.kernels.turn(isa, heads, bias, weight, 1e-5, angles, 0.3)
    for token in range(TILE):
        one = slice(token, token + 1)
        alone = _native.kernels.turn(isa, heads[one], bias, weight, 1e-5, angles[one], 0.3)
        np.testing.assert_array_equal(alone[0], together[token])


def bits_of(x: Floats, kv_dtype: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Each number as bytes, (positions, head_dim, bytes), and each position's scale, (positions, 4 or 0 bytes)."""
    none = np.empty((len(x), 0), np.uint8)
    if kv_dtype == "f32":
        return x.view(np.uint8).reshape(*x.shape, 4), none
    if kv_dtype == "bf16":
        bits = x.view(np.uint32)
        halves = (bits + 0x7FFF + ((bits >> 16) & 1) >> 16).astype(np.uint16)
        return halves.view(np.uint8).reshape(*x.shape, 2), none
    integers, scales = to_int8(x)
    return (integers.astype(np.int16) + 128).astype(np.uint8)[..., None], scales.astype(np.float32).view(np.uint8)


def twin(keys: Floats, values: Floats, first_pos: int, blocks: NDArray[np.int32], block_size: int, kv_dtype: str):
    """The blocks' bytes, written number by number as `csrc/kernels.h` says where each lies."""
    head_dim = keys.shape[1]
    bytes_each = {"f32": 4, "bf16": 2, "int8": 1}[kv_dtype]
    each = 4 // bytes_each  # numbers in a word of four bytes
    scale_bytes = 4 * TILE if kv_dtype == "int8" else 0
    stride = -(-head_dim // 16) * 16
    tiles = block_size // TILE
    padded = -(-head_dim // each) * each
    key_tile = np.full((tiles, scale_bytes + TILE * padded * bytes_each), 0xFF, np.uint8)
    value_tile = np.full((tiles, scale_bytes + TILE * stride * bytes_each), 0xFF, np.uint8)
    pool = [(key_tile.copy(), value_tile.copy()) for _ in range(max(blocks) + 1)]
    zero = 128 if kv_dtype == "int8" else 0
    key_bits, key_scales = bits_of(keys, kv_dtype)
    value_bits, value_scales = bits_of(values, kv_dtype)
    for token in range(len(keys)):
        pos = first_pos + token
        tile, at = pos % block_size // TILE, pos % TILE
        for part, scales in zip(pool[blocks[pos // block_size]], (key_scales, value_scales), strict=True):
            part[tile, 4 * at : 4 * at + scales.shape[1]] = scales[token]
        all_keys, all_values = (part[tile, scale_bytes:] for part in pool[blocks[pos // block_size]])
        lines = all_keys.reshape(padded // each, TILE, each, bytes_each)
        words = all_values.reshape(TILE // each, stride, each, bytes_each)
        for e in range(padded):
            lines[e // each, at, e % each] = key_bits[token, e] if e < head_dim else zero
        for e in range(stride):
            words[at // each, e, at % each] = value_bits[token, e] if e < head_dim else zero
    return np.stack([np.concatenate([part.reshape(-1) for part in block]) for block in pool])


KV_DTYPES = ["f32", "bf16", "int8"]


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("head_dim", [1, 6, 24, 30, 64, 80, 129])
@pytest.mark.parametrize(("first_pos", "count", "block_size"), [(0, 16, 16), (5, 45, 16), (30, 21, 32), (37, 1, 64)])
def test_store(isa: str, first_pos: int, count: int, block_size: int, head_dim: int, kv_dtype: str) -> None:
    """Whole tiles, parts of tiles, single positions; nothing else in the blocks changes."""
    keys, values = draw(count, head_dim), draw(count, head_dim, 2)[..., 0].copy()
    blocks = np.array([3, 0, 4, 1], dtype=np.int32)
    found = _native.kernels.store(isa, keys, values, first_pos, blocks, block_size, kv_dtype, TILE)
    np.testing.assert_array_equal(found, twin(keys, values, first_pos, blocks, block_size, kv_dtype))


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("head_dim", [30, 64, 129])
def test_stored_alike_one_at_a_time_and_many(isa: str, head_dim: int, kv_dtype: str) -> None:
    keys, values = draw(50, head_dim), draw(50, head_dim, 2)[..., 0].copy()
    keys[11, 3 % head_dim] = values[12, 0] = np.nan
    keys[13] = values[14] = 0
    keys[15, 1], values[16, 1] = np.inf, 1e-41
    blocks = np.array([1, 2, 0], dtype=np.int32)
    alone = _native.kernels.store(isa, keys, values, 7, blocks, 32, kv_dtype, 1)
    for each in (2, 3, 4, 7, 16):
        together = _native.kernels.store(isa, keys, values, 7, blocks, 32, kv_dtype, each)
        np.testing.assert_array_equal(together, alone)
