"""Roofs against figures worked out by hand, against brute force, and against what must hold between them."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from freehold.arch.load import read_model
from freehold.arch.sizes import num_parameters, step_weight_bytes
from freehold.arch.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, RopeSpec
from freehold.files.model import open_model
from freehold.limits import Limits, Peak
from freehold.roofs import Chunk, ModelCost, decode_tokens_per_s, prefill_tokens_per_s


def peak(rate: float) -> Peak:
    return Peak(rate, width=1, num_instructions=1, clock_hz=1e9, num_threads=2)


LIMITS = Limits("avx512bf16", 2, 36.3e9, 30.2e9, 181e9, peak(233e9), peak(467e9), peak(935e9))


def decoder(*sizes: int) -> ModelSpec:
    """Of (V, D, layers, H, G, E, F), with tied embeddings."""
    vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, mlp_size = sizes
    attention = AttentionSpec(num_heads, num_kv_heads, head_dim, head_dim**-0.5, RopeSpec(inv_freq=()))
    layers = (LayerSpec(attention, MlpSpec(mlp_size)),) * num_layers
    return ModelSpec("llama", vocab_size, hidden_size, layers, 8192, 1e-5, tied_embeddings=True)


SMOLLM2 = decoder(49152, 576, 30, 9, 3, 64, 1536)
QWEN3 = decoder(151936, 1024, 28, 16, 8, 128, 3072)


def cost(spec: ModelSpec, bits: float = 4.5, activations: str = "int8") -> ModelCost:
    return ModelCost(spec, int(num_parameters(spec) * bits / 8), activations)  # type: ignore[arg-type]


def q4_1_file() -> ModelCost:
    """The default file: five bits a weight of the layers, 8.5 of the head."""
    head = 49152 * 576
    return ModelCost(SMOLLM2, int((num_parameters(SMOLLM2) - head) * 5 / 8 + head * 8.5 / 8))


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (decode_tokens_per_s(cost(SMOLLM2), LIMITS, 0), 480),
        (decode_tokens_per_s(cost(SMOLLM2, 8.5), LIMITS, 0), 254),
        (decode_tokens_per_s(cost(SMOLLM2, 16), LIMITS, 0), 135),
        (decode_tokens_per_s(q4_1_file(), LIMITS, 0), 369),
        (decode_tokens_per_s(cost(SMOLLM2), LIMITS, 2048), 296),
        (decode_tokens_per_s(q4_1_file(), LIMITS, 2048), 250),
        (prefill_tokens_per_s(cost(SMOLLM2), LIMITS, 512), 3774),
        (prefill_tokens_per_s(cost(SMOLLM2, activations="float"), LIMITS, 512), 2030),
        (prefill_tokens_per_s(cost(SMOLLM2), LIMITS, 2048), 2641),
        (prefill_tokens_per_s(cost(SMOLLM2, activations="float"), LIMITS, 2048), 1650),
        (decode_tokens_per_s(cost(SMOLLM2), LIMITS, 192, batch=32), 2442),
        (decode_tokens_per_s(cost(SMOLLM2), LIMITS, 192, batch=64), 2442),
        (decode_tokens_per_s(cost(QWEN3), LIMITS, 0), 108),
        (decode_tokens_per_s(cost(QWEN3, 8.5), LIMITS, 0), 57),
        (decode_tokens_per_s(cost(QWEN3), LIMITS, 2048), 64),
        (prefill_tokens_per_s(cost(QWEN3), LIMITS, 512), 937),
        (prefill_tokens_per_s(cost(QWEN3), LIMITS, 2048), 692),
        (decode_tokens_per_s(cost(QWEN3), LIMITS, 192, batch=32), 532),
    ],
)
def test_known_roofs(found: float, known: float) -> None:
    assert found == pytest.approx(known, rel=0.03)


@pytest.mark.parametrize("window", [None, 1, 5, 16, 100])
@pytest.mark.parametrize("start_pos", [0, 3, 40])
@pytest.mark.parametrize("num_tokens", [1, 2, 7, 30])
def test_attention_against_brute_force(window: int | None, start_pos: int, num_tokens: int) -> None:
    """Counts every key of every token, with a machine so slow that one thing alone matters."""
    plain = decoder(1, 1, 1, 6, 2, 4, 1)
    (layer,) = plain.layers
    spec = replace(plain, layers=(replace(layer, attention=replace(layer.attention, window=window)),))
    seen = [range(max(0, p + 1 - (window or 1 << 30)), p + 1) for p in range(start_pos, start_pos + num_tokens)]
    operations = sum(len(keys) for keys in seen) * 6 * 4 * 4
    kv_bytes = len(set(itertools.chain.from_iterable(seen))) * 2 * 2 * 4 * 2
    chunk = Chunk(start_pos, num_tokens)
    slow_products = replace(LIMITS, bf16=peak(1))
    assert ModelCost(spec, 0).roof([chunk], slow_products).attention_s == pytest.approx(operations)
    slow_memory = replace(LIMITS, dram_bytes_per_s=1)
    assert ModelCost(spec, 0).roof([chunk], slow_memory).attention_s == pytest.approx(kv_bytes)


def test_levels_without_a_kind_fall_back_to_float32() -> None:
    narrow = replace(LIMITS, bf16=None, int8=None)
    int8, floats = (prefill_tokens_per_s(cost(SMOLLM2, activations=a), narrow, 512) for a in ("int8", "float"))
    assert int8 == floats < prefill_tokens_per_s(cost(SMOLLM2, activations="float"), LIMITS, 512)


def test_chunks_share_the_reading_of_weights() -> None:
    one = cost(SMOLLM2).roof([Chunk(100)], LIMITS)
    four = cost(SMOLLM2).roof([Chunk(100)] * 4, LIMITS)
    assert four.linear_s == one.linear_s
    assert four.attention_s == pytest.approx(4 * one.attention_s)
    assert four.step_s == four.linear_s + four.attention_s


def test_weight_bytes_of_the_default_file(smollm2_path: Path) -> None:
    with open_model(smollm2_path) as files:
        spec, weights = read_model(files)
        found = step_weight_bytes(spec, weights)
    head = 49152 * 576
    layers = num_parameters(spec) - head - 61 * 576  # norms aside
    assert found == layers * 5 // 8 + head * 17 // 16
