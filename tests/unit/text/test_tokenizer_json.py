"""Tokenizers from Hugging Face's files: ids and text as Hugging Face's, control tokens as ours."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from freehold.errors import ModelFileError, RequestError, UnsupportedModelError
from freehold.text.gguf_tokenizer import vocabulary_from_gguf
from freehold.text.json_tokenizer import vocabulary_from_json
from freehold.text.sentencepiece_merges import merges_from_scores
from freehold.text.template import ChatTemplate
from freehold.text.tokenizer import Tokenizer
from text_vocabularies import CONTROLS, sentencepiece_metadata

TEXTS = [
    *("", " ", "  ", "a", " a", "a ", "  a  b", "the quick brown fox", "\n\n the", "Grüße aus Zürich 123", "日本語 😀"),
    *("\t\x00\x07", "é e\u0301", "x</s>y", "<|im_end|>", "a<think>b</think> c", "▁▁x", "<0x0A>", "<s> <s>", "[INST] x"),
]
CONFIG: dict[str, Any] = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": None, "pad_token": "PAD"}


def add_tokens(backend: Backend) -> Backend:
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    backend.add_special_tokens([AddedToken("<|right|>", special=True, normalized=False, rstrip=True)])
    backend.add_special_tokens([AddedToken("<|left|>", special=True, normalized=False, lstrip=True)])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")])
    return backend


def byte_level() -> Backend:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: n for n, char in enumerate(alphabet)} | {"th": 256, "the": 257, "Ġthe": 258, "Ġq": 259}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "q")]
    backend = Backend(models.BPE(vocab, merges))
    split = pre_tokenizers.Split(Regex(r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    backend.normalizer = normalizers.NFC()
    return add_tokens(backend)


def sentencepiece(kind: str) -> Backend:
    """The two ways in which files spell the dummy prefix."""
    metadata = sentencepiece_metadata()
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    normal = {token: n for n, token in enumerate(tokens) if kinds[n] == 1}
    merges = merges_from_scores(normal, metadata["tokenizer.ggml.scores"])
    backend = Backend(
        models.BPE(
            {token: n for n, token in enumerate(tokens)}, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"
        )
    )
    if kind == "prepend":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", kind, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if kind != "never" else [])])
    bos = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", bos)])
    return add_tokens(backend)


BACKENDS: dict[str, Callable[[], Backend]] = {
    "byte_level": byte_level,
    **{kind: lambda kind=kind: sentencepiece(kind) for kind in ("first", "always", "never", "prepend")},
}


@pytest.fixture(params=BACKENDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Tokenizer, Backend]:
    path = tmp_path / "tokenizer.json"
    BACKENDS[request.param]().save(str(path))
    return Tokenizer(vocabulary_from_json(path, tokenizer_config=CONFIG)), Backend.from_file(str(path))


def test_trusted_text_has_hugging_faces_ids(pair: tuple[Tokenizer, Backend]) -> None:
    ours, theirs = pair
    texts = [
        *TEXTS,
        *(f"{a}{control}{b}" for control in [*CONTROLS, "<|right|>", "<|left|>"] for a in TEXTS for b in TEXTS),
    ]
    for text in texts:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_bos=False, allow_control=True) == expected, text


def test_ordinary_text_has_hugging_faces_ids_for_special_tokens_off(pair: tuple[Tokenizer, Backend]) -> None:
    ours, theirs = pair
    theirs.encode_special_tokens = True
    for text in TEXTS:
        expected = theirs.encode(text, add_special_tokens=False).ids
        ids = ours.encode(text, add_bos=False)
        assert ids == expected, text
        assert not any(ours.is_control(token_id) for token_id in ids), text


def test_decoding_is_hugging_faces(pair: tuple[Tokenizer, Backend]) -> None:
    ours, theirs = pair
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
        assert ours.decode(ids, skip_control=False) == theirs.decode(ids, skip_special_tokens=False), text
        detokenizer = ours.detokenizer()
        assert "".join([*map(detokenizer.push, ids), detokenizer.finish()]) == ours.decode(ids)


def test_chats_have_hugging_faces_ids(pair: tuple[Tokenizer, Backend]) -> None:
    ours, theirs = pair
    template = ChatTemplate(
        "{{ bos_token }}{% for m in messages %}[INST]{{ m.content }}<|right|> {{ m.role }} <|left|>{% endfor %}",
        special_tokens=ours.special_tokens,
        controls=ours.vocabulary.controls,
        added=ours.vocabulary.added,
    )
    try:
        for text in TEXTS:
            if any(control in text for control in CONTROLS):
                continue
            rendered = template.render([{"role": "user", "content": text}, {"role": "user", "content": text * 2}])
            assert rendered.encode(ours) == theirs.encode(rendered.text, add_special_tokens=False).ids, text
    finally:
        template.close()


def test_bos_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    backend = sentencepiece("first")
    backend.save(str(path))
    ids = {text: backend.token_to_id(text) for text in ("<s>", "</s>", "<|im_end|>", "[INST]")}

    def load(**arguments: Any) -> Tokenizer:
        config = CONFIG | arguments.pop("tokenizer_config", {})
        return Tokenizer(vocabulary_from_json(path, tokenizer_config=config, **arguments))

    assert load().bos_id == ids["<s>"]
    assert load().add_bos, "the post-processor adds it"
    assert not load(tokenizer_config={"add_bos_token": False}).add_bos
    assert load().eos_ids == {ids["</s>"]}
    assert load(config={"eos_token_id": 5}).eos_ids == {ids["</s>"], 5}
    assert load(generation_config={"eos_token_id": [6, 7]}, config={"eos_token_id": 5}).eos_ids == {ids["</s>"], 6, 7}
    assert load(templates=["<|im_end|>"]).eos_ids == {ids["</s>"], ids["<|im_end|>"]}
    assert load().special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "PAD"}
    for wrong in (-1, 10**6, "2", 1.5, True, [1, -1], [None]):
        with pytest.raises(ModelFileError, match="eos_token_id"):
            load(generation_config={"eos_token_id": wrong})
    for wrong in ("<nope>", 5, ["<s>"]):
        with pytest.raises(ModelFileError, match="bos_token"):
            load(tokenizer_config={"bos_token": wrong})


@pytest.mark.parametrize("literal", ["<think>", "the"])
def test_what_the_configuration_names_is_a_control_token(tmp_path: Path, literal: str) -> None:
    """Marked as not special, or not marked at all: a user's text doesn't become it."""
    path = tmp_path / "tokenizer.json"
    byte_level().save(str(path))
    tokenizer = Tokenizer(vocabulary_from_json(path, tokenizer_config=CONFIG | {"eos_token": literal}))
    (eos,) = tokenizer.eos_ids
    assert tokenizer.is_control(eos)
    for text in (literal, literal * 2, f"a{literal}b", f" {literal} "):
        ids = tokenizer.encode(text, add_bos=False)
        assert eos not in ids
        assert tokenizer.decode(ids) == text
    assert tokenizer.encode(f"a{literal}", allow_control=True)[-1] == eos


def test_byte_level_adds_no_bos_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    byte_level().save(str(path))
    assert not Tokenizer(vocabulary_from_json(path, tokenizer_config=CONFIG)).add_bos


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"), "WordPiece"),
        (models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"), "WordLevel"),
        (models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0, False), "Unigram"),
    ],
)
def test_other_models_are_refused_by_name(tmp_path: Path, model: Any, name: str) -> None:
    Backend(model).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UnsupportedModelError, match=name):
        vocabulary_from_json(tmp_path / "tokenizer.json", tokenizer_config={})


@pytest.mark.parametrize("decoder", [None, decoders.BPEDecoder(), decoders.WordPiece(), decoders.CTC()])
def test_other_decoders_are_refused(tmp_path: Path, decoder: Any) -> None:
    backend = Backend(models.BPE({"a": 0}, []))
    if decoder is not None:
        backend.decoder = decoder
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UnsupportedModelError, match="decoder"):
        vocabulary_from_json(tmp_path / "tokenizer.json", tokenizer_config={})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": {"type": "Alien"}}', "\x00" * 100])
def test_malformed_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        vocabulary_from_json(path, tokenizer_config={})


def test_a_control_token_that_cannot_be_spelled_is_refused(tmp_path: Path) -> None:
    """A vocabulary may make an ordinary letter a control token, and have no other spelling for it."""
    path = tmp_path / "tokenizer.json"
    backend = byte_level()
    state = json.loads(backend.to_str())
    state["added_tokens"].append({**state["added_tokens"][0], "id": state["model"]["vocab"]["z"], "content": "z"})
    state["added_tokens"].sort(key=lambda token: token["id"])
    path.write_text(json.dumps(state))
    tokenizer = Tokenizer(vocabulary_from_json(path, tokenizer_config=CONFIG))
    assert tokenizer.encode("the")
    with pytest.raises(RequestError, match="'z'"):
        tokenizer.encode("a z b")


def test_same_vocabulary_from_both_formats(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    sentencepiece("prepend").save(str(path))
    from_json = Tokenizer(vocabulary_from_json(path, tokenizer_config={}))
    from_gguf = Tokenizer(vocabulary_from_gguf(sentencepiece_metadata()))
    for text in TEXTS:
        if "[INST]" in text or "think" in text:
            continue
        assert from_json.encode(text, add_bos=False) == from_gguf.encode(text, add_bos=False), text
