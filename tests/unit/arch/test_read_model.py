"""From configurations to specs: what each family means, and that anything unknown stops the load by name."""

import logging

import numpy as np
import pytest
from fake_files import GGUF_BASE, HF_OWN, gguf_model, hf_model, tensor

from freehold.arch import read_model
from freehold.arch.load import GGUF_READERS, HF_READERS
from freehold.arch.sizes import kv_block_bytes, num_parameters, weight_bytes
from freehold.arch.spec import Slot
from freehold.errors import ModelFileError, UnsupportedModelError

FORMS = [("hf", name) for name in HF_READERS] + [("gguf", name) for name in GGUF_READERS]


def model(form: tuple[str, str], **changes):
    return hf_model(form[1], **changes) if form[0] == "hf" else gguf_model(form[1], **changes)


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_every_family_reads_and_fills_every_slot(form) -> None:
    files = model(form)
    spec, weights = read_model(files)
    assert (spec.vocab_size, spec.hidden_size, len(spec.layers), spec.max_position) == (50, 32, 2, 128)
    assert spec.norm_eps == 1e-5
    attention = spec.layers[0].attention
    assert (attention.num_heads, attention.num_kv_heads) == (4, 2)
    assert attention.scale == attention.head_dim**-0.5
    assert attention.qkv_bias == (form[1] == "qwen2")
    assert attention.qk_norm == (form[1] == "qwen3")
    assert {weights.get(*place).name for place in weights} == set(files.tensors)
    assert weight_bytes(spec, weights) == sum(t.data.nbytes for t in files.tensors.values()) == 4 * num_parameters(spec)
    assert kv_block_bytes(spec, 16, "bf16") == 2 * 16 * 2 * 2 * attention.head_dim * 2
    assert kv_block_bytes(spec, 16, "int8") == 2 * 16 * 2 * 2 * (attention.head_dim + 4)


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_a_missing_tensor_is_named(form) -> None:
    for name in model(form).tensors:
        files = model(form)
        del files.tensors[name]
        if name == "output.weight":
            assert read_model(files)[0].tied_embeddings
            continue
        with pytest.raises(ModelFileError, match=f"'{name}'"):
            read_model(files)


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_a_misshapen_tensor_is_named_with_both_shapes(form) -> None:
    for name, original in model(form).tensors.items():
        files = model(form)
        wrong = (original.shape[0] + 2, *original.shape[1:])
        files.tensors[name] = tensor(name, wrong)
        with pytest.raises((ModelFileError, UnsupportedModelError)) as caught:
            read_model(files)
        if name == "token_embd.weight":  # its rows define the vocabulary, so that another tensor disagrees
            assert "output.weight" in str(caught.value)
        else:
            assert name in str(caught.value)
            assert str(wrong) in str(caught.value)


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_a_leftover_tensor_is_named(form) -> None:
    files = model(form)
    files.tensors["extra.bias"] = tensor("extra.bias", (3,))
    with pytest.raises(ModelFileError, match=r"extra\.bias"):
        read_model(files)


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_every_key_is_read_or_stops_the_load(form) -> None:  # rp-02
    with pytest.raises(UnsupportedModelError, match=r"'logit_soft_cap' = 30\.0"):
        read_model(model(form, logit_soft_cap=30.0))
    read_model(model(form, some_future_option=None))


HF_REQUIRED = ["hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size"]
GGUF_REQUIRED = [key for key in GGUF_BASE if key not in {"attention.head_count_kv", "rope.freq_base"}]


@pytest.mark.parametrize("form", FORMS, ids="-".join)
@pytest.mark.parametrize("bad", ["absent", "text", 0, -1, True, 1.5, float("nan"), [1], 2**40])
def test_sizes_are_required_and_checked(form, bad) -> None:
    prefix = "" if form[0] == "hf" else form[1] + "."
    for key in HF_REQUIRED if form[0] == "hf" else GGUF_REQUIRED:
        if key.endswith("epsilon") and bad in (1.5, 2**40):
            continue
        files = model(form)
        if bad == "absent":
            del files.metadata[prefix + key]
        else:
            files.metadata[prefix + key] = bad
        with pytest.raises(ModelFileError, match=f"'{key}'"):
            read_model(files)


@pytest.mark.parametrize("format_", ["hf", "gguf"])
def test_unknown_architectures_are_refused_with_the_supported_ones(format_) -> None:
    files = model((format_, "llama"))
    files.metadata["model_type" if format_ == "hf" else "general.architecture"] = "mamba9"
    with pytest.raises(UnsupportedModelError, match=r"mamba9.*llama.*qwen2.*qwen3"):
        read_model(files)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("llama", {"hidden_act": "gelu"}),
        ("llama", {"attention_bias": True}),
        ("llama", {"mlp_bias": True}),
        ("llama", {"rope_interleaved": True}),
        ("qwen3", {"attention_bias": True}),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}),
        ("mistral", {"layer_types": ["full_attention", "chunked_attention"]}),
        ("qwen2", {"layer_types": ["full_attention", "chunked_attention"]}),
    ],
)
def test_options_that_change_the_computation_are_refused_by_name(model_type, changes) -> None:
    with pytest.raises(UnsupportedModelError, match=next(iter(changes))):
        read_model(hf_model(model_type, **changes))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"expert_count": 8}, "expert_count"),
        ({"attention__value_length": 4}, "attention.value_length"),
        ({"rope__dimension_count": 4}, "rope.dimension_count"),
        ({"vocab_size": 51}, "vocab_size"),
        ({"tensor_data_layout": "sideways"}, "tensor_data_layout"),
    ],
)
def test_gguf_options_that_change_the_computation_are_refused_by_name(changes, key) -> None:
    with pytest.raises(UnsupportedModelError, match=key):
        read_model(gguf_model("llama", **changes))


def test_adapters_and_projectors_are_refused() -> None:
    files = gguf_model("llama")
    files.metadata["general.type"] = "adapter"
    with pytest.raises(UnsupportedModelError, match="adapter"):
        read_model(files)


def test_heads_that_do_not_share_evenly_are_refused() -> None:
    with pytest.raises(ModelFileError, match="4 heads can't share 3"):
        read_model(hf_model("llama", num_key_value_heads=3))


def windows(files) -> list[int | None]:
    return [layer.attention.window for layer in read_model(files)[0].layers]


def test_mistral_windows() -> None:
    assert windows(hf_model("mistral")) == [16, 16]
    assert windows(hf_model("mistral", sliding_window=None)) == [None, None]
    files = hf_model("mistral")
    del files.metadata["sliding_window"]
    with pytest.raises(ModelFileError, match="sliding_window"):
        read_model(files)
    assert windows(gguf_model("llama", attention__sliding_window=16)) == [16, 16]


def test_llama_with_a_window_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="sliding_window"):
        read_model(hf_model("llama", sliding_window=16))


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_qwen_windows_only_where_switched_on(model_type) -> None:
    on = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    full_then_sliding = ["full_attention", "sliding_attention"]
    assert windows(hf_model(model_type, sliding_window=16, max_window_layers=0)) == [None, None]
    assert windows(hf_model(model_type, **on)) == [None, 16]
    assert windows(hf_model(model_type, **on | {"max_window_layers": 0})) == [16, 16]
    assert windows(hf_model(model_type, **on | {"layer_types": full_then_sliding[::-1]})) == [16, None]
    with pytest.raises(ModelFileError, match="layer_types"):
        read_model(hf_model(model_type, layer_types=full_then_sliding))
    with pytest.raises(ModelFileError, match="3 entries for 2 layers"):
        read_model(hf_model(model_type, layer_types=["full_attention"] * 3))


@pytest.mark.parametrize("model_type", sorted(HF_OWN))
def test_tied_head_is_ignored_and_a_different_one_warned_about(model_type, caplog) -> None:  # st-04
    embedding = np.arange(50 * 32)
    for head, warned in [(embedding, False), (embedding + 1, True)]:
        files = hf_model(model_type, tie_word_embeddings=True)
        assert "lm_head.weight" not in files.tensors
        files.tensors["model.embed_tokens.weight"] = tensor("model.embed_tokens.weight", (50, 32), embedding)
        files.tensors["lm_head.weight"] = tensor("lm_head.weight", (50, 32), head)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            spec, weights = read_model(files)
        assert spec.tied_embeddings
        assert (Slot.HEAD, None) not in set(weights)
        assert ("lm_head.weight" in caplog.text) == warned


def test_stored_frequencies_are_ignored() -> None:
    files = hf_model("llama")
    for name in ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"):
        files.tensors[name] = tensor(name, (4,))
    assert set(read_model(files)[1]) == set(read_model(hf_model("llama"))[1])


def test_llama_gguf_rows_are_brought_into_halves() -> None:
    files = gguf_model("llama")
    rows = {"blk.0.attn_q.weight": 32, "blk.0.attn_k.weight": 16}
    for name, num_rows in rows.items():
        values = np.repeat(np.arange(num_rows), 32)
        files.tensors[name] = tensor(name, (num_rows, 32), values)
    _, weights = read_model(files)
    one_head = [0, 2, 4, 6, 1, 3, 5, 7]
    for slot, num_heads in ((Slot.Q, 4), (Slot.K, 2)):
        got = weights.get(slot, 0)
        order = got.data.view(np.float32).reshape(got.shape)[:, 0].astype(int).tolist()
        assert order == [8 * head + row for head in range(num_heads) for row in one_head]


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_other_gguf_rows_stay(architecture) -> None:
    files = gguf_model(architecture)
    values = np.arange(32 * 32)
    files.tensors["blk.0.attn_q.weight"] = tensor("blk.0.attn_q.weight", (32, 32), values)
    _, weights = read_model(files)
    assert np.array_equal(weights.get(Slot.Q, 0).data.view(np.float32), values)


def test_head_size_of_its_own() -> None:
    for files in (hf_model("llama", head_dim=16), gguf_model("llama", attention__key_length=16)):
        spec, weights = read_model(files)
        assert spec.layers[0].attention.head_dim == 16
        assert weights.get(Slot.Q, 1).shape == (64, 32)
        assert len(spec.layers[0].attention.rope.inv_freq) == 8
