"""Storage types to float32 and back, in numpy: slow, obvious, and bit for bit what the `gguf` package computes.

Block layouts: ggml's ``ggml-common.h``. A block is described by a numpy record type, so that a field's name is its
place; the decoders below work on many blocks at once, blocks first.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from freehold.files.tensors import DType, Tensor

Blocks = NDArray[np.void]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

_CHUNK_ELEMENTS = 1 << 19  # bounds the temporaries of a large tensor to a few megabytes each
_IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _record(*fields: tuple[str, str] | tuple[str, str, int]) -> DTypeLike:
    return np.dtype(list(fields))


_RECORDS: dict[DType, DTypeLike] = {
    DType.Q4_0: _record(("d", "<f2"), ("qs", "u1", 16)),
    DType.Q4_1: _record(("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)),
    DType.Q5_0: _record(("d", "<f2"), ("qh", "<u4"), ("qs", "u1", 16)),
    DType.Q5_1: _record(("d", "<f2"), ("m", "<f2"), ("qh", "<u4"), ("qs", "u1", 16)),
    DType.Q8_0: _record(("d", "<f2"), ("qs", "i1", 32)),
    DType.Q2_K: _record(("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")),
    DType.Q3_K: _record(("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2")),
    DType.Q4_K: _record(("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)),
    DType.Q5_K: _record(("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)),
    DType.Q6_K: _record(("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")),
    DType.IQ4_NL: _record(("d", "<f2"), ("qs", "u1", 16)),
    DType.IQ4_XS: _record(("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)),
}


def dequantize(tensor: Tensor) -> Floats:
    """Values of `tensor` as float32 in its shape; a fresh array."""
    return dequantize_bytes(tensor.data, tensor.dtype).reshape(tensor.shape)


def dequantize_bytes(data: Bytes, dtype: DType) -> Floats:
    """Values of whole blocks.

    Arguments:
        data: uint8, one or more dimensions, contiguous, a multiple of ``dtype.block_bytes`` in all.

    Returns:
        float32, one dimension, fresh.
    """
    flat = np.ascontiguousarray(data).reshape(-1)
    if dtype is DType.F32:
        return flat.view("<f4").astype(np.float32)
    # Scales of damaged files may be infinite or NaN: they come out as such, and are no reason for warnings.
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype is DType.F16:
            return flat.view("<f2").astype(np.float32)
        if dtype is DType.BF16:
            return (flat.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
        blocks = flat.view(_RECORDS[dtype])
        values = np.empty((len(blocks), dtype.block_elements), np.float32)
        step = _CHUNK_ELEMENTS // dtype.block_elements
        for start in range(0, len(blocks), step):
            chunk = blocks[start : start + step]
            values[start : start + step] = _DECODERS[dtype](chunk).reshape(len(chunk), -1)
    return values.reshape(-1)


def quantize(array: NDArray[np.floating], dtype: DType) -> Bytes:
    """Store `array` as `dtype`, rounding as ggml's reference code does.

    Arguments:
        array: finite; the last axis is a multiple of ``dtype.block_elements``.
        dtype: F32, F16, BF16, Q4_0, Q4_1 or Q8_0.

    Returns:
        uint8, shape of `array` with the last axis in bytes.

    Raises:
        ValueError: another type, a row that doesn't divide into blocks, or (block types) a value that isn't finite.
    """
    floats = np.ascontiguousarray(array, np.float32)
    if floats.shape[-1] % dtype.block_elements:
        raise ValueError(f"rows of {floats.shape[-1]} don't divide into {dtype.name} blocks")
    shape = (*floats.shape[:-1], floats.shape[-1] // dtype.block_elements * dtype.block_bytes)
    if dtype is DType.F32:
        return floats.astype("<f4").view(np.uint8).reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype is DType.F16:
            return floats.astype("<f2").view(np.uint8).reshape(shape)
        if dtype is DType.BF16:
            return _to_bf16(floats).view(np.uint8).reshape(shape)
    if dtype not in _ENCODERS:
        raise ValueError(f"{dtype.name} can't be written; F32, F16, BF16, Q4_0, Q4_1 and Q8_0 can")
    if not np.isfinite(floats).all():
        raise ValueError(f"only finite values can be stored as {dtype.name}")
    rows = floats.reshape(-1, dtype.block_elements)
    blocks = np.zeros(len(rows), _RECORDS[dtype])
    step = _CHUNK_ELEMENTS // dtype.block_elements
    with np.errstate(over="ignore", divide="ignore"):
        for start in range(0, len(rows), step):
            _ENCODERS[dtype](rows[start : start + step], blocks[start : start + step])
    return blocks.view(np.uint8).reshape(shape)


def _f32(halves: NDArray[np.float16]) -> Floats:
    return halves.astype(np.float32)


def _nibbles(packed: Bytes, group: int) -> Bytes:
    """(n, bytes) → (n, 2 * bytes): of each `group` bytes first the low nibbles, then the high ones."""
    groups = packed.reshape(len(packed), -1, 1, group)
    return np.concatenate([groups & 15, groups >> 4], axis=2).reshape(len(packed), -1)


def _bit_planes(packed: Bytes, group: int, bits: int) -> Bytes:
    """(n, bytes) → (n, 8 / bits * bytes): of each `group` bytes first their lowest `bits` bits, then the next…"""
    groups = packed.reshape(len(packed), -1, 1, group)
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    return (groups >> shifts & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)


def _fifth_bits(qh: NDArray[np.uint32]) -> Bytes:
    """(n,) → (n, 32): bit i of the mask, in place 4, for element i."""
    return ((qh[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)) << np.uint32(4)).astype(np.uint8)


def _signed(codes: NDArray[np.integer], zero: int) -> Floats:
    return codes.astype(np.float32) - np.float32(zero)


def _grouped(codes: Floats, num_groups: int) -> Floats:
    return codes.reshape(len(codes), num_groups, -1)


def _q4_0(b: Blocks) -> Floats:
    return _f32(b["d"])[:, None] * _signed(_nibbles(b["qs"], 16), 8)


def _q4_1(b: Blocks) -> Floats:
    return _f32(b["d"])[:, None] * _signed(_nibbles(b["qs"], 16), 0) + _f32(b["m"])[:, None]


def _q5_0(b: Blocks) -> Floats:
    return _f32(b["d"])[:, None] * _signed(_nibbles(b["qs"], 16) | _fifth_bits(b["qh"]), 16)


def _q5_1(b: Blocks) -> Floats:
    codes = _nibbles(b["qs"], 16) | _fifth_bits(b["qh"])
    return _f32(b["d"])[:, None] * _signed(codes, 0) + _f32(b["m"])[:, None]


def _q8_0(b: Blocks) -> Floats:
    return b["qs"].astype(np.float32) * _f32(b["d"])[:, None]


def _q2_k(b: Blocks) -> Floats:
    scales = _f32(b["d"])[:, None] * _signed(b["scales"] & 15, 0)
    minima = _f32(b["dmin"])[:, None] * _signed(b["scales"] >> 4, 0)
    codes = _grouped(_signed(_bit_planes(b["qs"], 32, 2), 0), 16)
    return scales[..., None] * codes - minima[..., None]


def _q3_k(b: Blocks) -> Floats:
    low, high = b["scales"][:, :8], b["scales"][:, 8:]
    six_bits = _nibbles(low, 8) | _bit_planes(high, 4, 2) << 4
    scales = _f32(b["d"])[:, None] * _signed(six_bits, 32)
    codes = _bit_planes(b["qs"], 32, 2) | _bit_planes(b["hmask"], 32, 1) << 2
    return scales[..., None] * _grouped(_signed(codes, 4), 16)


def _scales_and_minima(b: Blocks) -> tuple[Floats, Floats]:
    """(n, 8, 1) each: the 6-bit scales and minima of Q4_K and Q5_K, times their block's factors.

    Twelve bytes a, b, c of four: six low bits of a and of b are the first four scales and minima; the other four have
    their low nibble in c and their upper two bits on top of a and b.
    """
    a, m, c = b["scales"][:, :4], b["scales"][:, 4:8], b["scales"][:, 8:]
    scales = np.concatenate([a & 63, c & 15 | a >> 6 << 4], axis=1)
    minima = np.concatenate([m & 63, c >> 4 | m >> 6 << 4], axis=1)
    return (
        (_f32(b["d"])[:, None] * _signed(scales, 0))[..., None],
        (_f32(b["dmin"])[:, None] * _signed(minima, 0))[..., None],
    )


def _q4_k(b: Blocks) -> Floats:
    scales, minima = _scales_and_minima(b)
    return scales * _grouped(_signed(_nibbles(b["qs"], 32), 0), 8) - minima


def _q5_k(b: Blocks) -> Floats:
    scales, minima = _scales_and_minima(b)
    codes = _nibbles(b["qs"], 32) | _bit_planes(b["qh"], 32, 1) << 4
    return scales * _grouped(_signed(codes, 0), 8) - minima


def _q6_k(b: Blocks) -> Floats:
    scales = _f32(b["d"])[:, None] * b["scales"].astype(np.float32)
    codes = _nibbles(b["ql"], 64) | _bit_planes(b["qh"], 32, 2) << 4
    return scales[..., None] * _grouped(_signed(codes, 32), 16)


def _iq4_nl(b: Blocks) -> Floats:
    return _f32(b["d"])[:, None] * _IQ4_VALUES[_nibbles(b["qs"], 16)]


def _iq4_xs(b: Blocks) -> Floats:
    low = np.stack([b["scales_l"] & 15, b["scales_l"] >> 4], axis=-1).reshape(len(b), 8)
    high = (b["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)).astype(np.uint8)
    scales = _f32(b["d"])[:, None] * _signed(low | high << 4, 32)
    return scales[..., None] * _grouped(_IQ4_VALUES[_nibbles(b["qs"], 16)], 8)


_DECODERS: dict[DType, Callable[[Blocks], Floats]] = {
    DType.Q4_0: _q4_0,
    DType.Q4_1: _q4_1,
    DType.Q5_0: _q5_0,
    DType.Q5_1: _q5_1,
    DType.Q8_0: _q8_0,
    DType.Q2_K: _q2_k,
    DType.Q3_K: _q3_k,
    DType.Q4_K: _q4_k,
    DType.Q5_K: _q5_k,
    DType.Q6_K: _q6_k,
    DType.IQ4_NL: _iq4_nl,
    DType.IQ4_XS: _iq4_xs,
}


def _to_bf16(floats: Floats) -> NDArray[np.uint16]:
    """Nearest, ties to even; NaN stays NaN and becomes quiet."""
    bits = floats.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits  # wraps for NaN alone
    rounded >>= np.uint32(16)
    is_nan = bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000)
    if is_nan.any():
        rounded = np.where(is_nan, bits >> np.uint32(16) | np.uint32(0x40), rounded)
    return rounded.astype("<u2")


def _inverse(scales: Floats) -> Floats:
    """1 / scale, and 0 where that isn't finite: such a scale is 0 as float16 anyway."""
    inverse = np.float32(1) / scales
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _pack_nibbles(codes: Floats) -> Bytes:
    clipped: Bytes = np.clip(np.trunc(codes), 0, 15).astype(np.uint8)
    return clipped[:, :16] | clipped[:, 16:] << np.uint8(4)


def _encode_q4_0(rows: Floats, blocks: Blocks) -> None:
    extreme = np.take_along_axis(rows, np.abs(rows).argmax(axis=1, keepdims=True), axis=1)
    d = extreme / np.float32(-8)
    blocks["d"] = d[:, 0]
    blocks["qs"] = _pack_nibbles(rows * _inverse(d) + np.float32(8.5))


def _encode_q4_1(rows: Floats, blocks: Blocks) -> None:
    minimum = rows.min(axis=1, keepdims=True)
    d = (rows.max(axis=1, keepdims=True) - minimum) / np.float32(15)
    blocks["d"], blocks["m"] = d[:, 0], minimum[:, 0]
    blocks["qs"] = _pack_nibbles((rows - minimum) * _inverse(d) + np.float32(0.5))


def _encode_q8_0(rows: Floats, blocks: Blocks) -> None:
    d = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    scaled = rows * _inverse(d)
    away = np.copysign(np.floor(np.abs(scaled)), scaled)
    blocks["d"] = d[:, 0]
    blocks["qs"] = away + np.copysign(np.floor(np.float32(2) * (np.abs(scaled) - np.abs(away))), scaled)


_ENCODERS: dict[DType, Callable[[Floats, Blocks], None]] = {
    DType.Q4_0: _encode_q4_0,
    DType.Q4_1: _encode_q4_1,
    DType.Q8_0: _encode_q8_0,
}
