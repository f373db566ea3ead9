"""Synthetic checkpoints: the same from the same seed, the same in both formats, and what other programs expect."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from freehold.arch.spec import Slot
from freehold.errors import ConfigError, ResourceError
from freehold.files.model import open_model
from freehold.files.quants import dequantize, quantize
from freehold.files.tensors import DType
from freehold.synth import PRESETS, RopeScaling, SynthConfig, write_checkpoint
from freehold.synth.gguf_model import rope_factors
from freehold.synth.sizes import TensorPlan, tensor_plans
from freehold.synth.vocabulary import SPECIAL_TOKENS, make_vocabulary
from freehold.synth.weights import PIECE_ELEMENTS, values

LLAMA3 = RopeScaling("llama3", factor=8.0, original_max_position=256)
CONFIGS: dict[str, SynthConfig] = {
    **{name: config for name, config in PRESETS.items() if name.startswith("tiny")},
    "untied": replace(PRESETS["tiny"], tied_embeddings=False),
    "llama3": replace(PRESETS["tiny"], rope_scaling=LLAMA3),
    "linear": replace(PRESETS["tiny"], rope_scaling=RopeScaling("linear", factor=2.0)),
    "wide heads": replace(PRESETS["tiny-qwen3"], head_dim=64),
}
each_config = pytest.mark.parametrize("name", list(CONFIGS))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Checkpoints in float32 by configuration and format, each written once."""
    directory = tmp_path_factory.mktemp("synth")

    def write(name: str, format: str) -> Path:
        path = directory / f"{name}.{format}"
        if not path.exists():
            write_checkpoint(CONFIGS[name], path, format=format, dtype=DType.F32, seed=3)  # type: ignore[arg-type]
        return path

    return write


def digest(path: Path) -> str:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@pytest.mark.parametrize("format", ["hf", "gguf"])
def test_the_seed_decides_each_bit(tmp_path: Path, format: Any) -> None:
    for number, seed in enumerate((5, 5, 6)):
        write_checkpoint(CONFIGS["tiny"], tmp_path / f"{number}", format=format, dtype=DType.F16, seed=seed)
    first, again, other = (digest(tmp_path / f"{number}") for number in range(3))
    assert first == again
    assert first != other


def test_weights_are_what_they_were_in_the_first_release() -> None:
    """Checkpoints are named by preset and seed in measurements, so their weights must not change."""
    plan = TensorPlan(Slot.UP, 2, (352, 128))
    (piece,) = values(CONFIGS["tiny"], plan, seed=1)
    assert hashlib.sha256(piece.astype("<f4").tobytes()).hexdigest() == (
        "f72a141eae16faa5d2e3184537f4889b50105e8c72f0f6146523fe6988a527f5"
    )


def test_weights_do_not_depend_on_how_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIGS["tiny"], vocab_size=2000)
    plan = TensorPlan(Slot.EMBED, None, (2000, 128))
    whole = np.concatenate(list(values(config, plan, 1)))
    monkeypatch.setattr("freehold.synth.weights.PIECE_ELEMENTS", 1 << 16)
    pieces = list(values(config, plan, 1))
    assert len(pieces) == 4
    assert np.array_equal(np.concatenate(pieces), whole)


def test_weights_spread_as_intended() -> None:
    plan = TensorPlan(Slot.GATE, 0, (9728, 2560))
    sample = next(values(PRESETS["4b"], plan, 0)) * np.sqrt(2560)
    assert len(sample) == PIECE_ELEMENTS
    assert abs(sample.mean()) < 0.005
    assert abs(sample.std() - 1) < 0.005
    assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 0.005
    other = next(values(PRESETS["4b"], replace(plan, layer=1), 0)) * np.sqrt(2560)
    assert abs(np.corrcoef(sample, other)[0, 1]) < 0.005


@each_config
def test_transformers_loads_it_and_its_logits_are_sound(name: str, written: Callable[[str, str], Path]) -> None:
    config = CONFIGS[name]
    model, info = AutoModelForCausalLM.from_pretrained(
        written(name, "hf"), dtype=torch.float32, output_loading_info=True
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert sum(parameter.numel() for parameter in model.parameters()) == config.num_parameters
    assert model.config.model_type == config.family
    ids = torch.arange(3, 3 + 64).reshape(1, -1)
    with torch.inference_mode():
        logits = model(ids).logits[0]
    assert torch.isfinite(logits).all()
    entropy = torch.distributions.Categorical(logits=logits).entropy() / np.log(config.vocab_size)
    assert 0.2 < entropy.mean() < 0.9
    assert len(set(logits.argmax(-1).tolist())) > 8


@each_config
def test_transformers_tokenizer_is_reversible_and_has_the_template(
    name: str, written: Callable[[str, str], Path]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(written(name, "hf"))
    assert len(tokenizer) == CONFIGS[name].vocab_size
    for text in ("Hello world", "naïve 漢字 😀 \t\n  x", "\x00\x7f", "the <b>", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert [tokenizer.convert_ids_to_tokens(index) for index in range(3)] == list(SPECIAL_TOKENS)
    assert tokenizer.eos_token == "<|im_end|>"


def from_gguf(config: SynthConfig, name: str, values: np.ndarray) -> np.ndarray:
    """Undo the row order of llama.cpp's ``llama`` architecture: 0, E/2, 1, E/2 + 1… → 0, 1, 2…"""
    if config.family not in ("llama", "mistral") or not name.endswith(("attn_q.weight", "attn_k.weight")):
        return values
    heads = values.reshape(-1, config.head_dim, values.shape[-1])
    return np.concatenate([heads[:, 0::2], heads[:, 1::2]], axis=1).reshape(values.shape)


HF_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    if not name.startswith("blk."):
        return HF_NAMES[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{HF_NAMES[part]}.{kind}"


@each_config
def test_both_formats_hold_the_same_weights(name: str, written: Callable[[str, str], Path]) -> None:
    config = CONFIGS[name]
    with open_model(written(name, "hf")) as theirs, open_model(written(name, "gguf")) as ours:
        names = [tensor for tensor in ours.tensors if tensor != "rope_freqs.weight"]
        assert {hf_name(tensor) for tensor in names} == set(theirs.tensors)
        for tensor in names:
            assert np.array_equal(
                from_gguf(config, tensor, dequantize(ours.tensors[tensor])), dequantize(theirs.tensors[hf_name(tensor)])
            ), tensor


@each_config
def test_the_gguf_package_reads_keys_and_tensors(name: str, written: Callable[[str, str], Path]) -> None:
    config, reader = CONFIGS[name], GGUFReader(written(name, "gguf"))
    arch = "llama" if config.family == "mistral" else config.family
    keys = {key: field.contents() for key, field in reader.fields.items()}
    assert keys["general.architecture"] == arch
    assert keys[f"{arch}.block_count"] == config.num_layers
    assert keys[f"{arch}.attention.head_count_kv"] == config.num_kv_heads
    assert keys[f"{arch}.attention.key_length"] == config.head_dim
    assert keys.get(f"{arch}.attention.sliding_window") == config.sliding_window
    assert keys["tokenizer.ggml.model"] == "gpt2"
    assert len(keys["tokenizer.ggml.tokens"]) == len(keys["tokenizer.ggml.token_type"]) == config.vocab_size
    assert keys["tokenizer.ggml.tokens"][keys["tokenizer.ggml.eos_token_id"]] == "<|im_end|>"
    assert (
        sum(tensor.n_elements for tensor in reader.tensors if tensor.name != "rope_freqs.weight")
        == config.num_parameters
    )


def test_llama3_divisors_are_those_of_transformers() -> None:
    config = replace(CONFIGS["llama3"], head_dim=64, rope_theta=500000.0)
    theirs = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        head_dim=64,
        max_position_embeddings=2048,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs, torch.device("cpu"))
    divisors = rope_factors(config)
    assert divisors is not None
    assert {1.0, 8.0} < set(divisors.tolist())  # all three ranges occur
    plain = 500000.0 ** -(np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(plain / divisors, scaled.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "dtype", [DType.F16, DType.BF16, DType.Q8_0, DType.Q4_1, DType.Q4_0], ids=lambda dtype: dtype.name
)
def test_stored_weights_are_the_float32_ones_rounded(
    dtype: DType, tmp_path: Path, written: Callable[[str, str], Path]
) -> None:
    write_checkpoint(CONFIGS["untied"], tmp_path / "m.gguf", format="gguf", dtype=dtype, seed=3)
    with open_model(tmp_path / "m.gguf") as stored, open_model(written("untied", "gguf")) as exact:
        for name, tensor in stored.tensors.items():
            if len(tensor.shape) == 1:
                expected = DType.F32
            elif name in ("token_embd.weight", "output.weight") and dtype in (DType.Q4_1, DType.Q4_0):
                expected = DType.Q8_0
            else:
                expected = dtype
            assert tensor.dtype is expected
            assert np.array_equal(tensor.data, quantize(dequantize(exact.tensors[name]), expected).reshape(-1))


def test_shards_hold_what_one_file_holds(tmp_path: Path, written: Callable[[str, str], Path]) -> None:
    sharded = tmp_path / "sharded"
    write_checkpoint(CONFIGS["tiny"], sharded, format="hf", dtype=DType.F32, seed=3, max_shard_bytes=600_000)
    files = sorted(sharded.glob("*.safetensors"))
    assert len(files) > 4
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {file.name for file in files}
    for file in files:
        with safe_open(file, "pt") as theirs:
            assert sorted(theirs.keys()) == sorted(
                name for name, home in index["weight_map"].items() if home == file.name
            )
    with open_model(sharded) as many, open_model(written("tiny", "hf")) as one:
        assert set(many.tensors) == set(one.tensors)
        assert all(np.array_equal(many.tensors[name].data, one.tensors[name].data) for name in one.tensors)
    AutoModelForCausalLM.from_pretrained(sharded, dtype=torch.float32)


@pytest.mark.parametrize("size", [320, 1024, 151_936])
def test_vocabularies_are_whole(size: int) -> None:
    vocabulary = make_vocabulary(size)
    assert len(vocabulary.tokens) == len(set(vocabulary.tokens)) == size
    assert len(vocabulary.merges) == len(set(vocabulary.merges)) == size - 259
    known = set(vocabulary.tokens[:259])
    for merge, token in zip(vocabulary.merges, vocabulary.tokens[259:], strict=True):
        assert set(merge) <= known  # each is made of tokens before it
        assert "".join(merge) == token
        known.add(token)


def test_presets_have_the_sizes_they_are_named_for() -> None:
    millions = {name: config.num_parameters / 1e6 for name, config in PRESETS.items()}
    assert 0.8 < millions["tiny"] < 1.2
    assert round(millions["135m"], 1) == 134.5
    assert round(millions["qwen2-0.5b"]) == 494
    assert round(millions["qwen3-0.6b"]) == 596
    assert round(millions["llama-1b"]) == 1236
    assert round(millions["4b"]) == 4022


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"num_layers": -1}, "num_layers is -1"),
        ({"hidden_size": 100}, "hidden_size is 100"),
        ({"intermediate_size": 33}, "intermediate_size is 33"),
        ({"head_dim": 31}, "head_dim is 31"),
        ({"num_kv_heads": 3}, "num_heads is 4"),
        ({"vocab_size": 100}, "vocab_size is 100"),
        ({"sliding_window": 8}, "sliding_window is 8"),
        ({"rope_theta": 0.0}, "rope_theta is 0"),
        ({"norm_eps": float("nan")}, "norm_eps nan"),
    ],
)
def test_sizes_that_no_model_has_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(PRESETS["tiny"], **changes)


def test_what_cannot_be_written_is_refused_before_anything_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"safetensors can't have Q4_1.*BF16.*\.gguf"):
        write_checkpoint(CONFIGS["tiny"], tmp_path / "m", format="hf", dtype=DType.Q4_1)
    with pytest.raises(ConfigError, match=r"GGUF file can't have Q4_K.*Q8_0"):
        write_checkpoint(CONFIGS["tiny"], tmp_path / "m", format="gguf", dtype=DType.Q4_K)
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="there exists already"):
        write_checkpoint(CONFIGS["tiny"], tmp_path / "there", format="hf", dtype=DType.F32)
    with pytest.raises(ResourceError, match="can't be written"):
        write_checkpoint(CONFIGS["tiny"], Path("/dev/null/m"), format="hf", dtype=DType.F32)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("format", ["hf", "gguf"])
def test_an_interrupted_write_leaves_nothing(tmp_path: Path, format: Any) -> None:
    def interrupt(done: int, total: int) -> None:
        assert 0 < done <= total
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(CONFIGS["tiny"], tmp_path / "m", format=format, dtype=DType.F32, on_progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    write_checkpoint(
        CONFIGS["tiny"],
        tmp_path / "m",
        format="hf",
        dtype=DType.BF16,
        on_progress=lambda *report: reports.append(report),
    )
    assert reports == sorted(reports)
    assert reports[-1] == (2 * CONFIGS["tiny"].num_parameters,) * 2


MEMORY_TRIAL = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from freehold.files.tensors import DType
from freehold.synth import PRESETS, write_checkpoint
config = replace(PRESETS["4b"], num_layers=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_checkpoint(config, Path(sys.argv[1]), format="gguf", dtype=DType.Q4_0)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    """One layer and the embedding of 4 B parameters hold its largest tensor, 1.5 GB in float32."""
    command = [sys.executable, "-c", MEMORY_TRIAL, str(tmp_path / "m.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 400


def test_plans_name_each_tensor_once() -> None:
    for config in CONFIGS.values():
        plans = list(tensor_plans(config))
        assert len({(plan.slot, plan.layer) for plan in plans}) == len(plans)
