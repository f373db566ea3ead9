"""One token through a decoder, in float32 numpy.

Tokens are computed one at a time, and products are sums that `numpy.einsum` forms itself in an order that depends on
the shapes alone: no library for matrix products is involved, whose order could depend on threads or batch. So a token's
result depends on its position and the tokens before it, never on the batch it came in (law 1).
"""

import numpy as np
from numpy.typing import NDArray

from freehold.arch.load import Weights
from freehold.arch.spec import AttentionSpec, LayerSpec, ModelSpec, RopeSpec, Slot
from freehold.backends.reference.cache import BlockCache
from freehold.files.quants import dequantize

Floats = NDArray[np.float32]
LayerWeights = dict[Slot, Floats]


def matvec(matrix: Floats, vector: Floats) -> Floats:
    """(O, I) times (I,): (O,)."""
    product: Floats = np.einsum("oi,i->o", matrix, vector)
    return product


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Divide by the root of the mean square over the last axis, then scale."""
    mean_square = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
    normed: Floats = np.divide(x, np.sqrt(mean_square + np.float32(eps))) * weight
    return normed


def rotate(heads: Floats, pos: int, rope: RopeSpec) -> Floats:
    """Rotate each head of (heads, E): element i pairs with i + rotary_dim / 2; the rest passes.

    Angles are float32 products, as in training; their sine and cosine are rounded from float64.
    """
    angles = (np.float32(pos) * np.array(rope.inv_freq, dtype=np.float32)).astype(np.float64)
    cos = (np.cos(angles) * rope.attention_factor).astype(np.float32)
    sin = (np.sin(angles) * rope.attention_factor).astype(np.float32)
    half = angles.size
    first, second, rest = heads[:, :half], heads[:, half : 2 * half], heads[:, 2 * half :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=1)


def attend(queries: Floats, keys: Floats, values: Floats, scale: float) -> Floats:
    """Softmax attention of one token: queries (H, E) over keys and values (T, G, E), to (H, E)."""
    num_kv_heads = keys.shape[1]
    grouped = queries.reshape(num_kv_heads, -1, queries.shape[1])  # (G, H / G, E)
    out = np.empty_like(grouped)
    for group in range(num_kv_heads):
        group_keys = np.ascontiguousarray(keys[:, group])
        group_values = np.ascontiguousarray(values[:, group])
        for member, query in enumerate(grouped[group]):
            scores = matvec(group_keys, query) * np.float32(scale)
            weights = np.exp(scores - scores.max())
            weights /= weights.sum(dtype=np.float32)
            out[group, member] = np.einsum("t,te->e", weights, group_values)
    return out.reshape(queries.shape)


def silu(x: Floats) -> Floats:
    """x times the logistic function of x."""
    gated: Floats = np.divide(x, np.float32(1) + np.exp(-x))
    return gated


class ReferenceModel:
    """A decoder with all its weights as float32 arrays."""

    def __init__(self, spec: ModelSpec, weights: Weights) -> None:
        self.spec = spec
        self._globals: LayerWeights = {}
        self._layers: list[LayerWeights] = [{} for _ in spec.layers]
        for slot, layer in weights:
            place = self._globals if layer is None else self._layers[layer]
            place[slot] = dequantize(weights.get(slot, layer))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for place in (self._globals, *self._layers) for array in place.values())

    def forward(self, token_id: int, pos: int, cache: BlockCache, block_ids: NDArray[np.int32]) -> Floats:
        """Compute one token, writing its keys and values to the cache; returns the last hidden state, (D,).

        Values out of float32's range become infinite or NaN and reach the logits, where they are found.
        """
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            x = self._globals[Slot.EMBED][token_id]
            for index, layer in enumerate(self.spec.layers):
                x = self._layer(x, index, layer, pos, cache, block_ids)
            return rms_norm(x, self._globals[Slot.FINAL_NORM], self.spec.norm_eps)

    def logits(self, hidden: Floats) -> Floats:
        """(D,) to (V,)."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            head = Slot.EMBED if self.spec.tied_embeddings else Slot.HEAD
            return matvec(self._globals[head], hidden)

    def _layer(
        self, x: Floats, index: int, layer: LayerSpec, pos: int, cache: BlockCache, block_ids: NDArray[np.int32]
    ) -> Floats:
        weights = self._layers[index]
        normed = rms_norm(x, weights[Slot.ATTN_NORM], self.spec.norm_eps)
        queries, key, value = self._project(normed, weights, layer.attention)
        rope = layer.attention.rope
        cache.write(index, block_ids, pos, rotate(key, pos, rope), value)
        window = layer.attention.window
        start = 0 if window is None else max(0, pos + 1 - window)
        keys, values = cache.read(index, block_ids, start, pos + 1)
        attended = attend(rotate(queries, pos, rope), keys, values, layer.attention.scale)
        x = x + matvec(weights[Slot.O], attended.reshape(-1))
        normed = rms_norm(x, weights[Slot.MLP_NORM], self.spec.norm_eps)
        inner = silu(matvec(weights[Slot.GATE], normed)) * matvec(weights[Slot.UP], normed)
        return x + matvec(weights[Slot.DOWN], inner)

    def _project(self, x: Floats, weights: LayerWeights, attention: AttentionSpec) -> tuple[Floats, Floats, Floats]:
        """Queries (H, E), one key and one value (G, E)."""
        queries, key, value = (matvec(weights[slot], x) for slot in (Slot.Q, Slot.K, Slot.V))
        if attention.qkv_bias:
            queries, key, value = (
                queries + weights[Slot.Q_BIAS],
                key + weights[Slot.K_BIAS],
                value + weights[Slot.V_BIAS],
            )
        queries, key, value = (vector.reshape(-1, attention.head_dim) for vector in (queries, key, value))
        if attention.qk_norm:
            queries = rms_norm(queries, weights[Slot.Q_NORM], self.spec.norm_eps)
            key = rms_norm(key, weights[Slot.K_NORM], self.spec.norm_eps)
        return queries, key, value
