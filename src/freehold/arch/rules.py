"""Tensor rules: which tensor of a file fills which slot, with which shape and row order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freehold.arch.spec import LayerSpec, ModelSpec, Slot
from freehold.files.tensors import Tensor

Reorder = Callable[[Tensor], Tensor]
"""Brings a tensor's rows into canonical order without touching their bytes."""


@dataclass(frozen=True, slots=True)
class TensorRule:
    """One tensor that a model must have.

    Attributes:
        layer: None for slots that occur once.
        name: as in the file.
        shape: outermost axis first.
        reorder: applied when the tensor is read; None if the file has the canonical order.
    """

    slot: Slot
    layer: int | None
    name: str
    shape: tuple[int, ...]
    reorder: Reorder | None = None


Reading = tuple[ModelSpec, list[TensorRule]]
"""What a family file makes of a configuration."""


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """What a GGUF file says with its tensors rather than with its metadata.

    Attributes:
        vocab_size: rows of the embedding.
        tied_embeddings: there is no output matrix.
        rope_factors: divisors of each pair's frequency, (head_dim / 2,), if the file has them.
    """

    vocab_size: int
    tied_embeddings: bool
    rope_factors: NDArray[np.float32] | None


def global_shapes(spec: ModelSpec) -> dict[Slot, tuple[int, ...]]:
    """Shapes of the slots that occur once, in the order of use."""
    shapes: dict[Slot, tuple[int, ...]] = {
        Slot.EMBED: (spec.vocab_size, spec.hidden_size),
        Slot.FINAL_NORM: (spec.hidden_size,),
    }
    if not spec.tied_embeddings:
        shapes[Slot.HEAD] = (spec.vocab_size, spec.hidden_size)
    return shapes


def layer_shapes(layer: LayerSpec, hidden_size: int) -> dict[Slot, tuple[int, ...]]:
    """Shapes of one layer's slots, in the order of use."""
    attention, num_inner = layer.attention, layer.mlp.intermediate_size
    query_size = attention.num_heads * attention.head_dim
    kv_size = attention.num_kv_heads * attention.head_dim
    shapes: dict[Slot, tuple[int, ...]] = {
        Slot.ATTN_NORM: (hidden_size,),
        Slot.Q: (query_size, hidden_size),
        Slot.K: (kv_size, hidden_size),
        Slot.V: (kv_size, hidden_size),
    }
    if attention.qkv_bias:
        shapes |= {Slot.Q_BIAS: (query_size,), Slot.K_BIAS: (kv_size,), Slot.V_BIAS: (kv_size,)}
    if attention.qk_norm:
        shapes |= {Slot.Q_NORM: (attention.head_dim,), Slot.K_NORM: (attention.head_dim,)}
    return shapes | {
        Slot.O: (hidden_size, query_size),
        Slot.MLP_NORM: (hidden_size,),
        Slot.GATE: (num_inner, hidden_size),
        Slot.UP: (num_inner, hidden_size),
        Slot.DOWN: (hidden_size, num_inner),
    }


def pairs_to_halves(num_heads: int) -> Reorder:
    """Reorder for rows that are rotated in adjacent pairs: row 2 i of a head moves to i, row 2 i + 1 to E / 2 + i.

    Rows are whole in every storage type (blocks lie along the last axis), so moving them loses nothing.
    """

    def reorder(tensor: Tensor) -> Tensor:
        num_rows = tensor.shape[0]
        rows = tensor.data.reshape(num_heads, num_rows // num_heads // 2, 2, tensor.row_bytes)
        moved = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(-1)
        moved.flags.writeable = False
        return Tensor(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, data=moved)

    return reorder
