"""What a synthetic model looks like, and which tensors that makes."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from freehold.arch.spec import Slot
from freehold.errors import ConfigError

Family = Literal["llama", "mistral", "qwen2", "qwen3"]

MIN_VOCAB_SIZE = 320
_MATRIX_MULTIPLE = 32  # elements in a block of the quantized types that can be written


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Scaling of rotary frequencies as Llama 3 has it (``llama3``), or all by one factor (``linear``).

    Attributes:
        low_freq_factor, high_freq_factor, original_max_position: of ``llama3`` alone.
    """

    rope_type: Literal["llama3", "linear"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthConfig:
    """Sizes of a decoder.

    Attributes:
        family: what it imitates. ``mistral`` is a llama with a sliding window; ``qwen2`` has biases on queries, keys
            and values; ``qwen3`` has RMS norms on the heads of queries and keys.
        vocab_size: rows of the embedding; all of them are tokens of the made-up tokenizer.
        max_position: tokens of context that the files claim.
        sliding_window: keys that a query sees, itself included; for ``mistral`` alone.
    """

    family: Family
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int = 4096
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    tied_embeddings: bool = True
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        """Refuse sizes that no model can have.

        Raises:
            ConfigError: names the field.
        """
        counts = ("hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim")
        for field in (*counts, "max_position"):
            if getattr(self, field) < 1:
                raise ConfigError(f"{field} is {getattr(self, field)}; it must be at least 1")
        for field in ("hidden_size", "intermediate_size"):
            if getattr(self, field) % _MATRIX_MULTIPLE:
                raise ConfigError(f"{field} is {getattr(self, field)}; it must be a multiple of {_MATRIX_MULTIPLE}")
        if self.head_dim % 2 or self.num_heads * self.head_dim % _MATRIX_MULTIPLE:
            raise ConfigError(
                f"head_dim is {self.head_dim}; it must be even, and with num_heads a multiple of {_MATRIX_MULTIPLE}"
            )
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(f"num_heads is {self.num_heads}; it must be a multiple of num_kv_heads")
        if self.vocab_size < MIN_VOCAB_SIZE:
            raise ConfigError(f"vocab_size is {self.vocab_size}; it must be at least {MIN_VOCAB_SIZE}")
        if self.sliding_window is not None and (self.family != "mistral" or self.sliding_window < 1):
            raise ConfigError(f"sliding_window is {self.sliding_window}; only mistral has one, of at least 1")
        if not self.rope_theta > 0 or not self.norm_eps > 0:
            raise ConfigError(f"rope_theta is {self.rope_theta} and norm_eps {self.norm_eps}; both must be above 0")

    @property
    def num_parameters(self) -> int:
        """Weights in all tensors; a tied head is counted once."""
        return sum(prod(tensor.shape) for tensor in tensor_plans(self))


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor in Freehold's terms; `layer` is None for those that occur once."""

    slot: Slot
    layer: int | None
    shape: tuple[int, ...]


def tensor_plans(config: SynthConfig) -> Iterator[TensorPlan]:
    """All tensors of a model, in the order in which they are written."""
    hidden, mlp = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    per_layer: dict[Slot, tuple[int, ...]] = {
        Slot.ATTN_NORM: (hidden,),
        Slot.Q: (queries, hidden),
        Slot.K: (keys, hidden),
        Slot.V: (keys, hidden),
    }
    if config.family == "qwen2":
        per_layer |= {Slot.Q_BIAS: (queries,), Slot.K_BIAS: (keys,), Slot.V_BIAS: (keys,)}
    if config.family == "qwen3":
        per_layer |= {Slot.Q_NORM: (config.head_dim,), Slot.K_NORM: (config.head_dim,)}
    per_layer |= {
        Slot.O: (hidden, queries),
        Slot.MLP_NORM: (hidden,),
        Slot.GATE: (mlp, hidden),
        Slot.UP: (mlp, hidden),
        Slot.DOWN: (hidden, mlp),
    }
    yield TensorPlan(Slot.EMBED, None, (config.vocab_size, hidden))
    for layer in range(config.num_layers):
        for slot, shape in per_layer.items():
            yield TensorPlan(slot, layer, shape)
    yield TensorPlan(Slot.FINAL_NORM, None, (hidden,))
    if not config.tied_embeddings:
        yield TensorPlan(Slot.HEAD, None, (config.vocab_size, hidden))
