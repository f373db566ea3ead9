"""A decoder-only transformer as data. Family files make a `ModelSpec`; planner, loader and backends read it.

Shapes use these letters: V vocabulary, D hidden size, H query heads, G key/value heads, E head size, F MLP size.
Linear weights are (outputs, inputs), as in PyTorch.
"""

from dataclasses import dataclass
from enum import StrEnum


class Slot(StrEnum):
    """Where a tensor goes. The value is its canonical name; slots above `ATTN_NORM` occur once, the rest per layer."""

    EMBED = "embed"  # (V, D)
    FINAL_NORM = "final_norm"  # (D,)
    HEAD = "head"  # (V, D); absent if embeddings are tied
    ATTN_NORM = "attn_norm"  # (D,)
    Q = "q"  # (H*E, D), rotary halves: element i pairs with i + rotary_dim / 2
    K = "k"  # (G*E, D), likewise
    V = "v"  # (G*E, D)
    Q_BIAS = "q_bias"  # (H*E,)
    K_BIAS = "k_bias"  # (G*E,)
    V_BIAS = "v_bias"  # (G*E,)
    Q_NORM = "q_norm"  # (E,)
    K_NORM = "k_norm"  # (E,)
    O = "o"  # (D, H*E)  # noqa: E741
    MLP_NORM = "mlp_norm"  # (D,)
    GATE = "gate"  # (F, D)
    UP = "up"  # (F, D)
    DOWN = "down"  # (D, F)


GLOBAL_SLOTS = frozenset({Slot.EMBED, Slot.FINAL_NORM, Slot.HEAD})


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position encoding over the first ``2 * len(inv_freq)`` elements of a head, halves paired.

    Attributes:
        inv_freq: radians per position for each pair, scaling (linear, llama3…) already applied. Float32 values.
        attention_factor: multiplies cosine and sine (1.0 except for YaRN-like scalings).
    """

    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Grouped-query attention of one layer.

    Attributes:
        window: keys a query sees, itself included; None means all before it.
        scale: multiplies query-key products.
        qk_norm: RMS norm over each head of queries and keys, before the rotation.
        qkv_bias: queries, keys and values have biases.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    rope: RopeSpec
    window: int | None = None
    qk_norm: bool = False
    qkv_bias: bool = False


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """Gated MLP: down(silu(gate(x)) * up(x))."""

    intermediate_size: int


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One decoder layer: x += attention(norm(x)); x += mlp(norm(x))."""

    attention: AttentionSpec
    mlp: MlpSpec


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A whole decoder.

    Attributes:
        family: file under ``arch/`` that made this spec (for messages only; never branched on elsewhere).
        max_position: tokens of context that the model was trained for.
        norm_eps: of every RMS norm.
        tied_embeddings: the output head is the embedding matrix.
    """

    family: str
    vocab_size: int
    hidden_size: int
    layers: tuple[LayerSpec, ...]
    max_position: int
    norm_eps: float
    tied_embeddings: bool
