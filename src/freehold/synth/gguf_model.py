"""A synthetic model as a GGUF file, with the keys, names and row order that llama.cpp's converter gives it."""

from collections.abc import Mapping
from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freehold.arch.spec import Slot
from freehold.files.tensors import DType
from freehold.synth.sizes import RopeScaling, SynthConfig, TensorPlan
from freehold.synth.vocabulary import CHAT_TEMPLATE, END_OF_TEXT, SPECIAL_TOKENS, TURN_END, Vocabulary

_GLOBAL_NAMES: Mapping[Slot, str] = {
    Slot.EMBED: "token_embd.weight",
    Slot.FINAL_NORM: "output_norm.weight",
    Slot.HEAD: "output.weight",
}
_LAYER_NAMES: Mapping[Slot, str] = {
    Slot.ATTN_NORM: "attn_norm.weight",
    Slot.Q: "attn_q.weight",
    Slot.K: "attn_k.weight",
    Slot.V: "attn_v.weight",
    Slot.Q_BIAS: "attn_q.bias",
    Slot.K_BIAS: "attn_k.bias",
    Slot.V_BIAS: "attn_v.bias",
    Slot.Q_NORM: "attn_q_norm.weight",
    Slot.K_NORM: "attn_k_norm.weight",
    Slot.O: "attn_output.weight",
    Slot.MLP_NORM: "ffn_norm.weight",
    Slot.GATE: "ffn_gate.weight",
    Slot.UP: "ffn_up.weight",
    Slot.DOWN: "ffn_down.weight",
}
_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_FILE_TYPES = {DType.F32: 0, DType.F16: 1, DType.Q4_0: 2, DType.Q4_1: 3, DType.Q8_0: 7, DType.BF16: 32}
_TOKEN_NORMAL, _TOKEN_CONTROL = 1, 3

ROPE_FACTORS_NAME = "rope_freqs.weight"


def tensor_name(plan: TensorPlan) -> str:
    """Name of a tensor in GGUF files."""
    return _GLOBAL_NAMES[plan.slot] if plan.layer is None else f"blk.{plan.layer}.{_LAYER_NAMES[plan.slot]}"


def stored_dtype(plan: TensorPlan, dtype: DType) -> DType:
    """Vectors stay float32; embedding and head are never coarser than Q8_0, as in the files people run."""
    if len(plan.shape) == 1:
        return DType.F32
    coarse = dtype in (DType.Q4_0, DType.Q4_1)
    return DType.Q8_0 if coarse and plan.slot in (Slot.EMBED, Slot.HEAD) else dtype


def has_interleaved_rows(config: SynthConfig, plan: TensorPlan) -> bool:
    """llama.cpp rotates neighbouring elements in its ``llama`` architecture, so rows of queries and keys are reordered
    (`interleaved`)."""
    return _ARCHITECTURES[config.family] == "llama" and plan.slot in (Slot.Q, Slot.K)


def interleaved(matrix: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """(H*E, D) → the same: in each head, rows 0, E/2, 1, E/2 + 1…"""
    rows, columns = matrix.shape
    halves = matrix.reshape(num_heads, 2, rows // num_heads // 2, columns)
    return halves.transpose(0, 2, 1, 3).reshape(rows, columns)


def metadata(config: SynthConfig, dtype: DType, vocabulary: Vocabulary, seed: int) -> dict[str, Any]:
    """All keys that llama.cpp reads for such a model, tokenizer and chat template included."""
    arch = _ARCHITECTURES[config.family]
    keys: dict[str, Any] = {
        "general.architecture": arch,
        "general.type": "model",
        "general.name": f"synthetic {config.family}, seed {seed}",
        "general.file_type": _FILE_TYPES[dtype],
        "general.quantization_version": 2,
        f"{arch}.block_count": config.num_layers,
        f"{arch}.context_length": config.max_position,
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.intermediate_size,
        f"{arch}.attention.head_count": config.num_heads,
        f"{arch}.attention.head_count_kv": config.num_kv_heads,
        f"{arch}.attention.key_length": config.head_dim,
        f"{arch}.attention.value_length": config.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": float(config.norm_eps),
        f"{arch}.rope.freq_base": float(config.rope_theta),
        f"{arch}.rope.dimension_count": config.head_dim,
        f"{arch}.vocab_size": config.vocab_size,
    }
    if config.sliding_window is not None:
        keys[f"{arch}.attention.sliding_window"] = config.sliding_window
    if config.rope_scaling is not None and config.rope_scaling.rope_type == "linear":
        keys |= {f"{arch}.rope.scaling.type": "linear", f"{arch}.rope.scaling.factor": config.rope_scaling.factor}
    kinds = [_TOKEN_CONTROL] * len(SPECIAL_TOKENS) + [_TOKEN_NORMAL] * (len(vocabulary.tokens) - len(SPECIAL_TOKENS))
    return keys | {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": vocabulary.tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in vocabulary.merges],
        "tokenizer.ggml.bos_token_id": vocabulary.special_id(END_OF_TEXT),
        "tokenizer.ggml.eos_token_id": vocabulary.special_id(TURN_END),
        "tokenizer.ggml.padding_token_id": vocabulary.special_id(TURN_END),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def rope_factors(config: SynthConfig) -> NDArray[np.float32] | None:
    """(E/2,) divisors of the rotary frequencies for Llama 3's scaling, which GGUF files carry as a tensor."""
    scaling = config.rope_scaling
    if scaling is None or scaling.rope_type != "llama3":
        return None
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    return np.array(
        [_llama3_divisor(2 * pi * config.rope_theta**exponent, scaling) for exponent in exponents], np.float32
    )


def _llama3_divisor(wavelength: float, scaling: RopeScaling) -> float:
    """Short waves keep their frequency, long ones are slowed by the whole factor, those between by a mixture."""
    turns = scaling.original_max_position / wavelength  # in the original context
    if turns > scaling.high_freq_factor:
        return 1.0
    if turns < scaling.low_freq_factor:
        return scaling.factor
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return 1.0 / ((1.0 - kept) / scaling.factor + kept)
