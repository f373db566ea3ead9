"""Packing loses nothing: what comes out of the packed layout equals the file type's own dequantization."""

import numpy as np
import pytest
from sources import input_sizes, random_tensor

from freehold import _native
from freehold.files.quants import dequantize
from freehold.files.tensors import DType


@pytest.mark.parametrize("num_outputs", [1, 31, 32, 33, 80])
@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_unpacking_equals_dequantizing(dtype: DType, num_outputs: int) -> None:
    for num_inputs in input_sizes(dtype):
        tensor = random_tensor(dtype, num_outputs, num_inputs)
        found = _native.kernels.unpack(dtype.name, num_outputs, num_inputs, tensor.data, 2)
        np.testing.assert_array_equal(found, dequantize(tensor))


@pytest.mark.parametrize("dtype", [DType.Q4_1, DType.Q6_K, DType.F16], ids=lambda d: d.name)
def test_threads_pack_the_same(dtype: DType) -> None:
    tensor = random_tensor(dtype, 500, 256)
    one, three = (_native.kernels.unpack(dtype.name, 500, 256, tensor.data, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


GROWTH = {DType.F16: 2.0, DType.Q4_K: 1.03, DType.Q5_K: 1.03, DType.IQ4_XS: 1.03, DType.Q3_K: 1.04}
"""Packed bytes to the file's: float16 becomes float32, and 6-bit integers of scales take bytes. The rest stay equal."""


@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_types_keep_their_size(dtype: DType) -> None:
    in_file = 64 * 512 // dtype.block_elements * dtype.block_bytes
    assert in_file <= _native.packed_bytes("q", dtype.name, 64, 512) <= GROWTH.get(dtype, 1.0) * in_file
    with_units = _native.packed_bytes("q", dtype.name, 64, 512, integer_scales=True)
    assert with_units <= GROWTH.get(dtype, 1.0) * in_file + 64 * 2, "two bytes an output"


@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_keep_their_scales_unless_they_are_the_head(tied: bool) -> None:
    """They are looked up row by row, as exactly as the file has them."""
    sizes = {
        slot: _native.packed_bytes(slot, "Q8_0", 64, 512, integer_scales=True, tied_embeddings=tied)
        for slot in ("embed", "head", "q")
    }
    assert sizes["head"] == sizes["q"]
    assert (sizes["embed"] == sizes["head"]) is tied
    assert sizes["embed"] <= sizes["head"]


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ValueError, match="Q9_9"):
        _native.packed_bytes("q", "Q9_9", 32, 32)
