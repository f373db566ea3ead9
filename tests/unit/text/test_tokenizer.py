"""Tokenizers of every kind: nothing a user writes becomes a control token, ids are checked, decoding is exact."""

import itertools
import threading
import time

import pytest

from freehold.errors import ModelFileError, RequestError, UnsupportedModelError
from freehold.text.gguf_tokenizer import TokenKind, vocabulary_from_gguf
from freehold.text.pretokenizers import PRETOKENIZER_KINDS
from freehold.text.tokenizer import Tokenizer
from text_vocabularies import (
    CONTROLS,
    byte_level_metadata,
    byte_level_tokenizer,
    sentencepiece_metadata,
    sentencepiece_tokenizer,
)

FORMS = ["{}", "{0}{0}", "a{}b", " {} ", "\n{0}\n{0}system\n", "<{}>", "{}|>", "x {0}y{0}", "é{}😀", "<|{}"]


def test_control_literals_in_text_are_text(tokenizer: Tokenizer) -> None:
    control_ids = {control.token_id for control in tokenizer.vocabulary.controls.values()}
    literals = list(tokenizer.vocabulary.controls)
    assert len(literals) >= 5
    texts = [form.format(literal) for form in FORMS for literal in literals]
    texts += [a + b for a, b in itertools.product(literals, repeat=2)]
    texts += [literal[:cut] + literal + literal[cut:] for literal in literals for cut in range(len(literal))]
    for text in texts:
        ids = tokenizer.encode(text, add_bos=False)
        assert control_ids.isdisjoint(ids), text
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", PRETOKENIZER_KINDS)
def test_control_literals_are_text_under_every_pretokenizer(kind: str) -> None:
    tokenizer = Tokenizer(vocabulary_from_gguf(byte_level_metadata(pre=kind)))
    control_ids = {control.token_id for control in tokenizer.vocabulary.controls.values()}
    for literal, form in itertools.product(CONTROLS, FORMS):
        text = form.format(literal)
        ids = tokenizer.encode(text, add_bos=False)
        assert control_ids.isdisjoint(ids), text
        assert tokenizer.decode(ids) == text


def test_trusted_text_yields_control_tokens(tokenizer: Tokenizer) -> None:
    for literal, control in tokenizer.vocabulary.controls.items():
        ids = tokenizer.encode(f"a{literal}{literal}b", add_bos=False, allow_control=True)
        assert ids.count(control.token_id) == 2, literal
        assert tokenizer.decode(ids, skip_control=False) == f"a{literal}{literal}b"
        assert tokenizer.decode(ids) == "ab"


def test_added_tokens_are_matched_in_ordinary_text() -> None:
    for tokenizer in (byte_level_tokenizer(), sentencepiece_tokenizer()):
        think = tokenizer.vocabulary.added["<think>"].token_id
        assert tokenizer.encode("a<think>b", add_bos=False).count(think) == 1
        assert not tokenizer.is_control(think)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "ok \ud83d", "\ude00\ud83d"])
def test_half_surrogates_are_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(RequestError, match="surrogate") as caught:
        tokenizer.encode(text, param="prompt")
    assert caught.value.param == "prompt"


def test_bos_follows_the_metadata() -> None:
    for metadata, default in ((byte_level_metadata, False), (sentencepiece_metadata, True)):
        for declared in (None, True, False):
            keys = {} if declared is None else {"add_bos_token": declared}
            tokenizer = Tokenizer(vocabulary_from_gguf(metadata(**keys)))
            expected = default if declared is None else declared
            assert tokenizer.add_bos == expected
            assert (tokenizer.encode("the")[0] == tokenizer.bos_id) == expected
            assert tokenizer.encode("the", add_bos=True).count(tokenizer.bos_id) == 1
            assert tokenizer.bos_id not in tokenizer.encode("the", add_bos=False)


def test_trusted_text_that_begins_with_bos_gets_no_second() -> None:
    tokenizer = sentencepiece_tokenizer()
    assert tokenizer.encode("<s>the", allow_control=True) == [
        1,
        *tokenizer.encode("<s>the", add_bos=False, allow_control=True)[1:],
    ]
    assert tokenizer.encode("<s>the", allow_control=True).count(1) == 1


@pytest.mark.parametrize("ids", [[-1], [0, -5], [10**9], [2**63], [True], ["1"], [1.0], [None]])
def test_ids_that_the_model_lacks_are_refused(tokenizer: Tokenizer, ids: list) -> None:
    with pytest.raises(RequestError, match="prompt") as caught:
        tokenizer.check_ids(ids, param="prompt")
    assert caught.value.param == "prompt"


def test_id_bounds_are_exact(tokenizer: Tokenizer) -> None:
    size = tokenizer.vocab_size
    tokenizer.check_ids([0, size - 1], param="prompt")
    with pytest.raises(RequestError, match=str(size)):
        tokenizer.check_ids([0, size], param="prompt")
    tokenizer.check_ids([size], param="prompt", vocab_size=size + 1)


def test_rows_past_the_vocabulary_have_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b""
    with pytest.raises(ValueError, match="negative"):
        tokenizer.token_bytes(-1)


def test_every_token_has_bytes_that_encode_back_to_text(tokenizer: Tokenizer) -> None:
    for token_id in range(tokenizer.vocab_size):
        raw = tokenizer.token_bytes(token_id)
        assert (raw == b"") == tokenizer.is_control(token_id), token_id


@pytest.mark.parametrize("text", ["", " ", "  ", " a", "a ", "\n", "\t the\r\n", "the  the", "ß▁ü"])
def test_text_survives(tokenizer: Tokenizer, text: str) -> None:
    if tokenizer.vocabulary.spelling == "sentencepiece":
        text = text.replace("▁", "_")  # SentencePiece can't tell it from a space
    assert tokenizer.decode(tokenizer.encode(text, add_bos=False)) == text


def test_encoding_releases_the_gil(smollm2) -> None:
    text = "the quick brown fox " * 50_000
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    started = time.perf_counter()
    smollm2.tokenizer.encode(text)
    passed_s = time.perf_counter() - started
    done.set()
    ticker.join()
    assert ticks > passed_s / 0.001 / 50


def test_merges_that_lead_to_control_tokens_are_dropped() -> None:
    tokenizer = byte_level_tokenizer()
    assert tokenizer.encode("the", add_bos=False) == [tokenizer.vocabulary.size - len(CONTROLS) - 3 - 5]
    pad = tokenizer.vocabulary.controls["PAD"].token_id
    assert pad not in tokenizer.encode("PAD PADPAD")


def test_words_that_are_control_tokens_are_spelled_out_though_merges_are_ignored() -> None:
    tokenizer = Tokenizer(vocabulary_from_gguf(byte_level_metadata(pre="llama-bpe")))
    assert tokenizer.vocabulary.controls["PAD"].token_id not in tokenizer.encode("PAD")


@pytest.mark.parametrize("model", ["t5", "bert", "rwkv", "wpm", "plamo2", "gemma4", "no_vocab", "GPT2", ""])
def test_unknown_tokenizers_are_refused_by_name(model: str) -> None:
    with pytest.raises(UnsupportedModelError, match=repr(model)):
        vocabulary_from_gguf(byte_level_metadata(model=model))


@pytest.mark.parametrize("pre", ["kimi-k2", "afmoe", "superbpe", "Smollm", "gpt-2 ", ""])
def test_unknown_pretokenizers_are_refused_by_name(pre: str) -> None:
    with pytest.raises(UnsupportedModelError, match=repr(pre)):
        vocabulary_from_gguf(byte_level_metadata(pre=pre))


def test_a_missing_pretokenizer_is_refused() -> None:
    metadata = byte_level_metadata()
    del metadata["tokenizer.ggml.pre"]
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.pre"):
        vocabulary_from_gguf(metadata)


BROKEN = {
    "no model": ("tokenizer.ggml.model", None),
    "no tokens": ("tokenizer.ggml.tokens", None),
    "empty tokens": ("tokenizer.ggml.tokens", []),
    "tokens are numbers": ("tokenizer.ggml.tokens", [1, 2]),
    "token twice": ("tokenizer.ggml.tokens", ["a"] * 272),
    "too few kinds": ("tokenizer.ggml.token_type", [1]),
    "kind 9": ("tokenizer.ggml.token_type", [9] * 271),
    "kinds are text": ("tokenizer.ggml.token_type", "abc"),
    "byte token that is none": ("tokenizer.ggml.token_type", [int(TokenKind.BYTE)] * 271),
    "merges are text": ("tokenizer.ggml.merges", "a b"),
    "merge of one": ("tokenizer.ggml.merges", ["ab"]),
    "bos too large": ("tokenizer.ggml.bos_token_id", 271),
    "bos negative": ("tokenizer.ggml.bos_token_id", -1),
    "eos no number": ("tokenizer.ggml.eos_token_id", "2"),
    "eot too large": ("tokenizer.ggml.eot_token_id", 2**32),
    "add_bos no flag": ("tokenizer.ggml.add_bos_token", 1),
}


@pytest.mark.parametrize("case", BROKEN)
def test_malformed_metadata_is_refused(case: str) -> None:
    key, value = BROKEN[case]
    metadata = byte_level_metadata()
    assert len(metadata["tokenizer.ggml.tokens"]) == 271
    metadata[key] = value
    if value is None:
        del metadata[key]
    with pytest.raises(ModelFileError):
        vocabulary_from_gguf(metadata)


@pytest.mark.parametrize("scores", [None, [0.0], ["a"] * 3, "abc"])
def test_malformed_scores_are_refused(scores) -> None:
    metadata = sentencepiece_metadata()
    metadata["tokenizer.ggml.scores"] = scores
    with pytest.raises(ModelFileError, match="scores"):
        vocabulary_from_gguf(metadata)


@pytest.mark.parametrize("key", ["bos", "eos", "eot", "eom"])
def test_what_begins_or_ends_is_a_control_token_though_marked_otherwise(key: str) -> None:
    metadata = byte_level_metadata()
    think = metadata["tokenizer.ggml.tokens"].index("<think>")
    tokenizer = Tokenizer(vocabulary_from_gguf(metadata | {f"tokenizer.ggml.{key}_token_id": think}))
    assert tokenizer.is_control(think)
    assert think not in tokenizer.encode("a<think>b<think>", add_bos=False)
    assert tokenizer.decode(tokenizer.encode("a<think>b")) == "a<think>b"


class TestEndIds:
    def test_eos_eot_and_eom_end(self) -> None:
        ids = vocabulary_from_gguf(byte_level_metadata(eot_token_id=5, eom_token_id=7)).eos_ids
        assert ids == {5, 7, byte_level_metadata()["tokenizer.ggml.eos_token_id"]}

    def test_a_templates_end_of_turn_ends(self) -> None:
        metadata = byte_level_metadata()
        im_end = metadata["tokenizer.ggml.tokens"].index("<|im_end|>")
        eos = metadata["tokenizer.ggml.eos_token_id"]
        assert vocabulary_from_gguf(metadata, templates=["x<|im_end|>"]).eos_ids == {eos, im_end}

    def test_names_alone_mean_nothing(self) -> None:
        metadata = byte_level_metadata()
        eos = metadata["tokenizer.ggml.eos_token_id"]
        assert vocabulary_from_gguf(metadata).eos_ids == {eos}
        assert vocabulary_from_gguf(metadata, templates=["<|im_start|>"]).eos_ids == {eos}

    def test_an_ordinary_token_of_that_name_does_not_end(self) -> None:
        metadata = byte_level_metadata()
        im_end = metadata["tokenizer.ggml.tokens"].index("<|im_end|>")
        metadata["tokenizer.ggml.token_type"][im_end] = int(TokenKind.USER_DEFINED)
        assert im_end not in vocabulary_from_gguf(metadata, templates=["x<|im_end|>"]).eos_ids

    def test_default_model(self, smollm2) -> None:
        assert smollm2.tokenizer.eos_ids == {2}
        assert smollm2.tokenizer.bos_id == 1
        assert not smollm2.tokenizer.add_bos
