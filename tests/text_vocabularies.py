"""Small vocabularies for tests, as GGUF metadata."""

import io
import warnings
from functools import cache
from typing import Any

from freehold.text.gguf_tokenizer import TokenKind, vocabulary_from_gguf
from freehold.text.spelling import CHAR_OF_BYTE
from freehold.text.tokenizer import Tokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its SWIG types
    import sentencepiece

CONTROLS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "PAD"]
ADDED = ["<think>", "</think>", "  "]


def byte_level_metadata(
    *, merges: tuple[str, ...] = ("t h", "th e", "Ġ the", "< |", "| >", "P A", "PA D"), **keys: Any
) -> dict[str, Any]:
    """All 256 bytes, a few merges, controls and added tokens; some merges lead to a control's spelling."""
    tokens = [CHAR_OF_BYTE[byte] for byte in range(256)]
    for merge in merges:
        joined = merge.replace(" ", "")
        if joined not in CONTROLS:
            tokens.append(joined)
    kinds = (
        [TokenKind.NORMAL] * len(tokens) + [TokenKind.CONTROL] * len(CONTROLS) + [TokenKind.USER_DEFINED] * len(ADDED)
    )
    tokens += CONTROLS + ADDED
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in kinds],
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("</s>"),
        **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
    }


@cache
def sentencepiece_model() -> bytes:
    """A small SentencePiece BPE model with byte fallback, trained here."""
    words = "the quick brown fox jumps over lazy dogs while Grüße aus Zürich kommen и ещё этих мягких французских булок"
    letters = [
        chr(point) for point in (*range(0x21, 0x7F), *range(0xC0, 0x100), *range(0x430, 0x450), *range(0x3041, 0x3060))
    ]
    parts = words.split()
    lines = [" ".join(parts[(n * k) % len(parts)] for k in range(1, 9)) + f" {n}  x</s>y" for n in range(300)]
    lines += ["".join(letters[n % len(letters) :][:7]) for n in range(len(letters))]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=900,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=["<think>"],
        control_symbols=["<|im_start|>", "<|im_end|>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


@cache
def sentencepiece_processor() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model())


def sentencepiece_metadata(**keys: Any) -> dict[str, Any]:
    """The same model as GGUF metadata."""
    model = sentencepiece_processor()
    ids = range(model.vocab_size())

    def kind(token_id: int) -> TokenKind:
        if model.is_unknown(token_id):
            return TokenKind.UNKNOWN
        if model.is_control(token_id):
            return TokenKind.CONTROL
        if model.is_byte(token_id):
            return TokenKind.BYTE
        return TokenKind.USER_DEFINED if model.id_to_piece(token_id) == "<think>" else TokenKind.NORMAL

    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [model.id_to_piece(token_id) for token_id in ids],
        "tokenizer.ggml.scores": [model.get_score(token_id) for token_id in ids],
        "tokenizer.ggml.token_type": [int(kind(token_id)) for token_id in ids],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
    }


@cache
def byte_level_tokenizer() -> Tokenizer:
    return Tokenizer(vocabulary_from_gguf(byte_level_metadata()))


@cache
def sentencepiece_tokenizer() -> Tokenizer:
    return Tokenizer(vocabulary_from_gguf(sentencepiece_metadata()))
