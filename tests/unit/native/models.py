"""Small models in memory, of any shape and any mixture of storage types."""

from collections.abc import Mapping

import numpy as np
from sources import random_tensor

from freehold.arch.load import Weights
from freehold.arch.rules import TensorRule
from freehold.arch.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, RopeSpec, Slot
from freehold.files.tensors import DType, Tensor

VECTORS = frozenset(
    {Slot.FINAL_NORM, Slot.ATTN_NORM, Slot.MLP_NORM, Slot.Q_BIAS, Slot.K_BIAS, Slot.V_BIAS, Slot.Q_NORM, Slot.K_NORM}
)


def make_spec(
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    mlp: int,
    vocab: int,
    windows: tuple[int | None, ...] = (None, None),
    tied: bool = True,
    bias: bool = False,
    qk_norm: bool = False,
    rotary_dim: int | None = None,
) -> ModelSpec:
    pairs = (rotary_dim or head_dim) // 2
    rope = RopeSpec(tuple(float(np.float32(10_000.0 ** (-i / pairs))) for i in range(pairs)))
    layers = tuple(
        LayerSpec(
            AttentionSpec(
                num_heads=heads,
                num_kv_heads=kv_heads,
                head_dim=head_dim,
                scale=head_dim**-0.5,
                rope=rope,
                window=window,
                qk_norm=qk_norm,
                qkv_bias=bias,
            ),
            MlpSpec(mlp),
        )
        for window in windows
    )
    return ModelSpec("test", vocab, hidden, layers, 4096, 1e-5, tied)


def shapes(spec: ModelSpec) -> dict[tuple[Slot, int | None], tuple[int, ...]]:
    found: dict[tuple[Slot, int | None], tuple[int, ...]] = {
        (Slot.EMBED, None): (spec.vocab_size, spec.hidden_size),
        (Slot.FINAL_NORM, None): (spec.hidden_size,),
    }
    if not spec.tied_embeddings:
        found[Slot.HEAD, None] = (spec.vocab_size, spec.hidden_size)
    for index, layer in enumerate(spec.layers):
        attention, hidden, mlp = layer.attention, spec.hidden_size, layer.mlp.intermediate_size
        queries, keys = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
        of_layer: dict[Slot, tuple[int, ...]] = {
            Slot.ATTN_NORM: (hidden,),
            Slot.MLP_NORM: (hidden,),
            Slot.Q: (queries, hidden),
            Slot.K: (keys, hidden),
            Slot.V: (keys, hidden),
            Slot.O: (hidden, queries),
            Slot.GATE: (mlp, hidden),
            Slot.UP: (mlp, hidden),
            Slot.DOWN: (hidden, mlp),
        }
        if attention.qkv_bias:
            of_layer |= {Slot.Q_BIAS: (queries,), Slot.K_BIAS: (keys,), Slot.V_BIAS: (keys,)}
        if attention.qk_norm:
            of_layer |= {Slot.Q_NORM: (attention.head_dim,), Slot.K_NORM: (attention.head_dim,)}
        found |= {(slot, index): shape for slot, shape in of_layer.items()}
    return found


def make_weights(spec: ModelSpec, dtype: DType, others: Mapping[Slot, DType] | None = None) -> Weights:
    """Random weights; matrices are of `dtype` but for the slots in `others`."""
    rules, tensors = [], {}
    for seed, ((slot, layer), shape) in enumerate(shapes(spec).items()):
        name = f"{slot}.{layer}"
        rules.append(TensorRule(slot=slot, layer=layer, name=name, shape=shape))
        tensors[name] = _tensor(name, slot, shape, (others or {}).get(slot, dtype), seed)
    return Weights(rules, tensors)


def _tensor(name: str, slot: Slot, shape: tuple[int, ...], dtype: DType, seed: int) -> Tensor:
    if slot in VECTORS:
        values = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)
        return Tensor(name, DType.F32, shape, values.view(np.uint8))
    made = random_tensor(dtype, *shape, seed=seed)
    return Tensor(name, dtype, shape, made.data)
