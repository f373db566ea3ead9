"""Qwen3, dense: queries and keys are normalized head by head; heads have a size of their own."""

from freehold.arch.dense import (
    GGUF_GLOBAL_NAMES,
    GGUF_LAYER_NAMES,
    HF_GLOBAL_NAMES,
    HF_LAYER_NAMES,
    make_rules,
    make_spec,
    read_gguf_sizes,
    read_gguf_window,
    read_hf_sizes,
)
from freehold.arch.keys import Keys
from freehold.arch.qwen2 import read_hf_windows
from freehold.arch.rope import read_gguf_rope, read_hf_rope
from freehold.arch.rules import GgufFacts, Reading

FAMILY = "qwen3"


def read_hf_qwen3(keys: Keys) -> Reading:
    """``model_type`` qwen3."""
    keys.require("attention_bias", False, why="biases of the attention's output")
    sizes = read_hf_sizes(keys, num_kv_heads=32, head_dim=128)
    spec = make_spec(
        sizes,
        family=FAMILY,
        rope=read_hf_rope(keys, sizes.head_dim),
        windows=read_hf_windows(keys, sizes.num_layers),
        qk_norm=True,
    )
    return spec, make_rules(spec, HF_GLOBAL_NAMES, HF_LAYER_NAMES)


def read_gguf_qwen3(keys: Keys, facts: GgufFacts) -> Reading:
    """``general.architecture`` qwen3."""
    sizes = read_gguf_sizes(keys, vocab_size=facts.vocab_size, tied_embeddings=facts.tied_embeddings)
    spec = make_spec(
        sizes,
        family=FAMILY,
        rope=read_gguf_rope(keys, sizes.head_dim, facts.rope_factors),
        windows=[read_gguf_window(keys)] * sizes.num_layers,
        qk_norm=True,
    )
    return spec, make_rules(spec, GGUF_GLOBAL_NAMES, GGUF_LAYER_NAMES)
