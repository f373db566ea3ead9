"""RoPE frequencies against transformers' own functions, in every spelling; unknown types refused by name."""

import numpy as np
import pytest
import torch
from fake_files import gguf_model, hf_model, tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from freehold.arch import read_model
from freehold.errors import ModelFileError, UnsupportedModelError

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"factor": 2.5}


def inv_freq(files) -> np.ndarray:
    rope = read_model(files)[0].layers[1].attention.rope
    assert rope.attention_factor == 1.0
    return np.array(rope.inv_freq, dtype=np.float32)


def transformers_inv_freq(head_dim: int, parameters: dict) -> np.ndarray:
    config = LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, max_position_embeddings=512, rope_parameters=parameters
    )
    with torch.no_grad():
        return LlamaRotaryEmbedding(config).inv_freq.numpy()


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal up to the last bits of float32."""
    np.testing.assert_allclose(got, expected, rtol=3e-7, atol=0)


@pytest.mark.parametrize("head_dim", [8, 64, 128])
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize(("kind", "scaling"), [("default", {}), ("linear", LINEAR), ("llama3", LLAMA3)])
def test_frequencies_equal_transformers_in_every_spelling(head_dim, theta, kind, scaling) -> None:
    expected = transformers_inv_freq(head_dim, {"rope_type": kind, "rope_theta": theta} | scaling)
    spellings = [
        {"rope_theta": theta, "rope_scaling": {"rope_type": kind} | scaling},
        {"rope_theta": theta, "rope_scaling": {"type": kind} | scaling},
        {"rope_theta": theta, "rope_scaling": {"type": kind, "rope_type": kind} | scaling},
        {"rope_theta": None, "rope_parameters": {"rope_type": kind, "rope_theta": theta} | scaling},
        {"rope_theta": theta, "rope_parameters": {"rope_type": kind} | scaling},
    ]
    if kind == "default":
        spellings.append({"rope_theta": theta, "rope_scaling": None})
    for spelling in spellings:
        assert_close(inv_freq(hf_model("llama", head_dim=head_dim, **spelling)), expected)


def test_llama3_scaling_touches_all_three_bands() -> None:
    plain = inv_freq(hf_model("llama", head_dim=64))
    scaled = inv_freq(hf_model("llama", head_dim=64, rope_scaling={"rope_type": "llama3"} | LLAMA3))
    ratio = plain / scaled
    assert (ratio == 1.0).any()
    assert np.isclose(ratio, 8.0).any()
    assert ((ratio > 1.01) & (ratio < 7.9)).any()


@pytest.mark.parametrize("kind", ["yarn", "longrope", "dynamic", "su", "mrope", "proportional", "LLAMA3", ""])
@pytest.mark.parametrize("spelling", ["rope_type", "type"])
def test_unknown_types_are_refused_by_name(kind, spelling) -> None:
    with pytest.raises(UnsupportedModelError, match=f"RoPE type '{kind}' is not supported.*llama3"):
        read_model(hf_model("llama", rope_scaling={spelling: kind, "factor": 2.0}))


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"factor": 2.0}, "rope_type"),
        ({"rope_type": "linear", "type": "llama3", "factor": 2.0}, "disagree"),
        ({"rope_type": "linear"}, "'factor' is missing"),
        ({"rope_type": "linear", "factor": 0}, "'factor'"),
        ({"rope_type": "default", "factor": 2.0}, "'factor' = 2.0"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 32}, "'beta_fast' = 32"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_type": "llama3"} | LLAMA3 | {"high_freq_factor": 1.0}, "high_freq_factor"),
        ({"full_attention": {"rope_type": "default"}}, "rope_type"),
        ("linear", "expected an object"),
    ],
)
def test_incomplete_contradictory_or_unread_scalings_are_refused(scaling, message) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        with pytest.raises((ModelFileError, UnsupportedModelError), match=message):
            read_model(hf_model("llama", **{key: scaling}))


@pytest.mark.parametrize("key", ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"])
def test_llama3_needs_all_its_numbers(key) -> None:
    scaling = {"rope_type": "llama3"} | {name: value for name, value in LLAMA3.items() if name != key}
    with pytest.raises(ModelFileError, match=f"'{key}' is missing"):
        read_model(hf_model("llama", rope_scaling=scaling))


def test_two_scalings_are_refused() -> None:
    section = {"rope_type": "default"}
    with pytest.raises(ModelFileError, match="both"):
        read_model(hf_model("llama", rope_scaling=section, rope_parameters=section))


def test_gguf_spellings() -> None:
    plain = transformers_inv_freq(8, {"rope_type": "default", "rope_theta": 10000.0})
    linear = transformers_inv_freq(8, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5})
    assert_close(inv_freq(gguf_model("llama")), plain)
    assert_close(inv_freq(gguf_model("llama", rope__scaling__type="none", rope__scaling__factor=2.5)), plain)
    assert_close(inv_freq(gguf_model("llama", rope__scaling__type="linear", rope__scaling__factor=2.5)), linear)
    assert_close(inv_freq(gguf_model("llama", rope__scale_linear=2.5)), linear)


def test_gguf_factors_tensor_divides() -> None:
    files = gguf_model("llama")
    factors = np.array([1.0, 2.0, 4.0, 8.0])
    files.tensors["rope_freqs.weight"] = tensor("rope_freqs.weight", (4,), factors)
    assert_close(inv_freq(files), inv_freq(gguf_model("llama")) / factors)
    for bad in ([1.0, 2.0, 4.0], [1.0, 2.0, 0.0, 8.0], [1.0, np.inf, 1.0, 1.0]):
        files.tensors["rope_freqs.weight"] = tensor("rope_freqs.weight", (len(bad),), np.array(bad))
        with pytest.raises(ModelFileError, match=r"rope_freqs\.weight"):
            read_model(files)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, "'yarn' is not supported"),
        ({"rope__scaling__type": "longrope"}, "'longrope' is not supported"),
        ({"rope__scaling__type": "linear"}, "'rope.scaling.factor' is missing"),
        ({"rope__scaling__factor": 4.0}, "without 'rope.scaling.type'"),
        ({"rope__scaling__attn_factor": 1.2}, "attn_factor"),
    ],
)
def test_gguf_scalings_that_are_not_supported(changes, message) -> None:
    with pytest.raises((ModelFileError, UnsupportedModelError), match=message):
        read_model(gguf_model("llama", **changes))
