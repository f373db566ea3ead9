"""Weights with integer scales: packing, and the kernels' bits against a twin in exact integers."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sources import random_tensor

from freehold import _native
from freehold.files.quants import dequantize
from freehold.files.tensors import DType, Tensor

TYPES = [DType.Q4_0, DType.Q4_1, DType.Q8_0]
NIBBLES = [DType.Q4_0, DType.Q4_1]
ISAS = [isa for isa in _native.available_isas() if _native.has_integer_scales(isa)]
SHAPES = [(1, 1, 32), (2, 70, 64), (3, 33, 96), (8, 32, 576), (33, 96, 160), (64, 65, 192)]
"""Rows, outputs, inputs; odd numbers of groups too."""


def wide_tensor(dtype: DType, num_outputs: int, num_inputs: int) -> Tensor:
    """Scales that differ by up to five powers of two within an output."""
    tensor = random_tensor(dtype, num_outputs, num_inputs)
    blocks = tensor.data.reshape(-1, dtype.block_bytes)
    rng = np.random.default_rng(num_inputs)
    for offset in (0, 2) if dtype is DType.Q4_1 else (0,):
        halves = blocks[:, offset : offset + 2].copy().view(np.float16)[:, 0]
        halves = (halves * 2.0 ** -rng.integers(0, 6, len(halves))).astype(np.float16)
        blocks[:, offset : offset + 2] = halves.view(np.uint8).reshape(-1, 2)
    return tensor


class IntegerWeights:
    """What packing makes of a tensor: a unit for each output; signed values, scales and minima for each group.

    Attributes:
        step: what dot products of `values` are rounded to multiples of.
    """

    def __init__(self, tensor: Tensor) -> None:
        num_outputs, num_inputs = tensor.shape
        blocks = tensor.data.reshape(num_outputs, num_inputs // 32, tensor.dtype.block_bytes)
        has_minimum = tensor.dtype is DType.Q4_1
        halves = np.ascontiguousarray(blocks[:, :, : 4 if has_minimum else 2]).view(np.float16).astype(np.float32)
        values = blocks[:, :, 4 if has_minimum else 2 :]
        if tensor.dtype is DType.Q8_0:
            self.values, self.step = np.ascontiguousarray(values).view(np.int8).astype(np.int64), 16
        else:
            self.values = np.concatenate([values & 15, values >> 4], axis=2).astype(np.int64) - 8
            self.step = 1
        scale = halves[:, :, 0]
        minimum = scale * np.float32(8) + halves[:, :, 1] if has_minimum else np.zeros_like(scale)
        largest = np.maximum(np.abs(scale), np.abs(minimum) / 8).max(axis=1)
        self.unit = np.ldexp(np.float32(1), np.frexp(largest)[1] - 15).astype(np.float32)
        self.scales = np.clip(np.rint(scale / self.unit[:, None]), -32767, 32767).astype(np.int64)
        self.minima = np.clip(np.rint(minimum / (8 * self.unit[:, None])), -32767, 32767).astype(np.int64)

    def dequantized(self) -> NDArray[np.float64]:
        weights = self.scales[:, :, None] * self.values + 8 * self.minima[:, :, None]
        return (weights * self.unit[:, None, None].astype(np.float64)).reshape(len(self.unit), -1)


def linear_twin(weights: IntegerWeights, x: NDArray[np.float32], group: int) -> NDArray[np.float32]:
    """Bit for bit: integers within 64 inputs, float32 sums of those in ascending order, then both units."""
    q, scale = _native.kernels.quantize("generic", x, group)
    num_rows, num_groups = len(x), x.shape[1] // 32
    numbers = q.reshape(num_rows, num_groups, 32 // group, group).astype(np.int64)
    scale = scale.reshape(num_rows, num_groups, 32 // group)
    top = scale.max(axis=(1, 2))
    factor = np.divide(np.float32(16384), top, out=np.zeros_like(top), where=top > 0)[:, None, None]
    sum_factor = np.divide(np.float32(4), top, out=np.zeros_like(top), where=top > 0)[:, None]
    row_scales = np.rint(scale * factor).astype(np.int64)
    scaled_sums = scale * numbers.sum(axis=3).astype(np.float32)
    in_group = scaled_sums[:, :, 0] if group == 32 else scaled_sums[:, :, 0] + scaled_sums[:, :, 1]
    row_sums = np.rint(in_group * sum_factor).astype(np.int64)

    values = weights.values.reshape(len(weights.unit), num_groups, 32 // group, group)
    dots = (np.einsum("rgpi,ogpi->rogp", numbers, values) + weights.step // 2) // weights.step
    both = (weights.scales[None, :, :, None] * row_scales[:, None] + (1 << 14)) >> 15
    sums = (dots * both).sum(axis=3) + weights.minima[None] * row_sums[:, None]
    assert np.abs(dots).max() < 1 << 15
    total = np.zeros(sums.shape[:2], dtype=np.float32)
    for first in range(0, num_groups, 2):
        of_cell = sums[:, :, first : first + 2].sum(axis=2)
        assert np.abs(of_cell).max() < 1 << 31
        total += of_cell.astype(np.float32)
    return total * (weights.unit * np.float32(2 * weights.step)) * top[:, None]


def activations(num_rows: int, num_inputs: int) -> NDArray[np.float32]:
    """Groups of very different magnitude, and a row of zeros."""
    rng = np.random.default_rng([num_rows, num_inputs])
    x = rng.standard_normal((num_rows, num_inputs), dtype=np.float32)
    x *= np.repeat(2.0 ** rng.integers(-9, 3, (num_rows, num_inputs // 16)), 16, axis=1).astype(np.float32)
    if num_rows > 2:
        x[num_rows // 2] = 0.0
    return x


def run(isa: str, tensor: Tensor, x: NDArray[np.float32], group: int, strips_each: int = 1000) -> NDArray[np.float32]:
    num_outputs = tensor.shape[0]
    out = _native.kernels.linear(
        isa, tensor.dtype.name, num_outputs, tensor.data, x, True, group, strips_each, integer_scales=True
    )
    assert not out[np.isfinite(x).all(axis=1), num_outputs:].any(), "padding stays zero"
    return out[:, :num_outputs]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_fast_packing_gives_the_slow_twins_bytes(dtype: DType) -> None:
    for num_outputs in (1, 31, 32, 33, 100):
        for num_inputs in (32, 64, 96, 160):
            tensor = wide_tensor(dtype, num_outputs, num_inputs)
            fast, slow = (
                _native.kernels.packed(dtype.name, num_outputs, num_inputs, tensor.data, by_groups, integer_scales=True)
                for by_groups in (False, True)
            )
            assert fast == slow, (num_outputs, num_inputs)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_packed_weights_are_the_twins(dtype: DType) -> None:
    for num_inputs in (32, 96, 576):
        tensor = wide_tensor(dtype, 70, num_inputs)
        found = _native.kernels.unpack(dtype.name, 70, num_inputs, tensor.data, 1, integer_scales=True)
        twin = IntegerWeights(tensor)
        np.testing.assert_array_equal(found, twin.dequantized().astype(np.float32))
        off = np.abs(found - dequantize(tensor)).max(axis=1)
        highest = 128 if dtype is DType.Q8_0 else 8
        assert (off <= highest * twin.unit).all(), "half a unit for each step of a value; of 8 for the minimum"


def test_scales_are_exact_down_to_a_sixteenth_of_the_largest() -> None:
    tensor = random_tensor(DType.Q4_0, 32, 320)
    halves = np.array([2.0**-e * (1 + 1023 / 1024) for e in (3, 4, 5, 6, 7)] * 2, dtype=np.float16)
    blocks = tensor.data.reshape(32, 10, 18)
    blocks[:, :, :2] = halves.view(np.uint8).reshape(10, 2)
    found = _native.kernels.unpack("Q4_0", 32, 320, tensor.data, 1, integer_scales=True)
    np.testing.assert_array_equal(found, dequantize(tensor))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 16])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_kernels_give_the_twins_bits(isa: str, dtype: DType, group: int) -> None:
    for num_rows, num_outputs, num_inputs in SHAPES:
        tensor, x = wide_tensor(dtype, num_outputs, num_inputs), activations(num_rows, num_inputs)
        expected = linear_twin(IntegerWeights(tensor), x, group)
        for strips_each in (1, 1000):
            np.testing.assert_array_equal(run(isa, tensor, x, group, strips_each), expected)
        alone = np.concatenate([run(isa, tensor, x[row : row + 1], group) for row in range(num_rows)])
        np.testing.assert_array_equal(alone, expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 16])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_rows_don_t_change_with_the_height_of_tiles(isa: str, dtype: DType, group: int) -> None:
    tensor, x = wide_tensor(dtype, 64, 192), activations(64, 192)
    whole = run(isa, tensor, x, group)
    for num_rows in range(1, 20):
        np.testing.assert_array_equal(run(isa, tensor, x[:num_rows], group), whole[:num_rows])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 16])
@pytest.mark.parametrize("nibble", [0x00, 0xFF])
@pytest.mark.parametrize("dtype", NIBBLES, ids=lambda d: d.name)
def test_integers_are_exact_at_their_extremes(isa: str, dtype: DType, nibble: int, group: int) -> None:
    """All numbers, scales and minima at their largest magnitude, of either sign: where 16 or 32 bits would overflow."""
    tensor = random_tensor(dtype, 32, 128)
    blocks = np.full_like(tensor.data, nibble).reshape(-1, dtype.block_bytes)
    for scale, minimum in ((1.9990234, 0.0), (1.9990234, -31.98), (-1.9990234, -8.0), (0.0, 15.9)):
        halves = np.array([scale, minimum], dtype=np.float16).view(np.uint8)
        blocks[:, :2] = halves[:2]
        if dtype is DType.Q4_1:
            blocks[:, 2:4] = halves[2:]
        extreme = Tensor("w", dtype, tensor.shape, blocks.reshape(-1))
        for sign in (1.0, -1.0):
            x = np.full((3, 128), sign, dtype=np.float32)
            expected = linear_twin(IntegerWeights(extreme), x, group)
            np.testing.assert_array_equal(run(isa, extreme, x, group), expected)
            exact = x.astype(np.float64) @ dequantize(extreme).astype(np.float64).T
            np.testing.assert_allclose(expected, exact, rtol=2e-4, atol=1e-2)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 16])
@pytest.mark.parametrize("value", [-128, -127, 127])
def test_bytes_are_exact_at_their_extremes(isa: str, value: int, group: int) -> None:
    tensor = random_tensor(DType.Q8_0, 32, 128)
    blocks = np.full_like(tensor.data, value & 0xFF).reshape(-1, DType.Q8_0.block_bytes)
    for scale in (1.9990234, -1.9990234, 0.0):
        blocks[:, :2] = np.array([scale], dtype=np.float16).view(np.uint8)
        extreme = Tensor("w", DType.Q8_0, tensor.shape, blocks.reshape(-1))
        for sign in (1.0, -1.0):
            x = np.full((3, 128), sign, dtype=np.float32)
            expected = linear_twin(IntegerWeights(extreme), x, group)
            np.testing.assert_array_equal(run(isa, extreme, x, group), expected)
            exact = x.astype(np.float64) @ dequantize(extreme).astype(np.float64).T
            np.testing.assert_allclose(expected, exact, rtol=2e-4)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 16])
def test_dot_products_are_rounded_to_the_nearest_step(isa: str, group: int) -> None:
    """Sums of all remainders by 16, of either sign; those half a step away from both go up."""
    x = np.zeros((1, 64), dtype=np.float32)
    x[0, [0, group]] = 127.0  # a scale of 1
    x[0, [1, group + 1]] = 1.0
    blocks = np.zeros((96, 2, DType.Q8_0.block_bytes), dtype=np.uint8)
    blocks[:, :, :2] = np.array([1.0], dtype=np.float16).view(np.uint8)
    values = blocks.view(np.int8)[:, :, 2:].reshape(96, 64)
    values[:, 1] = np.arange(96) - 48
    blocks[:, :, 2:] = values.view(np.uint8).reshape(96, 2, 32)
    tensor = Tensor("w", DType.Q8_0, (96, 64), blocks.reshape(-1))
    steps = np.floor((np.arange(96) - 48 + 8) / 16) * 16
    np.testing.assert_array_equal(run(isa, tensor, x, group)[0], steps.astype(np.float32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_what_is_not_finite_stays_visible_and_in_its_row(isa: str, dtype: DType, bad: float) -> None:
    tensor, x = wide_tensor(dtype, 40, 64), activations(6, 64)
    clean = run(isa, tensor, x, 32)
    x[4, 17] = bad
    found = run(isa, tensor, x, 32)
    assert not np.isfinite(found[4]).any()
    others = [0, 1, 2, 3, 5]
    np.testing.assert_array_equal(found[others], clean[others])
    blocks = tensor.data.reshape(40, 2, dtype.block_bytes)
    blocks[7, 1, :2] = np.array([bad], dtype=np.float16).view(np.uint8)
    found = run(isa, tensor, activations(6, 64), 32)
    assert np.isnan(found[:, 7]).all()
    assert np.isfinite(np.delete(found, 7, axis=1)).all()
