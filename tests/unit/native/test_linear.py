"""Linear kernels against their slow twins, and their law: a row's outputs depend on that row alone."""

import signal
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from sources import PLAIN, input_sizes, random_tensor

from freehold import _native
from freehold.files.quants import dequantize
from freehold.files.tensors import DType, Tensor

ROWS = [1, 2, 3, 8, 33, 64]
FINE = 16
FORMS = {"float": None, "int8": 32, "int8-fine": FINE}
"""Activations: float32, or int8 with a scale for each so many inputs."""
FINE_LAYOUTS = (DType.Q2_K, DType.Q3_K, DType.Q6_K)


def activations(num_rows: int, num_inputs: int, seed: int = 1) -> NDArray[np.float32]:
    rng = np.random.default_rng([seed, num_rows, num_inputs])
    x = rng.standard_normal((num_rows, num_inputs), dtype=np.float32)
    return x * rng.uniform(0.01, 10.0, (num_rows, 1)).astype(np.float32)


def group_of(dtype: DType, form: str) -> int | None:
    """Inputs that share a scale; weights in groups of 16 have no coarser ones."""
    return FINE if dtype in FINE_LAYOUTS and FORMS[form] else FORMS[form]


def run(isa: str, tensor: Tensor, x: NDArray[np.float32], *, form: str, strips_each: int = 1000) -> NDArray[np.float32]:
    num_outputs = tensor.shape[0]
    group = group_of(tensor.dtype, form)
    out = _native.kernels.linear(
        isa, tensor.dtype.name, num_outputs, tensor.data, x, group is not None, group or FINE, strips_each
    )
    finite = np.isfinite(x).all(axis=1)
    assert not out[finite, num_outputs:].any(), "padding stays zero"
    return out[:, :num_outputs]


def quantized_twin(x: NDArray[np.float32], group: int) -> NDArray[np.float64]:
    """What int8 activations stand for: in each group, multiples of a 127th of the largest magnitude."""
    groups = x.reshape(x.shape[0], -1, group)
    scale = (np.abs(groups).max(axis=2, keepdims=True) / np.float32(127)).astype(np.float32)
    inverse = np.divide(
        np.float32(127), np.abs(groups).max(axis=2, keepdims=True), out=np.zeros_like(scale), where=scale > 0
    )
    rounded = np.rint(groups * inverse)
    return (rounded.astype(np.float64) * scale).reshape(x.shape)


def linear_twin(tensor: Tensor, x: NDArray[np.float32], *, form: str) -> NDArray[np.float64]:
    group = group_of(tensor.dtype, form)
    inputs = quantized_twin(x, group) if group and tensor.dtype not in PLAIN else x.astype(np.float64)
    return inputs @ dequantize(tensor).astype(np.float64).T


def bound(tensor: Tensor, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rounding of a chain of float32 multiply-adds: its length times half an ulp of the sum of magnitudes."""
    magnitudes = np.abs(x).astype(np.float64) @ np.abs(dequantize(tensor)).astype(np.float64).T
    return magnitudes * (x.shape[1] + 8) * 2.0**-24 * 4 + 1e-30


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_parity(isa: str, dtype: DType, form: str) -> None:  # q-03
    for num_inputs in input_sizes(dtype):
        for num_rows, num_outputs in zip(ROWS, [1, 16, 33, 70, 32, 95], strict=True):
            tensor, x = random_tensor(dtype, num_outputs, num_inputs), activations(num_rows, num_inputs)
            error = np.abs(run(isa, tensor, x, form=form) - linear_twin(tensor, x, form=form))
            assert (error <= bound(tensor, x)).all(), (num_rows, num_outputs, num_inputs, error.max())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_a_row_alone_equals_the_row_among_others(isa: str, dtype: DType, form: str) -> None:
    num_inputs = input_sizes(dtype)[-1]
    tensor, x = random_tensor(dtype, 70, num_inputs), activations(64, num_inputs)
    alone = np.concatenate([run(isa, tensor, x[row : row + 1], form=form) for row in range(64)])
    for num_rows in range(2, 20):
        np.testing.assert_array_equal(run(isa, tensor, x[:num_rows], form=form), alone[:num_rows])
    for start in (0, 31):
        np.testing.assert_array_equal(run(isa, tensor, x[start:], form=form), alone[start:])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_rows", [1, 5])
def test_the_split_of_outputs_changes_nothing(isa: str, num_rows: int, form: str) -> None:
    for dtype in (DType.Q4_1, DType.Q8_0, DType.Q6_K, DType.BF16):
        tensor, x = random_tensor(dtype, 330, 256), activations(num_rows, 256)
        whole = run(isa, tensor, x, form=form)
        for strips_each in (1, 2, 3):
            np.testing.assert_array_equal(run(isa, tensor, x, form=form, strips_each=strips_each), whole)


@pytest.mark.parametrize("form", ["int8", "int8-fine"])
@pytest.mark.parametrize("dtype", [DType.Q4_0, DType.Q8_0, DType.Q6_K, DType.Q2_K], ids=lambda d: d.name)
def test_integer_parts_are_exact_at_their_extremes(isa: str, dtype: DType, form: str) -> None:
    """All weights and activations at their largest magnitude: where saturating instructions would be caught."""
    tensor = random_tensor(dtype, 32, dtype.block_elements)
    raw = np.full_like(tensor.data, 0xFF).reshape(-1, dtype.block_bytes)
    scales = tensor.data.reshape(-1, dtype.block_bytes)
    offset = {DType.Q4_0: 0, DType.Q8_0: 0, DType.Q6_K: 208, DType.Q2_K: 80}[dtype]
    raw[:, offset : offset + 2] = scales[:, offset : offset + 2]
    if dtype is DType.Q2_K:
        raw[:, 82:84] = scales[:, 82:84]
    if dtype is DType.Q8_0:
        raw[:, 2:] = np.array([0x80, 0x7F], dtype=np.uint8)[np.arange(32) % 2]
    extreme = Tensor("w", dtype, tensor.shape, raw.reshape(-1))
    for sign in (1.0, -1.0):
        x = np.full((3, dtype.block_elements), sign, dtype=np.float32)
        error = np.abs(run(isa, extreme, x, form=form) - linear_twin(extreme, x, form=form))
        assert (error <= bound(extreme, x)).all()


@pytest.mark.parametrize("dtype", FINE_LAYOUTS, ids=lambda d: d.name)
def test_activations_coarser_than_the_weights_end_the_process(isa: str, dtype: DType) -> None:
    code = f"""if True:
        import numpy as np
        from freehold import _native
        raw = np.zeros({dtype.block_bytes} * 32, dtype=np.uint8)
        _native.kernels.linear("{isa}", "{dtype.name}", 32, raw, np.ones((1, 256), dtype=np.float32), True, 32, 1)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGABRT
    assert "a scale for each 16 inputs" in done.stderr


@pytest.mark.parametrize("group", [16, 32])
def test_quantized_activations_equal_their_twin(isa: str, group: int) -> None:
    x = activations(7, 96)
    x[0, :32] = 0.0
    x[1, 5] = 1e30
    x[2] *= np.float32(1e-36)
    q, scale = _native.kernels.quantize(isa, x, group)
    expected = quantized_twin(x, group)
    expected[2] = 0.0  # magnitudes under 1e-30 count as zero
    found = q.reshape(7, -1, group).astype(np.float64) * scale.reshape(7, -1, 1)
    np.testing.assert_allclose(found.reshape(7, 96), expected, rtol=1e-6)
    assert np.abs(q).max() <= 127


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [DType.Q4_1, DType.Q8_0, DType.F16], ids=lambda d: d.name)
def test_what_is_not_finite_stays_visible_and_in_its_row(isa: str, dtype: DType, form: str, bad: float) -> None:
    tensor, x = random_tensor(dtype, 40, 64), activations(6, 64)
    clean = run(isa, tensor, x, form=form)
    x[3, 17] = bad
    found = run(isa, tensor, x, form=form)
    assert not np.isfinite(found[3]).any()
    others = [0, 1, 2, 4, 5]
    np.testing.assert_array_equal(found[others], clean[others])
