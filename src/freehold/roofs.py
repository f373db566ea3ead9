"""How fast a model could run at most on a machine: pure arithmetic over its sizes and the machine's limits.

A step has two parts, and each takes as long as the slower of its reads and its operations:

- **linear layers**: every weight is read once and multiplied with every row, at the peak of the activations' format;
- **attention**: every key and value that some row sees is read once for each request, and each row's products with them
  run at the bf16 peak (float32 where there is none).

Weights count with the bits that the file gives them, keys and values with two bytes unless said otherwise. Norms,
rotations, sampling and the threads' meeting points count nothing: a roof is what no program passes, not a forecast.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from freehold.arch.sizes import KVDtype, kv_layer_token_bytes
from freehold.arch.spec import LayerSpec, ModelSpec
from freehold.limits import Limits

Activations = Literal["int8", "float"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one request computes in a step: tokens at positions `start_pos`, `start_pos` + 1, and so on.

    Attributes:
        num_logits: tokens whose logits are wanted.
    """

    start_pos: int
    num_tokens: int = 1
    num_logits: int = 1


@dataclass(frozen=True, slots=True)
class Roof:
    """The least seconds that a step takes.

    Attributes:
        linear_s: of the linear layers.
        attention_s: of attention.
    """

    linear_s: float
    attention_s: float

    @property
    def step_s(self) -> float:
        """Of both, which follow each other in every layer."""
        return self.linear_s + self.attention_s


@dataclass(frozen=True, slots=True)
class ModelCost:
    """What a step of a model reads and computes.

    Attributes:
        weight_bytes: of all matrices that a step reads; see `freehold.arch.sizes.step_weight_bytes`.
        activations: format in which rows enter linear layers.
    """

    spec: ModelSpec
    weight_bytes: int
    activations: Activations = "int8"
    kv_dtype: KVDtype = "bf16"

    def roof(self, chunks: Iterable[Chunk], limits: Limits) -> Roof:
        """Of one step that computes these chunks, each of another request."""
        chunks = tuple(chunks)
        bandwidth = limits.dram_bytes_per_s
        products = limits.peaks[attention_format(limits)]
        linear_peak = limits.peaks[linear_format(limits, self.activations)]
        linear_s = max(self.weight_bytes / bandwidth, self._linear_operations(chunks) / linear_peak.operations_per_s)
        seen = [(layer, chunk) for layer in self.spec.layers for chunk in chunks]
        kv_bytes = sum(self._kv_bytes(layer, chunk) for layer, chunk in seen)
        operations = sum(_attention_operations(layer, chunk) for layer, chunk in seen)
        return Roof(linear_s, max(kv_bytes / bandwidth, operations / products.operations_per_s))

    def _linear_operations(self, chunks: Iterable[Chunk]) -> int:
        """Two for each weight and row; the head has a row for each logit vector only."""
        num_tokens, num_logits = sum(c.num_tokens for c in chunks), sum(c.num_logits for c in chunks)
        hidden = self.spec.hidden_size
        layers = sum(_linear_parameters(layer, hidden) for layer in self.spec.layers)
        return 2 * (layers * num_tokens + self.spec.vocab_size * hidden * num_logits)

    def _kv_bytes(self, layer: LayerSpec, chunk: Chunk) -> int:
        """Of what the chunk's tokens see in one layer."""
        attention = layer.attention
        end = chunk.start_pos + chunk.num_tokens
        num_seen = end if attention.window is None else min(end, attention.window + chunk.num_tokens - 1)
        return kv_layer_token_bytes(attention, self.kv_dtype) * num_seen


def linear_format(limits: Limits, activations: Activations) -> str:
    """The format of the fastest arithmetic for linear layers, as `Limits.peaks` names it."""
    if activations == "float":
        return attention_format(limits)
    return "int8" if limits.int8 is not None else "float32"


def attention_format(limits: Limits) -> str:
    """Likewise for attention."""
    return "bf16" if limits.bf16 is not None else "float32"


def decode_tokens_per_s(cost: ModelCost, limits: Limits, context: int, batch: int = 1) -> float:
    """Of all requests together, each with `context` tokens before the one that is computed."""
    return batch / cost.roof([Chunk(context)] * batch, limits).step_s


def prefill_tokens_per_s(cost: ModelCost, limits: Limits, num_tokens: int) -> float:
    """Of one prompt that is computed in one step."""
    return num_tokens / cost.roof([Chunk(0, num_tokens)], limits).step_s


def _linear_parameters(layer: LayerSpec, hidden_size: int) -> int:
    """Weights of queries, keys, values, output, gate, up and down."""
    attention = layer.attention
    heads = 2 * attention.num_heads + 2 * attention.num_kv_heads
    return hidden_size * (heads * attention.head_dim + 3 * layer.mlp.intermediate_size)


def _attention_operations(layer: LayerSpec, chunk: Chunk) -> int:
    """A token at position p sees p + 1 keys, or a window of them: a product with each key and one with each value."""
    attention = layer.attention
    first, last = chunk.start_pos + 1, chunk.start_pos + chunk.num_tokens
    num_pairs = (first + last) * chunk.num_tokens // 2
    if attention.window is not None:
        beyond = max(0, last - attention.window)
        inside = min(beyond, chunk.num_tokens)  # tokens that see less than all before them
        num_pairs -= (2 * beyond - inside + 1) * inside // 2
    return 4 * attention.num_heads * attention.head_dim * num_pairs
