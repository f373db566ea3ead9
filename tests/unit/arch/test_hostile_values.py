"""Whatever value a configuration gives to whichever key: a model, or one sentence. Never another exception."""

import warnings
from typing import Any

import numpy as np
import pytest
from fake_files import gguf_model, hf_model

from freehold.arch import read_model
from freehold.arch.load import GGUF_READERS, HF_READERS
from freehold.errors import UserError

NUMBERS: list[Any] = [
    *(10**400, -(10**400), 10**4299, 10**5000, 2**63, 2**31 - 1, 2**31 - 2, 0, -1, True),
    *(float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, 1e-300),
]
OTHERS: list[Any] = ["", "\ud800", "\x1b[31m", "x" * 10**5, [], [10**400], ["\ud800"], {}, {"type": 10**400}]
ARRAYS: list[Any] = [np.arange(3), np.zeros(0), np.array([True, False])]
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 2.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
]
GGUF_OPTIONAL = [
    *("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear", "rope.dimension_count", "vocab_size"),
    *("attention.key_length", "attention.value_length", "attention.sliding_window", "expert_count"),
    *("expert_used_count", "use_parallel_residual", "tensor_data_layout"),
]


def read(files: Any) -> bool:
    """Read a model; was it refused? A refusal is one short sentence."""
    refusal = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_model(files)
    except UserError as error:
        refusal = str(error)
    assert len(refusal) < 1000, refusal[:2000]
    return refusal != ""


@pytest.mark.parametrize("family", HF_READERS)
def test_config_json(family: str) -> None:
    refused = 0
    for key in [*hf_model(family).metadata, "head_dim", "layer_types", "quantization_config", "eos_token_id"]:
        for value in NUMBERS + OTHERS:
            files = hf_model(family)
            files.metadata[key] = value
            refused += read(files)
    assert refused > 100


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
def test_rope_scaling(scaling: dict[str, Any]) -> None:
    assert not read(hf_model("llama", rope_scaling=scaling))
    for key in [*scaling, "rope_theta", "partial_rotary_factor", "type", "beta_fast"]:
        refused = sum(read(hf_model("llama", rope_scaling={**scaling, key: value})) for value in NUMBERS + OTHERS)
        assert refused > 10, key


@pytest.mark.parametrize("family", GGUF_READERS)
def test_gguf_metadata(family: str) -> None:
    prefix = f"{family}."
    keys = {*gguf_model(family).metadata, *(prefix + key for key in GGUF_OPTIONAL), "general.type"}
    refused = 0
    for key in keys:
        for value in NUMBERS + OTHERS + ARRAYS:
            files = gguf_model(family)
            files.metadata[key] = value
            refused += read(files)
    assert refused > 100
