"""Storage types against the `gguf` package, bit for bit."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf import quants as oracle
from numpy.typing import NDArray

from freehold.files.quants import dequantize, dequantize_bytes, quantize
from freehold.files.tensors import DType, Tensor

BLOCK_DTYPES = [dtype for dtype in DType if dtype.block_elements > 1]
WRITABLE = [DType.F32, DType.F16, DType.BF16, DType.Q4_0, DType.Q4_1, DType.Q8_0]


@pytest.fixture
def _oracle_may_warn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def oracle_values(raw: NDArray[np.uint8], dtype: DType) -> NDArray[np.float32]:
    return oracle.dequantize(raw, GGMLQuantizationType[dtype.name]).reshape(-1)


def assert_same_bits(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    """Equal in every bit; of a NaN only that it is one."""
    assert ours.dtype == theirs.dtype == np.float32
    assert ours.shape == theirs.shape
    differ = (ours.view(np.uint32) != theirs.view(np.uint32)) & ~(np.isnan(ours) & np.isnan(theirs))
    assert not differ.any(), f"{differ.sum()} of {differ.size} differ, first at {np.flatnonzero(differ)[:5]}"


def with_scales(raw: NDArray[np.uint8], dtype: DType, halves: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Put float16 patterns at both places where the formats have their scales: the first and the last four bytes."""
    blocks = raw.reshape(-1, dtype.block_bytes).copy()
    patterns = np.resize(halves, (len(blocks), 2)).astype("<u2").view(np.uint8)
    blocks[:, :4] = patterns
    blocks[:, -4:] = patterns
    return blocks.reshape(raw.shape)


@pytest.mark.usefixtures("_oracle_may_warn")
@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_decode_as_the_oracle_decodes_them(dtype: DType, seed: int) -> None:
    raw = np.random.default_rng(seed).integers(0, 256, (37, 12 * dtype.block_bytes), dtype=np.uint8)
    assert_same_bits(dequantize_bytes(raw, dtype), oracle_values(raw, dtype))


@pytest.mark.usefixtures("_oracle_may_warn")
@pytest.mark.parametrize("dtype", BLOCK_DTYPES, ids=lambda dtype: dtype.name)
def test_extreme_scales_decode_as_the_oracle_decodes_them(dtype: DType) -> None:
    # Zeros of both signs, smallest and largest subnormal, smallest normal, one, largest, infinities, NaNs.
    halves = [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01]
    raw = np.random.default_rng(7).integers(0, 256, (8, 49 * dtype.block_bytes), dtype=np.uint8)
    raw = with_scales(raw, dtype, np.array(halves, np.uint16))
    assert_same_bits(dequantize_bytes(raw, dtype), oracle_values(raw, dtype))


@pytest.mark.usefixtures("_oracle_may_warn")
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda dtype: dtype.name)
def test_each_16_bit_pattern_decodes_as_the_oracle_decodes_it(dtype: DType) -> None:
    raw = np.arange(1 << 16, dtype="<u2").view(np.uint8).reshape(256, -1)
    assert_same_bits(dequantize_bytes(raw, dtype), oracle_values(raw, dtype))


@pytest.mark.parametrize("dtype", BLOCK_DTYPES, ids=lambda dtype: dtype.name)
def test_a_tensor_larger_than_one_chunk_decodes_like_its_parts(dtype: DType) -> None:
    columns = 4 * dtype.block_elements
    raw = np.random.default_rng(1).integers(0, 256, (2_000_000 // columns, 4 * dtype.block_bytes), dtype=np.uint8)
    raw = with_scales(raw, dtype, np.array([0x2C00, 0xA801], np.uint16))
    whole = dequantize(Tensor("t", dtype, (len(raw), columns), raw.reshape(-1)))
    parts = [dequantize_bytes(part, dtype) for part in np.array_split(raw, 7)]
    assert whole.shape == (len(raw), columns)
    assert_same_bits(whole.reshape(-1), np.concatenate(parts))


def test_the_answer_is_fresh_and_the_file_untouched() -> None:
    raw = np.arange(8, dtype="<f4").view(np.uint8)
    raw.flags.writeable = False
    values = dequantize(Tensor("t", DType.F32, (2, 4), raw))
    values += 1
    assert values.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert raw.view("<f4").tolist() == list(range(8))


def rows_to_store() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    normal = rng.standard_normal((64, 128)).astype(np.float32)
    special = normal.copy()
    special[0, :32] = 0
    special[1, :32] = 1
    special[2] = np.round(special[2])
    special[3, :32] = -0.0
    special[4, :32] = np.linspace(-8, 7.5, 32)  # ties
    special[5] = np.abs(special[5])
    special[6] = -np.abs(special[6])
    scales = {"tiny": 1e-30, "small": 1e-5, "one": 1.0, "large": 1e4, "beyond float16": 1e10}
    return {name: (special * scale).astype(np.float32) for name, scale in scales.items()}


@pytest.mark.usefixtures("_oracle_may_warn")
@pytest.mark.parametrize("dtype", WRITABLE, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", list(rows_to_store()))
def test_values_are_stored_as_the_oracle_stores_them(dtype: DType, name: str) -> None:
    rows = rows_to_store()[name]
    theirs = np.ascontiguousarray(oracle.quantize(rows, GGMLQuantizationType[dtype.name])).view(np.uint8)
    ours = quantize(rows, dtype)
    assert ours.shape == theirs.shape == (64, 128 // dtype.block_elements * dtype.block_bytes)
    assert np.array_equal(ours, theirs)


@pytest.mark.usefixtures("_oracle_may_warn")
def test_bf16_rounds_as_the_oracle_rounds_each_upper_half_and_tie() -> None:
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    bits = np.concatenate([upper, upper | 0x7FFF, upper | 0x8000, upper | 0x8001, upper | 0xFFFF]).reshape(5, -1)
    theirs = oracle.quantize(bits.view(np.float32), GGMLQuantizationType.BF16)
    assert np.array_equal(quantize(bits.view(np.float32), DType.BF16), theirs)


def test_pieces_are_stored_like_the_whole() -> None:
    flat = np.random.default_rng(5).standard_normal(1_500_000 // 32 * 32).astype(np.float32)
    for dtype in WRITABLE:
        pieces = [quantize(flat[start : start + 320_000], dtype) for start in range(0, len(flat), 320_000)]
        assert np.array_equal(np.concatenate(pieces), quantize(flat, dtype)), dtype.name


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_block_types_refuse_what_is_not_finite(value: float) -> None:
    rows = np.ones((2, 32), np.float32)
    rows[1, 5] = value
    for dtype in (DType.Q4_0, DType.Q4_1, DType.Q8_0):
        with pytest.raises(ValueError, match="finite"):
            quantize(rows, dtype)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype not in WRITABLE], ids=lambda dtype: dtype.name)
def test_types_without_an_encoder_are_refused_by_name(dtype: DType) -> None:
    with pytest.raises(ValueError, match=dtype.name):
        quantize(np.zeros((1, 256), np.float32), dtype)


def test_rows_that_do_not_divide_into_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="33"):
        quantize(np.zeros((2, 33), np.float32), DType.Q8_0)
