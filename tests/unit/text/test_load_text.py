"""Tokenizer and template as they lie in a model's files."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from test_tokenizer_json import CONFIG, byte_level

from freehold.errors import ModelFileError, UserError
from freehold.files.model import open_model
from freehold.files.vocabulary import TextAssets, load_text
from text_vocabularies import byte_level_metadata, sentencepiece_metadata


def checkpoint(path: Path, **files: Any) -> Path:
    """A directory as Hugging Face has it; `files` by stem, text for ``.jinja``, else JSON."""
    save_file({"x": np.zeros(4, np.float32)}, str(path / "model.safetensors"))
    for name, content in {"config": {"model_type": "llama"}, "tokenizer_config": CONFIG, **files}.items():
        if isinstance(content, str):
            (path / f"{name}.jinja").write_text(content)
        else:
            (path / f"{name}.json").write_text(json.dumps(content))
    byte_level().save(str(path / "tokenizer.json"))
    return path


def load(path: Path) -> TextAssets:
    with open_model(path) as files:
        return load_text(files)


NAMED = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]


@pytest.mark.parametrize(
    ("files", "sources"),
    [
        ({}, None),
        ({"tokenizer_config": CONFIG | {"chat_template": "A"}}, {"default": "A"}),
        ({"tokenizer_config": CONFIG | {"chat_template": NAMED}}, {"default": "D", "tool_use": "T"}),
        ({"tokenizer_config": CONFIG | {"chat_template": NAMED[1:]}}, None),
        ({"chat_template": "J", "tokenizer_config": CONFIG | {"chat_template": "A"}}, {"default": "J"}),
        ({"chat_template": {"chat_template": "C"}}, {"default": "C"}),
    ],
)
def test_templates_of_a_checkpoint(tmp_path: Path, files: dict[str, Any], sources: dict[str, str] | None) -> None:
    text = load(checkpoint(tmp_path, **files))
    assert (text.template and text.template.sources) == sources
    assert text.tokenizer.encode("the") == [257]


@pytest.mark.parametrize("template", [5, [5], [{"name": "x"}]])
def test_malformed_templates_are_refused(tmp_path: Path, template: Any) -> None:
    with pytest.raises(ModelFileError, match="chat_template"):
        load(checkpoint(tmp_path, tokenizer_config=CONFIG | {"chat_template": template}))


def test_a_checkpoint_without_tokenizer_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        load(tmp_path)


def test_ends_come_from_the_generation_config(tmp_path: Path) -> None:
    text = load(checkpoint(tmp_path, generation_config={"eos_token_id": [7]}))
    assert 7 in text.tokenizer.eos_ids


HUGE = 10**400
HALF = "\ud800"
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
SIDE_FILES: list[dict[str, Any]] = [
    *({"tokenizer_config": CONFIG | {name: value}} for name in SPECIAL for value in (HALF, {"content": HALF}, HUGE)),
    *({"tokenizer_config": CONFIG | {"chat_template": value}} for value in (HALF, HUGE, [HALF], [HUGE])),
    {"tokenizer_config": CONFIG | {"chat_template": [{"name": "default", "template": HALF}]}},
    {"tokenizer_config": CONFIG | {"any_other": {"deep": [1, {"inside": HALF}]}}},
    {"tokenizer_config": CONFIG | {HALF: 1}},
    {"chat_template": {"chat_template": HALF}},
    *({"generation_config": {"eos_token_id": value}} for value in (HUGE, -HUGE, [HUGE], [0, HUGE], HALF, [HALF])),
    *({"config": {"model_type": "llama", "eos_token_id": value}} for value in (HUGE, [HUGE], HALF)),
]


@pytest.mark.parametrize("files", SIDE_FILES, ids=ascii)
def test_huge_numbers_and_half_characters_are_refused_in_one_sentence(tmp_path: Path, files: dict[str, Any]) -> None:
    path = checkpoint(tmp_path, **files)
    with pytest.raises(UserError) as refusal:
        load(path)
    assert len(str(refusal.value).encode()) < 600


@pytest.mark.parametrize(
    ("pattern", "hostile"),
    [
        (r'"content": ?"[^"]*"', r'"content": "\ud800"'),
        (r'"content": ?"[^"]*"', '"content": 1' + "0" * 400),
        (r'"id": ?\d+', '"id": 1' + "0" * 400),
    ],
)
def test_a_hostile_tokenizer_json_is_refused_in_one_sentence(tmp_path: Path, pattern: str, hostile: str) -> None:
    path = checkpoint(tmp_path) / "tokenizer.json"
    changed, times = re.subn(pattern, lambda _: hostile, path.read_text(), count=1)
    assert times == 1
    path.write_text(changed)
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        load(tmp_path)


def test_whole_characters_may_be_written_as_pairs(tmp_path: Path) -> None:
    text = load(checkpoint(tmp_path, tokenizer_config=CONFIG | {"chat_template": "\U0001f642"}))
    assert "\\ud83d" in (tmp_path / "tokenizer_config.json").read_text()
    assert text.template is not None
    assert text.template.sources == {"default": "\U0001f642"}


class FakeGGUF:
    """The part of `ModelFiles` that GGUF models need."""

    format = "gguf"

    def __init__(self, **templates: Any) -> None:
        self.metadata = byte_level_metadata() | {
            f"tokenizer.{key.replace('__', '.')}": value for key, value in templates.items()
        }


@pytest.mark.parametrize(
    ("templates", "sources"),
    [
        ({}, None),
        ({"chat_template": "A"}, {"default": "A"}),
        (
            {"chat_template": "A", "chat_template__tool_use": "T", "chat_templates": ["tool_use"]},
            {"default": "A", "tool_use": "T"},
        ),
        ({"chat_template__rag": "R"}, None),
    ],
)
def test_templates_of_a_gguf_file(templates: dict[str, Any], sources: dict[str, str] | None) -> None:
    text = load_text(FakeGGUF(**templates))  # type: ignore[arg-type]
    assert (text.template and text.template.sources) == sources


def test_a_gguf_template_that_is_no_text_is_refused() -> None:
    with pytest.raises(ModelFileError, match="chat_template"):
        load_text(FakeGGUF(chat_template=["A"]))  # type: ignore[arg-type]


ODD: list[Any] = [
    *(
        [float("nan")],
        [float("inf")],
        [2**64],
        [1.5],
        np.array([np.nan]),
        np.arange(3),
        np.zeros((2, 2)),
        ["x"],
        [["x"]],
    ),
    *(5, HUGE, "x", b"x", True, {}, [], [None]),
]
GGUF_KEYS = ("model", "pre", "tokens", "merges", "token_type", "scores", "add_bos_token", "add_space_prefix")
GGUF_IDS = ("bos_token_id", "eos_token_id", "eot_token_id", "unknown_token_id", "padding_token_id")


@pytest.mark.parametrize("metadata", [byte_level_metadata(), sentencepiece_metadata()], ids=["gpt2", "llama"])
@pytest.mark.parametrize("key", GGUF_KEYS + GGUF_IDS)
def test_odd_values_of_gguf_keys_are_taken_or_refused_in_one_sentence(metadata: dict[str, Any], key: str) -> None:
    size = len(metadata["tokenizer.ggml.tokens"])
    odd = [*ODD, [float("nan")] * size, np.full(size, np.inf), [[1]] * size, ["1"] * size]
    refused = 0
    for value in odd:
        files = FakeGGUF()
        files.metadata = {**metadata, f"tokenizer.ggml.{key}": value}
        refusal = ""
        try:
            load_text(files)  # type: ignore[arg-type]
        except UserError as error:
            refusal = str(error)
        assert len(refusal.encode()) < 600
        refused += refusal != ""
    assert refused or key in ("scores", "merges", "pre", "add_space_prefix")


def test_default_model(smollm2: TextAssets) -> None:
    assert smollm2.template is not None
    rendered = smollm2.template.render([{"role": "user", "content": "Hi"}])
    ids = rendered.encode(smollm2.tokenizer)
    assert ids[:2] == [1, 9690]
    assert ids[-4:] == [1, 520, 9531, 198]
    assert smollm2.tokenizer.decode(ids, skip_control=False) == rendered.text
    smollm2.template.close()
