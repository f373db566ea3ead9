"""Keys and values in blocks, as float32 or bfloat16."""

from collections.abc import Sequence

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


class BlockCache:
    """All layers' blocks. Memory is reserved here and touched as blocks are written."""

    def __init__(self, spec: ModelSpec, *, num_blocks: int, block_size: int, kv_dtype: str) -> None:
        self._block_size = block_size
        self._is_bf16 = kv_dtype == "bf16"
        dtype = np.uint16 if self._is_bf16 else np.float32
        # each layer: (keys and values, block, token in block, key/value head, element)
        self._layers = [
            np.zeros((2, num_blocks, block_size, a.num_kv_heads, a.head_dim), dtype=dtype)
            for a in (layer.attention for layer in spec.layers)
        ]

    def write(self, layer: int, block_ids: NDArray[np.int32], pos: int, key: Floats, value: Floats) -> None:
        """Store one token's key and value, each (G, E), at an absolute position of a block table."""
        block, offset = int(block_ids[pos // self._block_size]), pos % self._block_size
        store = self._layers[layer]
        store[0, block, offset] = to_bf16(key) if self._is_bf16 else key
        store[1, block, offset] = to_bf16(value) if self._is_bf16 else value

    def read(self, layer: int, block_ids: NDArray[np.int32], start: int, end: int) -> tuple[Floats, Floats]:
        """Keys and values at positions start to end - 1, each (end - start, G, E), copied."""
        first = start // self._block_size
        blocks = block_ids[first : (end - 1) // self._block_size + 1]
        gathered = self._layers[layer][:, blocks]
        tokens = gathered.reshape(2, -1, *gathered.shape[3:])[:, start - first * self._block_size :][:, : end - start]
        values = from_bf16(tokens) if self._is_bf16 else tokens
        return values[0], values[1]

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, (source, destination), one after the other."""
        for source, destination in pairs:
            for store in self._layers:
                store[:, destination] = store[:, source]

    def dump(self, block_id: int) -> bytes:
        """One block's contents over all layers."""
        return b"".join(store[:, block_id].tobytes() for store in self._layers)

    def restore(self, block_id: int, data: bytes) -> None:
        """Write back what `dump` returned. Raises ValueError if the length is wrong."""
        expected = sum(store[:, block_id].nbytes for store in self._layers)
        if len(data) != expected:
            raise ValueError(f"a block takes {expected} bytes, {len(data)} were given")
        offset = 0
        for store in self._layers:
            part = store[:, block_id]
            part[...] = np.frombuffer(data, store.dtype, part.size, offset).reshape(part.shape)
            offset += part.nbytes
