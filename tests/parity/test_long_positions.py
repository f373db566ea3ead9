"""Scaled positions far beyond the original context: Llama 3.1's rotation against transformers up to position 20,000."""

import numpy as np
import pytest
import torch
import transformers
from kinds import CPU, REFERENCE, Kind
from tiny_models import VOCAB_SIZE, randomize, token_ids, truth

from freehold.evals.divergence import compare, forced_logits, options_for

LENGTH = 20_001
ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.fixture(scope="module")
def long_model() -> transformers.LlamaForCausalLM:
    config = transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=32768,
        rope_parameters=ROPE,
        attn_implementation="sdpa",
    )
    return randomize(transformers.LlamaForCausalLM(config), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [REFERENCE[0], *(kind for kind in CPU if kind.activations == "float")], ids=str)
def test_llama3_rotation_at_far_positions(kind: Kind, long_model, tmp_path, open_kind) -> None:  # rp-01
    long_model.save_pretrained(tmp_path)
    ids = token_ids(LENGTH)
    options = options_for(num_positions=LENGTH, chunk_size=512)
    backend = open_kind(tmp_path, kind, num_blocks=options.num_blocks, block_size=options.block_size)
    logits = np.concatenate(list(forced_logits(backend, ids, options, first_step_id=0)))
    expected = truth(long_model, ids)
    kl = compare(expected, logits).kl
    assert kl[[100, 9000, 20_000]].max() < 1e-3
    assert kl.mean() < (1e-6 if kind.kv_dtype == "f32" and kind.backend == "reference" else 1e-3)

    plain = transformers.LlamaForCausalLM(long_model.config)
    plain.load_state_dict(long_model.state_dict())
    plain.model.rotary_emb.inv_freq = torch.tensor(500000.0) ** (-torch.arange(0, 64, 2) / 64)
    assert compare(expected, truth(plain.eval(), ids)).kl[[9000, 20_000]].min() > 1e-3  # the scaling does matter there
