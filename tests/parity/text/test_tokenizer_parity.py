"""Ids equal Hugging Face's and SentencePiece's on many varied strings.

Where the oracle itself departs from what the models were trained with, the test says so and corrects the oracle:

* Hugging Face's GGUF conversion doesn't know the pre-tokenizer ``smollm`` and leaves numbers whole. SmolLM2 was trained
  with single digits (as llama.cpp's rule for ``smollm`` has it, too).
* It leaves out the Unicode normalization of Qwen's tokenizers, and that Llama 3's and Mistral's ignore merges for words
  that are tokens.
* It lets a SentencePiece text that begins with a space do without the dummy prefix; SentencePiece doesn't.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer
from varied_strings import varied_strings

from freehold.files.model import open_model
from freehold.files.vocabulary import TextAssets
from freehold.text.gguf_tokenizer import vocabulary_from_gguf
from freehold.text.tokenizer import Tokenizer
from text_vocabularies import sentencepiece_metadata, sentencepiece_processor

NUM_DISTINCT = 100_000
PREFIX = "tokenizer.ggml."


def assert_same_ids(texts: list[str], ours: Callable[[str], list[int]], theirs: list[list[int]]) -> None:
    different = [(text, ours(text), ids) for text, ids in zip(texts, theirs, strict=True) if ours(text) != ids]
    assert not different, different[:3]


def plain(backend: Backend, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sorted(set(varied_strings(1, 120_000)))


def test_there_are_enough_strings(texts: list[str]) -> None:
    assert len(texts) >= NUM_DISTINCT
    assert sum(map(str.isascii, texts)) < len(texts) / 2


@pytest.fixture(scope="module")
def single_digits(hf_smollm2: Any) -> Backend:
    backend = Backend.from_str(hf_smollm2.backend_tokenizer.to_str())
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), backend.pre_tokenizer])
    return backend


def test_default_model(smollm2: TextAssets, single_digits: Backend, texts: list[str]) -> None:
    assert_same_ids(texts, smollm2.tokenizer.encode, plain(single_digits, texts))


def test_default_model_against_the_uncorrected_oracle(smollm2: TextAssets, hf_smollm2: Any, texts: list[str]) -> None:
    without_digits = [text for text in texts[::5] if not any(char.isnumeric() for char in text)]
    assert len(without_digits) > 10_000
    assert_same_ids(without_digits, smollm2.tokenizer.encode, plain(hf_smollm2.backend_tokenizer, without_digits))


def test_default_model_decodes_alike(smollm2: TextAssets, single_digits: Backend, texts: list[str]) -> None:
    for text in texts[::10]:
        ids = smollm2.tokenizer.encode(text)
        assert smollm2.tokenizer.decode(ids) == single_digits.decode(ids), text


def test_control_tokens_in_trusted_text(smollm2: TextAssets, single_digits: Backend, texts: list[str]) -> None:
    literals = list(smollm2.tokenizer.vocabulary.controls)
    mixed = [
        f"{text}{literals[n % len(literals)]}{literals[n % 5]}{text[::-1]}{literals[n % 3]}"
        for n, text in enumerate(texts[::50])
    ]
    assert_same_ids(mixed, lambda text: smollm2.tokenizer.encode(text, allow_control=True), plain(single_digits, mixed))


def test_chats_encode_as_apply_chat_template_does(smollm2: TextAssets, hf_smollm2: Any, texts: list[str]) -> None:
    """tok-11."""
    assert smollm2.template is not None
    usable = [text for text in texts[::40] if not any(char.isnumeric() for char in text)]
    for question, answer in pairwise(usable):
        messages = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": question + answer},
        ]
        theirs = hf_smollm2.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert smollm2.template.render(messages).encode(smollm2.tokenizer) == theirs
    smollm2.template.close()


@pytest.mark.parametrize(
    ("kind", "nfc", "ignore_merges"),
    [
        ("llama-bpe", False, True),
        ("qwen2", True, False),
        ("qwen35", True, False),
        ("tekken", False, True),
        ("gpt-4o", False, False),
        ("gpt-2", False, False),
    ],
)
def test_pretokenizers(smollm2_path: Any, texts: list[str], kind: str, nfc: bool, ignore_merges: bool) -> None:
    """Each kind over the default model's tokens and merges."""
    with open_model(smollm2_path) as files:
        metadata = dict(files.metadata)
    given = {name: list(metadata[PREFIX + name]) for name in ("tokens", "merges", "token_type")}
    theirs, _ = convert_gguf_tokenizer("llama", {**given, "tokenizer_type": "gpt2", "pre_tokenizer_type": kind})
    theirs.model.ignore_merges = ignore_merges
    if nfc:
        theirs.normalizer = normalizers.NFC()
    ours = Tokenizer(vocabulary_from_gguf(metadata | {PREFIX + "pre": kind}))
    assert_same_ids(texts[::8], lambda text: ours.encode(text, add_bos=False), plain(theirs, texts[::8]))


@pytest.fixture(scope="module")
def trained() -> tuple[Any, dict[str, Any]]:
    return sentencepiece_processor(), sentencepiece_metadata()


def test_sentencepiece_ids_are_sentencepieces(trained: tuple[Any, dict[str, Any]], texts: list[str]) -> None:
    processor, metadata = trained
    ours = Tokenizer(vocabulary_from_gguf(metadata))
    usable = [text for text in texts[::8] if "\x00" not in text and "▁" not in text]
    assert_same_ids(usable, lambda text: ours.encode(text, add_bos=False), processor.encode(usable))
    for text in usable:
        assert ours.decode(ours.encode(text)) == text


def test_sentencepiece_ids_are_hugging_faces(trained: tuple[Any, dict[str, Any]], texts: list[str]) -> None:
    _, metadata = trained
    given = {name: metadata[PREFIX + name] for name in ("tokens", "scores", "token_type")}
    theirs, _ = convert_gguf_tokenizer("llama", {**given, "tokenizer_type": "llama"})
    ours = Tokenizer(vocabulary_from_gguf(metadata))
    usable = [text for text in texts[::8] if not text.startswith((" ", "▁"))]
    assert_same_ids(usable, lambda text: ours.encode(text, add_bos=False), plain(theirs, usable))
    controls = ["<s>", "</s>", "<|im_end|>", "<|im_start|>"]
    mixed = [f"{controls[n % 4]}{text}{controls[n % 3]} {text}" for n, text in enumerate(usable[::10])]
    assert_same_ids(mixed, lambda text: ours.encode(text, add_bos=False, allow_control=True), plain(theirs, mixed))


def test_sentencepiece_merges_are_hugging_faces(trained: tuple[Any, dict[str, Any]]) -> None:
    from transformers.tokenization_utils_base import generate_merges

    from freehold.text.sentencepiece_merges import merges_from_scores

    _, metadata = trained
    tokens, scores = metadata[PREFIX + "tokens"], metadata[PREFIX + "scores"]
    normal = {token: n for n, token in enumerate(tokens) if metadata[PREFIX + "token_type"][n] == 1}
    expected = generate_merges(normal, {token: scores[n] for token, n in normal.items()})
    assert merges_from_scores(normal, scores) == expected
