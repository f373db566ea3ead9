"""Llama and its relatives: Llama 1 to 3.3, SmolLM2, and Mistral, whose only difference is a sliding window."""

from freehold.arch.dense import (
    GGUF_GLOBAL_NAMES,
    GGUF_LAYER_NAMES,
    HF_GLOBAL_NAMES,
    HF_LAYER_NAMES,
    Sizes,
    make_rules,
    make_spec,
    read_gguf_sizes,
    read_gguf_window,
    read_hf_sizes,
)
from freehold.arch.keys import Keys
from freehold.arch.rope import read_gguf_rope, read_hf_rope
from freehold.arch.rules import GgufFacts, Reading, pairs_to_halves
from freehold.arch.spec import Slot
from freehold.errors import ModelFileError

FAMILY = "llama"


def read_hf_llama(keys: Keys) -> Reading:
    """``model_type`` llama."""
    keys.require("attention_bias", False, why="biases of the attention's output")
    keys.require("mlp_bias", False, why="biases in the MLP")
    keys.require("rope_interleaved", False, why="queries and keys must be stored for rotation in halves")
    return _from_hf(keys, read_hf_sizes(keys, num_kv_heads=None, head_dim=None), window=None)


def read_hf_mistral(keys: Keys) -> Reading:
    """``model_type`` mistral."""
    if not keys.mentions("sliding_window"):
        raise ModelFileError(f"{keys.source}: the key 'sliding_window' is missing; null means no window")
    window = keys.size("sliding_window") if keys.has("sliding_window") else None
    return _from_hf(keys, read_hf_sizes(keys, num_kv_heads=8, head_dim=None), window=window)


def _from_hf(keys: Keys, sizes: Sizes, *, window: int | None) -> Reading:
    rope = read_hf_rope(keys, sizes.head_dim)
    spec = make_spec(sizes, family=FAMILY, rope=rope, windows=[window] * sizes.num_layers)
    return spec, make_rules(spec, HF_GLOBAL_NAMES, HF_LAYER_NAMES)


def read_gguf_llama(keys: Keys, facts: GgufFacts) -> Reading:
    """``general.architecture`` llama, whose query and key rows lie in adjacent pairs."""
    sizes = read_gguf_sizes(keys, vocab_size=facts.vocab_size, tied_embeddings=facts.tied_embeddings)
    rope = read_gguf_rope(keys, sizes.head_dim, facts.rope_factors)
    spec = make_spec(sizes, family=FAMILY, rope=rope, windows=[read_gguf_window(keys)] * sizes.num_layers)
    row_orders = {Slot.Q: pairs_to_halves(sizes.num_heads), Slot.K: pairs_to_halves(sizes.num_kv_heads)}
    return spec, make_rules(spec, GGUF_GLOBAL_NAMES, GGUF_LAYER_NAMES, row_orders)
