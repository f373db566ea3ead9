"""How many bytes a model takes, before anything is loaded."""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Literal

from freehold.arch.load import Weights
from freehold.arch.rules import global_shapes, layer_shapes
from freehold.arch.spec import AttentionSpec, ModelSpec, Slot
from freehold.files.tensors import DType

KVDtype = Literal["bf16", "int8", "f32"]
_KV_ELEMENT_BYTES: Mapping[KVDtype, int] = {"bf16": 2, "int8": 1, "f32": 4}
_KV_SCALE_BYTES = 4


def num_parameters(spec: ModelSpec) -> int:
    """Elements of all tensors; a tied head counts once."""
    return sum(prod(shape) for _, _, shape in _all_shapes(spec))


def _all_shapes(spec: ModelSpec) -> Iterator[tuple[Slot, int | None, tuple[int, ...]]]:
    for slot, shape in global_shapes(spec).items():
        yield slot, None, shape
    for index, layer in enumerate(spec.layers):
        for slot, shape in layer_shapes(layer, spec.hidden_size).items():
            yield slot, index, shape


def tensor_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """Bytes of one tensor in a storage type."""
    return prod(shape) // dtype.block_elements * dtype.block_bytes


def weight_bytes(spec: ModelSpec, weights: Weights) -> int:
    """Bytes of all weights in the file's own storage types."""
    return sum(tensor_bytes(weights.dtype(slot, layer), shape) for slot, layer, shape in _all_shapes(spec))


def step_weight_bytes(spec: ModelSpec, weights: Weights) -> int:
    """Bytes of the matrices that every step reads whole, in the file's own storage types. An embedding that is no head
    isn't among them: a step reads one row of it for each token."""
    return sum(
        tensor_bytes(weights.dtype(slot, layer), shape)
        for slot, layer, shape in _all_shapes(spec)
        if len(shape) == 2 and (slot != Slot.EMBED or spec.tied_embeddings)
    )


def kv_layer_token_bytes(attention: AttentionSpec, kv_dtype: KVDtype) -> int:
    """Bytes of one token's keys and values in one layer. int8 keys and values have a scale for each head."""
    scale_bytes = _KV_SCALE_BYTES if kv_dtype == "int8" else 0
    return 2 * attention.num_kv_heads * (attention.head_dim * _KV_ELEMENT_BYTES[kv_dtype] + scale_bytes)


def kv_token_bytes(spec: ModelSpec, kv_dtype: KVDtype) -> int:
    """Bytes of one token's keys and values over all layers."""
    return sum(kv_layer_token_bytes(layer.attention, kv_dtype) for layer in spec.layers)


def kv_block_bytes(spec: ModelSpec, block_size: int, kv_dtype: KVDtype) -> int:
    """Bytes of one KV block of `block_size` tokens over all layers."""
    return block_size * kv_token_bytes(spec, kv_dtype)
