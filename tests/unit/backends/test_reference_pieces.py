"""The reference's own pieces against torch, and how backends are opened."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freehold.arch.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, RopeSpec
from freehold.backends import BACKENDS, open_backend
from freehold.backends.base import BackendOptions
from freehold.backends.reference import open_reference
from freehold.backends.reference.cache import BlockCache, from_bf16, to_bf16, to_int8
from freehold.backends.reference.model import attend, matvec, rms_norm, rotate, silu
from freehold.errors import ConfigError

RNG = np.random.default_rng(0)
ROPE = RopeSpec(inv_freq=(1.0, 0.25))
SPEC = ModelSpec(
    family="llama",
    vocab_size=8,
    hidden_size=8,
    layers=(
        LayerSpec(AttentionSpec(2, 2, 4, 0.5, ROPE), MlpSpec(8)),
        LayerSpec(AttentionSpec(2, 1, 4, 0.5, ROPE), MlpSpec(8)),
    ),
    max_position=64,
    norm_eps=1e-5,
    tied_embeddings=True,
)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_bf16_rounds_as_torch_does(bits) -> None:
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    expected = torch.from_numpy(values.copy()).to(torch.bfloat16).float().numpy()
    assert np.array_equal(from_bf16(to_bf16(values)), expected, equal_nan=True)


def test_bf16_ties_and_extremes() -> None:
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x80000000, 0x00000001]
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    assert np.array_equal(from_bf16(to_bf16(values)), expected, equal_nan=True)


def test_pieces_equal_torch() -> None:
    matrix, vector, weight = f32(7, 33), f32(33), f32(33)
    as_torch = torch.from_numpy
    np.testing.assert_allclose(matvec(matrix, vector), as_torch(matrix) @ as_torch(vector), rtol=1e-5, atol=1e-5)
    normed = torch.nn.functional.rms_norm(as_torch(vector), (33,), as_torch(weight), eps=1e-5)
    np.testing.assert_allclose(rms_norm(vector, weight, 1e-5), normed, rtol=1e-5)
    np.testing.assert_allclose(silu(vector), torch.nn.functional.silu(as_torch(vector)), rtol=1e-6)


def test_attention_equals_torch_with_shared_heads() -> None:
    queries, keys, values = f32(6, 8), f32(19, 2, 8), f32(19, 2, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(
        torch.from_numpy(queries)[:, None],
        torch.from_numpy(keys).transpose(0, 1).repeat_interleave(3, 0),
        torch.from_numpy(values).transpose(0, 1).repeat_interleave(3, 0),
        scale=0.3,
    )[:, 0]
    np.testing.assert_allclose(attend(queries, keys, values, 0.3), expected, rtol=1e-5, atol=1e-6)


def test_rotation_turns_halves_and_leaves_the_rest() -> None:
    heads = f32(3, 6)
    turned = rotate(heads, 5, RopeSpec(inv_freq=(1.0, 0.25), attention_factor=2.0))
    for first, second, angle in ((0, 2, 5.0), (1, 3, 1.25)):
        pair = heads[:, first] + 1j * heads[:, second]
        expected = 2.0 * pair * np.exp(1j * angle)
        np.testing.assert_allclose(turned[:, first] + 1j * turned[:, second], expected, rtol=1e-5)
    assert np.array_equal(turned[:, 4:], heads[:, 4:])


def test_int8_vectors_have_scales_of_their_own() -> None:
    vectors = f32(50, 3, 7) * np.float32(10.0) ** RNG.integers(-20, 20, (50, 3, 1)).astype(np.float32)
    vectors[0, 0], vectors[1, 1, 2], vectors[2, 2, 3] = 0, np.inf, np.nan
    integers, scales = to_int8(vectors)
    assert (integers[0, 0] == 0).all()
    assert scales[0, 0] == 0
    spoilt = ~np.isfinite(vectors).all(axis=-1)
    assert np.array_equal(np.isnan(scales[..., 0]), spoilt)
    sound = ~spoilt & (scales[..., 0] > 0)
    assert np.array_equal(np.abs(integers[sound]).max(axis=-1), np.full(sound.sum(), 127))
    error = np.abs(integers.astype(np.float64) * scales - vectors)
    assert (error[sound] <= 0.5001 * scales[sound]).all()
    alone = [to_int8(vector) for vector in vectors.reshape(-1, 7)]
    assert np.array_equal(np.stack([one[0] for one in alone]).reshape(integers.shape), integers)


@pytest.mark.parametrize("kv_dtype", ["f32", "bf16", "int8"])
def test_cache_reads_back_any_range_through_any_table(kv_dtype) -> None:
    cache = BlockCache(SPEC, num_blocks=6, block_size=4, kv_dtype=kv_dtype)
    table = np.array([5, 0, 3], dtype=np.int32)
    keys, values = f32(11, 2, 4), f32(11, 2, 4)
    if kv_dtype == "bf16":
        keys, values = from_bf16(to_bf16(keys)), from_bf16(to_bf16(values))
    elif kv_dtype == "int8":
        keys, values = (integers * scales for integers, scales in (to_int8(keys), to_int8(values)))
    for pos in range(11):
        cache.write(0, table, pos, keys[pos], values[pos])
    for start in range(11):
        for end in range(start + 1, 12):
            got_keys, got_values = cache.read(0, table, start, end)
            assert np.array_equal(got_keys, keys[start:end])
            assert np.array_equal(got_values, values[start:end])
    cache.copy([(5, 1), (1, 2)])
    assert cache.dump(2) == cache.dump(5) != cache.dump(4)
    cache.restore(4, cache.dump(5))
    assert cache.dump(4) == cache.dump(5)
    with pytest.raises(ValueError, match="bytes"):
        cache.restore(4, b"short")


def options(**changes) -> BackendOptions:
    return BackendOptions(**{"num_blocks": 1, "block_size": 16, "max_rows": 1, "max_tokens": 1} | changes)


def test_unknown_backends_and_options_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'gpu' doesn't exist.*cpu, reference, scripted"):
        open_backend("gpu", SPEC, None, options())
    for change in ({"activations": "int8"}, {"isa": "avx2"}):
        with pytest.raises(ConfigError, match=next(iter(change.values()))):
            open_reference(SPEC, None, options(**change))


@pytest.mark.parametrize("name", BACKENDS)
def test_opening_one_backend_loads_no_other(name) -> None:
    every = {module for module, _ in BACKENDS.values()}
    others = [module for other, (module, _) in BACKENDS.items() if other != name]
    code = f"""
import sys
import freehold.backends
assert not set(sys.modules) & {every!r}
try:
    freehold.backends.open_backend({name!r}, None, None, None)
except Exception:
    pass
assert {BACKENDS[name][0]!r} in sys.modules
assert not set(sys.modules) & {set(others)!r}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
