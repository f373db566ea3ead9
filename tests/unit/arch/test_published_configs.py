"""Configurations as published models have them, with all their odd keys: each is read, none asks for an exception."""

import numpy as np
import pytest
from fake_files import FakeFiles, hf_shapes

from freehold.arch import read_model
from freehold.files.tensors import DType, Tensor

COMMON = {
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "bos_token_id": 1,
}


def config(model_type: str, architecture: str, sizes: tuple[int, int, int, int, int, int], **others) -> dict:
    names = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads vocab_size"
    return (
        COMMON
        | {"model_type": model_type, "architectures": [architecture]}
        | dict(zip(names.split(), sizes, strict=True))
        | others
    )


SMOLLM2_135M = config(
    "llama",
    "LlamaForCausalLM",
    (576, 1536, 30, 9, 3, 49152),
    attention_bias=False,
    eos_token_id=2,
    pad_token_id=2,
    is_llama_config=True,
    max_position_embeddings=8192,
    mlp_bias=False,
    pretraining_tp=1,
    rms_norm_eps=1e-05,
    rope_interleaved=False,
    rope_scaling=None,
    rope_theta=100000,
    tie_word_embeddings=True,
    **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}},
)
LLAMA_32_1B = config(
    "llama",
    "LlamaForCausalLM",
    (2048, 8192, 16, 32, 8, 128256),
    attention_bias=False,
    eos_token_id=[128001, 128008, 128009],
    head_dim=64,
    max_position_embeddings=131072,
    mlp_bias=False,
    pretraining_tp=1,
    rms_norm_eps=1e-05,
    rope_scaling={
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    rope_theta=500000.0,
    tie_word_embeddings=True,
)
LLAMA_2_7B = config(
    "llama",
    "LlamaForCausalLM",
    (4096, 11008, 32, 32, 32, 32000),
    _name_or_path="meta-llama/Llama-2-7b-hf",
    eos_token_id=2,
    max_position_embeddings=4096,
    pretraining_tp=1,
    rms_norm_eps=1e-05,
    rope_scaling=None,
    tie_word_embeddings=False,
)
MISTRAL_7B = config(
    "mistral",
    "MistralForCausalLM",
    (4096, 14336, 32, 32, 8, 32000),
    eos_token_id=2,
    max_position_embeddings=32768,
    rms_norm_eps=1e-05,
    rope_theta=10000.0,
    sliding_window=4096,
    tie_word_embeddings=False,
)
QWEN25_05B = config(
    "qwen2",
    "Qwen2ForCausalLM",
    (896, 4864, 24, 14, 2, 151936),
    eos_token_id=151643,
    max_position_embeddings=32768,
    max_window_layers=24,
    rms_norm_eps=1e-06,
    rope_theta=1000000.0,
    sliding_window=32768,
    tie_word_embeddings=True,
    use_mrope=False,
    use_sliding_window=False,
)
QWEN3_06B = config(
    "qwen3",
    "Qwen3ForCausalLM",
    (1024, 3072, 28, 16, 8, 151936),
    attention_bias=False,
    eos_token_id=151645,
    head_dim=128,
    max_position_embeddings=40960,
    max_window_layers=28,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000000,
    sliding_window=None,
    tie_word_embeddings=True,
    use_sliding_window=False,
)


@pytest.mark.parametrize(
    ("published", "head_dim", "window"),
    [
        (SMOLLM2_135M, 64, None),
        (LLAMA_32_1B, 64, None),
        (LLAMA_2_7B, 128, None),
        (MISTRAL_7B, 128, 4096),
        (MISTRAL_7B | {"sliding_window": None}, 128, None),
        (QWEN25_05B, 64, None),
        (QWEN3_06B, 128, None),
    ],
)
def test_published_configurations(published, head_dim, window) -> None:
    nothing = np.zeros(0, dtype=np.uint8)
    tensors = {name: Tensor(name, DType.BF16, shape, nothing) for name, shape in hf_shapes(published).items()}
    spec, _ = read_model(FakeFiles("hf", published, tensors))
    assert len(spec.layers) == published["num_hidden_layers"]
    assert {(layer.attention.head_dim, layer.attention.window) for layer in spec.layers} == {(head_dim, window)}
    assert spec.max_position == published["max_position_embeddings"]
    assert spec.tied_embeddings == published["tie_word_embeddings"]
