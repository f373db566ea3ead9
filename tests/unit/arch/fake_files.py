"""Models in memory: metadata, and tensors whose shapes are right but whose bytes are only counted."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from freehold.files.tensors import DType, Tensor


@dataclass
class FakeFiles:
    format: str
    metadata: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


def tensor(name: str, shape: tuple[int, ...], values: np.ndarray | None = None) -> Tensor:
    """A float32 tensor; zeros if no values are given."""
    values = np.zeros(shape, dtype=np.float32) if values is None else values.astype(np.float32)
    assert values.size == prod(shape)
    return Tensor(name=name, dtype=DType.F32, shape=shape, data=values.reshape(-1).view(np.uint8))


def as_table(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    return {name: tensor(name, shape) for name, shape in shapes.items()}


HF_BASE = {
    "architectures": ["SomethingForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 50,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
HF_OWN = {
    "llama": {"attention_bias": False, "mlp_bias": False, "rope_scaling": None, "pretraining_tp": 1},
    "mistral": {"sliding_window": 16},
    "qwen2": {"use_sliding_window": False, "sliding_window": 16, "max_window_layers": 1},
    "qwen3": {"attention_bias": False, "head_dim": 16, "use_sliding_window": False},
}
GGUF_BASE = {
    "block_count": 2,
    "context_length": 128,
    "embedding_length": 32,
    "feed_forward_length": 48,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
}


def hf_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes as Hugging Face stores them, written down apart from the code under test."""
    d, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    e = config.get("head_dim") or d // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * e, config["num_key_value_heads"] * e
    shapes = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,)}
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (v, d)
    for i in range(config["num_hidden_layers"]):
        at, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        shapes |= {
            f"model.layers.{i}.input_layernorm.weight": (d,),
            f"model.layers.{i}.post_attention_layernorm.weight": (d,),
            f"{at}.q_proj.weight": (q, d),
            f"{at}.k_proj.weight": (kv, d),
            f"{at}.v_proj.weight": (kv, d),
            f"{at}.o_proj.weight": (d, q),
            f"{mlp}.gate_proj.weight": (f, d),
            f"{mlp}.up_proj.weight": (f, d),
            f"{mlp}.down_proj.weight": (d, f),
        }
        if config["model_type"] == "qwen2":
            shapes |= {f"{at}.q_proj.bias": (q,), f"{at}.k_proj.bias": (kv,), f"{at}.v_proj.bias": (kv,)}
        if config["model_type"] == "qwen3":
            shapes |= {f"{at}.q_norm.weight": (e,), f"{at}.k_norm.weight": (e,)}
    return shapes


def gguf_shapes(architecture: str, *, head_dim: int = 8, tied: bool = False) -> dict[str, tuple[int, ...]]:
    """As `hf_shapes`, for the sizes of `GGUF_BASE`."""
    d, f, v, q, kv = 32, 48, 50, 4 * head_dim, 2 * head_dim
    shapes = {"token_embd.weight": (v, d), "output_norm.weight": (d,)}
    if not tied:
        shapes["output.weight"] = (v, d)
    for i in range(2):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (d,),
            f"blk.{i}.ffn_norm.weight": (d,),
            f"blk.{i}.attn_q.weight": (q, d),
            f"blk.{i}.attn_k.weight": (kv, d),
            f"blk.{i}.attn_v.weight": (kv, d),
            f"blk.{i}.attn_output.weight": (d, q),
            f"blk.{i}.ffn_gate.weight": (f, d),
            f"blk.{i}.ffn_up.weight": (f, d),
            f"blk.{i}.ffn_down.weight": (d, f),
        }
        if architecture == "qwen2":
            shapes |= {f"blk.{i}.attn_q.bias": (q,), f"blk.{i}.attn_k.bias": (kv,), f"blk.{i}.attn_v.bias": (kv,)}
        if architecture == "qwen3":
            shapes |= {f"blk.{i}.attn_q_norm.weight": (head_dim,), f"blk.{i}.attn_k_norm.weight": (head_dim,)}
    return shapes


def hf_model(model_type: str, **changes: Any) -> FakeFiles:
    """A complete model; `changes` override or add keys of config.json."""
    config = HF_BASE | HF_OWN[model_type] | {"model_type": model_type} | changes
    return FakeFiles("hf", config, as_table(hf_shapes(config)))


def gguf_model(architecture: str, *, tied: bool = False, **changes: Any) -> FakeFiles:
    """A complete model; `changes` override or add keys below the architecture's prefix, dots spelled ``__``."""
    own = GGUF_BASE | {key.replace("__", "."): value for key, value in changes.items()}
    head_dim = own.get("attention.key_length", 8)
    metadata = {f"{architecture}.{key}": value for key, value in own.items()}
    metadata |= {"general.architecture": architecture, "general.name": "Tiny", "tokenizer.ggml.model": "gpt2"}
    return FakeFiles("gguf", metadata, as_table(gguf_shapes(architecture, head_dim=head_dim, tied=tied)))
