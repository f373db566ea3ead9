"""Tensor rules: which tensor of a file fills which slot, with which shape and row order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freehold.arch.spec import LayerSpec, ModelSpec, Slot

RowOrder = Callable[[int], NDArray[np.int32]]
"""The file's row for each row in canonical order, given their number. Rows are whole in every storage type (blocks lie
along the last axis), so moving them loses nothing."""


@dataclass(frozen=True, slots=True)
class TensorRule:
    """One tensor that a model must have.

    Attributes:
        layer: None for slots that occur once.
        name: as in the file.
        shape: outermost axis first.
        row_order: where the file has other than the canonical order.
    """

    slot: Slot
    layer: int | None
    name: str
    shape: tuple[int, ...]
    row_order: RowOrder | None = None


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


def pairs_to_halves(num_heads: int) -> RowOrder:
    """Order for rows that are rotated in adjacent pairs: row 2 i of a head moves to i, row 2 i + 1 to E / 2 + i."""

    def order(num_rows: int) -> NDArray[np.int32]:
        pairs = np.arange(num_rows, dtype=np.int32).reshape(num_heads, num_rows // num_heads // 2, 2)
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(-1)

    return order
