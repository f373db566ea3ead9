"""Tiny random models of every family, made by transformers, written as Hugging Face directories and as GGUF files.

GGUF files are written by the `gguf` package with the row order that llama.cpp's converter uses, and quantized weights
are dequantized by it into the transformers model, which so stays the truth for the file.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

VOCAB_SIZE = 259  # no multiple of anything
WINDOW = 24
LENGTH = 150

_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "eager",
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True)
class TinyModel:
    """How to make one model.

    Attributes:
        architecture: ``general.architecture`` of its GGUF form; None if there is none.
        gguf_keys: metadata beyond the sizes, below the architecture's prefix.
    """

    config: type[transformers.PretrainedConfig]
    changes: dict[str, Any] = field(default_factory=dict)
    architecture: str | None = None
    gguf_keys: dict[str, int | float | str] = field(default_factory=dict)


TINY_MODELS = {
    "llama-tied": TinyModel(transformers.LlamaConfig, {"tie_word_embeddings": True}, "llama"),
    "llama-untied": TinyModel(transformers.LlamaConfig, {"num_key_value_heads": 4}, "llama"),
    "llama-llama3-rope": TinyModel(transformers.LlamaConfig, {"rope_parameters": _LLAMA3, "head_dim": 32}, "llama"),
    "llama-linear-rope": TinyModel(
        transformers.LlamaConfig,
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
        "llama",
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "mistral-window": TinyModel(
        transformers.MistralConfig, {"sliding_window": WINDOW}, "llama", {"attention.sliding_window": WINDOW}
    ),
    "qwen2-tied": TinyModel(transformers.Qwen2Config, {"tie_word_embeddings": True}, "qwen2"),
    "qwen2-window": TinyModel(
        transformers.Qwen2Config,
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1, "num_hidden_layers": 3},
    ),
    "qwen3": TinyModel(transformers.Qwen3Config, {"head_dim": 32, "num_key_value_heads": 1}, "qwen3"),
}

GGUF_FORMS = [(name, "F32") for name, model in TINY_MODELS.items() if model.architecture] + [
    ("llama-tied", "Q4_1"),
    ("llama-llama3-rope", "Q4_0"),
    ("mistral-window", "Q8_0"),
    ("qwen2-tied", "BF16"),
    ("qwen3", "F16"),
]


def make_model(name: str) -> transformers.PreTrainedModel:
    """A model whose weights are random and whose distributions are far from uniform; the same at every call."""
    tiny = TINY_MODELS[name]
    model = transformers.AutoModelForCausalLM.from_config(tiny.config(**_SIZES | tiny.changes))
    return randomize(model, seed=len(name))


def randomize(model: transformers.PreTrainedModel, seed: int) -> transformers.PreTrainedModel:
    """Fill a model with random weights at which its distributions are far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("bias"):
                parameter.copy_(0.5 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(1.0 + 0.2 * noise)
            else:
                parameter.copy_(noise * (0.4 if "embed" in name else 1.2 * parameter.shape[1] ** -0.5))
    return model.float().eval()


def token_ids(length: int = LENGTH, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, length).tolist()


def truth(model: transformers.PreTrainedModel, ids: list[int]) -> np.ndarray:
    """Logits after every token: float32 (tokens, V)."""
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].numpy()


def write_gguf(model: transformers.PreTrainedModel, name: str, dtype: str, path: Path) -> None:
    """Write a model as GGUF with its matrices in a storage type, and put the stored values back into the model."""
    tiny, config = TINY_MODELS[name], model.config
    assert tiny.architecture is not None
    writer = gguf.GGUFWriter(path, tiny.architecture)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if (head_dim := getattr(config, "head_dim", None)) is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    for key, value in tiny.gguf_keys.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"{tiny.architecture}.{key}", value)
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(config.rope_parameters, head_dim))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[tiny.architecture.upper()], config.num_hidden_layers)
    state = model.state_dict()
    for hf_name, parameter in state.items():
        if hf_name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stem, suffix = hf_name.rsplit(".", 1)
        kind = gguf.GGMLQuantizationType[dtype if parameter.ndim == 2 else "F32"]
        stored = gguf.quantize(parameter.numpy(), kind)
        parameter.copy_(torch.from_numpy(np.array(gguf.dequantize(stored, kind))).reshape(parameter.shape))
        if tiny.architecture == "llama" and ("q_proj" in stem or "k_proj" in stem):
            heads = config.num_attention_heads if "q_proj" in stem else config.num_key_value_heads
            stored = stored.reshape(heads, 2, -1, stored.shape[1]).swapaxes(1, 2).reshape(stored.shape)
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", np.ascontiguousarray(stored), raw_dtype=kind)
    model.load_state_dict(state)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _llama3_factors(rope: dict[str, float], head_dim: int) -> np.ndarray:
    """What the converter stores: how much slower each pair turns."""
    config = transformers.LlamaConfig(
        head_dim=head_dim, max_position_embeddings=512, rope_parameters=dict(rope), num_attention_heads=4
    )
    scaled = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config).inv_freq.numpy()
    plain = rope["rope_theta"] ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    return (plain / scaled).astype(np.float32)
