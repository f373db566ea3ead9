"""Norms and gate against float64."""

import numpy as np
import pytest

from freehold import _native

SIZES = [1, 5, 16, 31, 32, 33, 576]


@pytest.mark.parametrize("size", SIZES)
def test_rms_norm(isa: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x, weight = rng.standard_normal((3, size), dtype=np.float32), rng.standard_normal(size, dtype=np.float32)
    x[1] *= 1000
    found = _native.kernels.rms_norm(isa, x, weight, 1e-5)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(found[:, :size], expected, rtol=1e-5, atol=1e-7)
    assert not found[:, size:].any()


@pytest.mark.parametrize("size", SIZES)
def test_silu_mul(isa: str, size: int) -> None:
    rng = np.random.default_rng(size)
    gate, up = (rng.standard_normal((2, size), dtype=np.float32) * np.float32(8) for _ in range(2))
    gate[1] *= 30  # far into both tails
    found = _native.kernels.silu_mul(isa, gate, up)
    wide = gate.astype(np.float64)
    expected = wide / (1 + np.exp(-np.maximum(wide, -700))) * up
    np.testing.assert_allclose(found[:, :size], expected, rtol=1e-6, atol=1e-30)


def test_silu_of_what_is_not_finite(isa: str) -> None:
    gate = np.array([[np.nan, np.inf, 1.0]], dtype=np.float32)
    found = _native.kernels.silu_mul(isa, gate, np.ones_like(gate))
    assert np.isnan(found[0, 0])
    assert found[0, 1] == np.inf
    assert np.isfinite(found[0, 2])
