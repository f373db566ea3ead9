"""Keys and values in blocks, as float32, bfloat16, or int8 with one scale for each key and each value."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freehold.arch.spec import ModelSpec

Floats = NDArray[np.float32]


def to_bf16(values: Floats) -> NDArray[np.uint16]:
    """Round to bfloat16 bits, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> Floats:
    """The float32 values of bfloat16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_int8(values: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Integers of up to 127, ties to even, and the scale of each vector along the last axis: value = integer * scale.

    A vector of zeros has scale 0; one that isn't finite has scale NaN.
    """
    largest = np.abs(values).max(axis=-1, keepdims=True)
    finite, some = np.isfinite(largest), largest >= np.float32(1e-30)
    safe = np.where(finite & some, largest, np.float32(1))
    integers = np.rint(np.where(finite & some, values, np.float32(0)) * (np.float32(127) / safe))
    scales = np.where(finite, np.where(some, largest / np.float32(127), np.float32(0)), np.float32(np.nan))
    return integers.astype(np.int8), scales


class BlockCache:
    """All layers' blocks. Memory is reserved here and touched as blocks are written."""

    def __init__(self, spec: ModelSpec, *, num_blocks: int, block_size: int, kv_dtype: str) -> None:
        self._block_size = block_size
        self._kv_dtype = kv_dtype
        dtype = {"f32": np.float32, "bf16": np.uint16, "int8": np.int8}[kv_dtype]
        shapes = [
            (2, num_blocks, block_size, layer.attention.num_kv_heads, layer.attention.head_dim) for layer in spec.layers
        ]
        # each layer: (keys and values, block, token in block, key/value head, element)
        self._layers = [np.zeros(shape, dtype=dtype) for shape in shapes]
        # int8 only: (keys and values, block, token in block, key/value head, 1)
        self._scales = [np.zeros((*shape[:-1], 1), dtype=np.float32) for shape in shapes] if kv_dtype == "int8" else []

    def write(self, layer: int, block_ids: NDArray[np.int32], pos: int, key: Floats, value: Floats) -> None:
        """Store one token's key and value, each (G, E), at an absolute position of a block table."""
        block, offset = int(block_ids[pos // self._block_size]), pos % self._block_size
        store = self._layers[layer]
        for part, vectors in enumerate((key, value)):
            if self._kv_dtype == "int8":
                store[part, block, offset], self._scales[layer][part, block, offset] = to_int8(vectors)
            else:
                store[part, block, offset] = to_bf16(vectors) if self._kv_dtype == "bf16" else vectors

    def read(self, layer: int, block_ids: NDArray[np.int32], start: int, end: int) -> tuple[Floats, Floats]:
        """Keys and values at positions start to end - 1, each (end - start, G, E), copied."""
        first = start // self._block_size
        blocks = block_ids[first : (end - 1) // self._block_size + 1]

        def tokens_of(store: NDArray[Any]) -> NDArray[Any]:
            gathered = store[:, blocks]
            return gathered.reshape(2, -1, *gathered.shape[3:])[:, start - first * self._block_size :][:, : end - start]

        values = tokens_of(self._layers[layer])
        if self._kv_dtype == "bf16":
            values = from_bf16(values)
        elif self._kv_dtype == "int8":
            values = values.astype(np.float32) * tokens_of(self._scales[layer])
        return values[0], values[1]

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, (source, destination), one after the other."""
        for source, destination in pairs:
            for store in self._stores():
                store[:, destination] = store[:, source]

    def dump(self, block_id: int) -> bytes:
        """One block's contents over all layers."""
        return b"".join(store[:, block_id].tobytes() for store in self._stores())

    def restore(self, block_id: int, data: bytes) -> None:
        """Write back what `dump` returned. Raises ValueError if the length is wrong."""
        expected = sum(store[:, block_id].nbytes for store in self._stores())
        if len(data) != expected:
            raise ValueError(f"a block takes {expected} bytes, {len(data)} were given")
        offset = 0
        for store in self._stores():
            part = store[:, block_id]
            part[...] = np.frombuffer(data, store.dtype, part.size, offset).reshape(part.shape)
            offset += part.nbytes

    def _stores(self) -> "list[NDArray[Any]]":
        return [*self._layers, *self._scales]
