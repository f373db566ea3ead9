"""A synthetic model as a Hugging Face directory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freehold.arch.spec import Slot
from freehold.files.tensors import DType
from freehold.synth.sizes import SynthConfig, TensorPlan
from freehold.synth.vocabulary import CHAT_TEMPLATE, END_OF_TEXT, SPECIAL_TOKENS, TURN_END, Vocabulary

_GLOBAL_NAMES: Mapping[Slot, str] = {
    Slot.EMBED: "model.embed_tokens.weight",
    Slot.FINAL_NORM: "model.norm.weight",
    Slot.HEAD: "lm_head.weight",
}
_LAYER_NAMES: Mapping[Slot, str] = {
    Slot.ATTN_NORM: "input_layernorm.weight",
    Slot.Q: "self_attn.q_proj.weight",
    Slot.K: "self_attn.k_proj.weight",
    Slot.V: "self_attn.v_proj.weight",
    Slot.Q_BIAS: "self_attn.q_proj.bias",
    Slot.K_BIAS: "self_attn.k_proj.bias",
    Slot.V_BIAS: "self_attn.v_proj.bias",
    Slot.Q_NORM: "self_attn.q_norm.weight",
    Slot.K_NORM: "self_attn.k_norm.weight",
    Slot.O: "self_attn.o_proj.weight",
    Slot.MLP_NORM: "post_attention_layernorm.weight",
    Slot.GATE: "mlp.gate_proj.weight",
    Slot.UP: "mlp.up_proj.weight",
    Slot.DOWN: "mlp.down_proj.weight",
}
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_TORCH_NAMES = {DType.F32: "float32", DType.F16: "float16", DType.BF16: "bfloat16"}


def tensor_name(plan: TensorPlan) -> str:
    """Name of a tensor in Hugging Face checkpoints."""
    if plan.layer is None:
        return _GLOBAL_NAMES[plan.slot]
    return f"model.layers.{plan.layer}.{_LAYER_NAMES[plan.slot]}"


def write_side_files(directory: Path, config: SynthConfig, dtype: DType, vocabulary: Vocabulary) -> None:
    """Write configuration, tokenizer and chat template as transformers reads them."""
    eos = vocabulary.special_id(TURN_END)
    bos = vocabulary.special_id(END_OF_TEXT)
    files: dict[str, dict[str, Any]] = {
        "config.json": _config(config, dtype, bos, eos),
        "generation_config.json": {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": eos},
        "tokenizer.json": _tokenizer(vocabulary),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": END_OF_TEXT,
            "eos_token": TURN_END,
            "pad_token": TURN_END,
            "model_max_length": config.max_position,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _config(config: SynthConfig, dtype: DType, bos: int, eos: int) -> dict[str, Any]:
    written: dict[str, Any] = {
        "architectures": [_CLASSES[config.family]],
        "model_type": config.family,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _rope_scaling(config),
        "tie_word_embeddings": config.tied_embeddings,
        "attention_dropout": 0.0,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "torch_dtype": _TORCH_NAMES[dtype],
        "use_cache": True,
    }
    if config.family in ("llama", "qwen3"):
        written["attention_bias"] = False
    if config.family == "mistral":
        written["sliding_window"] = config.sliding_window
    if config.family in ("qwen2", "qwen3"):
        written["use_sliding_window"] = False
    return written


def _rope_scaling(config: SynthConfig) -> dict[str, Any] | None:
    scaling = config.rope_scaling
    if scaling is None:
        return None
    written: dict[str, Any] = {"rope_type": scaling.rope_type, "factor": scaling.factor}
    if scaling.rope_type == "llama3":
        written |= {
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position,
        }
    return written


def _tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """The format of the `tokenizers` library."""
    added = [
        {
            "id": vocabulary.special_id(token),
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in SPECIAL_TOKENS
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(vocabulary.tokens)},
            "merges": [list(pair) for pair in vocabulary.merges],
        },
    }
