"""Qwen2 and Qwen2.5: biases on queries, keys and values; a sliding window on the upper layers if it is switched on."""

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
from freehold.arch.rope import read_gguf_rope, read_hf_rope
from freehold.arch.rules import GgufFacts, Reading
from freehold.errors import ModelFileError, UnsupportedModelError, shown

FAMILY = "qwen2"


def read_hf_qwen2(keys: Keys) -> Reading:
    """``model_type`` qwen2."""
    keys.require("use_mrope", False, why="positions in several dimensions")
    sizes = read_hf_sizes(keys, num_kv_heads=32, head_dim=None)
    spec = make_spec(
        sizes,
        family=FAMILY,
        rope=read_hf_rope(keys, sizes.head_dim),
        windows=read_hf_windows(keys, sizes.num_layers),
        qkv_bias=True,
    )
    return spec, make_rules(spec, HF_GLOBAL_NAMES, HF_LAYER_NAMES)


def read_gguf_qwen2(keys: Keys, facts: GgufFacts) -> Reading:
    """``general.architecture`` qwen2."""
    sizes = read_gguf_sizes(keys, vocab_size=facts.vocab_size, tied_embeddings=facts.tied_embeddings)
    spec = make_spec(
        sizes,
        family=FAMILY,
        rope=read_gguf_rope(keys, sizes.head_dim, facts.rope_factors),
        windows=[read_gguf_window(keys)] * sizes.num_layers,
        qkv_bias=True,
    )
    return spec, make_rules(spec, GGUF_GLOBAL_NAMES, GGUF_LAYER_NAMES)


def read_hf_windows(keys: Keys, num_layers: int) -> list[int | None]:
    """Each layer's window. ``use_sliding_window`` rules: without it, ``sliding_window`` means nothing. With it,
    ``layer_types`` names the layers that slide, or else all from ``max_window_layers`` on do."""
    if not keys.flag_or("use_sliding_window", False):
        keys.ignore(("sliding_window", "max_window_layers"))
        for kind in _layer_types(keys, num_layers) or ():
            if kind == "sliding_attention":
                raise ModelFileError(f"{keys.source}: 'layer_types' has {shown(kind)}, but 'use_sliding_window' is off")
        return [None] * num_layers
    window = keys.size("sliding_window")
    first = keys.size("max_window_layers", minimum=0)
    kinds = _layer_types(keys, num_layers)
    if kinds is None:
        return [window if layer >= first else None for layer in range(num_layers)]
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _layer_types(keys: Keys, num_layers: int) -> list[str] | None:
    if not keys.has("layer_types"):
        return None
    kinds = list(keys.texts("layer_types"))
    if len(kinds) != num_layers:
        raise ModelFileError(f"{keys.source}: 'layer_types' has {len(kinds)} entries for {num_layers} layers")
    for kind in kinds:
        if kind not in {"full_attention", "sliding_attention"}:
            raise UnsupportedModelError(f"{keys.source}: 'layer_types' has {shown(kind)}, which is not supported")
    return kinds
