"""Synthetic checkpoints: one seed, two formats, the same model after reading."""

import dataclasses

import numpy as np
import pytest
from driver import Driver
from kinds import REFERENCE

from freehold.arch import read_model
from freehold.files.model import open_model
from freehold.files.quants import dequantize
from freehold.files.tensors import DType
from freehold.synth import SynthConfig, write_checkpoint
from freehold.synth.sizes import RopeScaling

BASE = SynthConfig(
    family="llama",
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=400,
    max_position=256,
    rope_theta=5000.0,
)
CONFIGS = {
    "llama": BASE,
    "llama-untied-wide-heads": dataclasses.replace(BASE, tied_embeddings=False, head_dim=32),
    "llama-linear": dataclasses.replace(BASE, rope_scaling=RopeScaling("linear", factor=4.0)),
    "llama-llama3": dataclasses.replace(BASE, rope_scaling=RopeScaling("llama3", factor=8.0, original_max_position=64)),
    "mistral": dataclasses.replace(BASE, family="mistral", sliding_window=20),
    "qwen2": dataclasses.replace(BASE, family="qwen2"),
    "qwen3": dataclasses.replace(BASE, family="qwen3", tied_embeddings=False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_both_formats_are_one_model(name, tmp_path, open_kind) -> None:
    specs, tensors, logits = [], [], []
    for form, path in (("hf", tmp_path / "hf"), ("gguf", tmp_path / "model.gguf")):
        write_checkpoint(CONFIGS[name], path, format=form, dtype=DType.F32, seed=3)
        with open_model(path) as files:
            spec, weights = read_model(files)
            tensors.append({place: dequantize(weights.get(*place)) for place in weights})
        specs.append(spec)
        logits.append(Driver(open_kind(path, REFERENCE[0])).forced(list(range(300, 364)), range(4)))
    hf, gguf = specs
    frequencies = [spec.layers[0].attention.rope.inv_freq for spec in specs]
    np.testing.assert_allclose(*frequencies, rtol=3e-7)  # GGUF stores llama3 scaling as rounded factors
    assert gguf.norm_eps == np.float32(hf.norm_eps)

    def comparable(spec):
        attention = [dataclasses.replace(layer.attention, rope=None) for layer in spec.layers]
        return dataclasses.replace(spec, norm_eps=0.0, layers=()), attention, [layer.mlp for layer in spec.layers]

    assert comparable(gguf) == comparable(hf)
    assert tensors[0].keys() == tensors[1].keys()
    for place, values in tensors[0].items():
        assert np.array_equal(values, tensors[1][place]), place
    np.testing.assert_allclose(*logits, atol=1e-4)
