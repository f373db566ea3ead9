"""Incremental decoding of characters that tokens cut."""

import itertools
from collections.abc import Iterator

import pytest

from freehold.text.detok import Detokenizer
from freehold.text.tokenizer import Tokenizer
from text_vocabularies import byte_level_tokenizer, sentencepiece_tokenizer


def splits(raw: bytes) -> Iterator[list[bytes]]:
    """All ways to cut bytes into pieces."""
    for cuts in itertools.product([False, True], repeat=len(raw) - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, 1) if cut), len(raw)]
        yield [raw[begin:end] for begin, end in itertools.pairwise(edges)]


def decode_pieces(pieces: list[bytes], prompt: list[bytes] | None = None) -> list[str]:
    """Deltas, with each piece as a token of its own."""
    prompt = prompt or []
    table = prompt + pieces
    detokenizer = Detokenizer(table.__getitem__, range(len(prompt)), strips_space=False)
    deltas = [detokenizer.push(len(prompt) + nth) for nth in range(len(pieces))]
    return [*deltas, detokenizer.finish()]


@pytest.mark.parametrize("text", ["😀", "é", "한", "aé한😀", "\U0010ffff", "߿ࠀ￿𐀀"])
def test_every_way_of_cutting_characters(text: str) -> None:  # tok-01
    for pieces in splits(text.encode()):
        deltas = decode_pieces(pieces)
        assert "".join(deltas) == text
        assert "\ufffd" not in "".join(deltas)
        for delta in deltas:
            delta.encode("utf-8")


INVALID = [
    b"\x80",
    b"\xff\xfe",
    b"\xc0\xaf",
    b"\xe4\xb8a",
    b"\xf0\x9f\x98",
    b"\xf0\x9f\x98\xf0\x9f\x98\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"a\xe4\xb8\xe4\xb8\xadb",
    b"\xf8\x88\x80\x80",
]


@pytest.mark.parametrize("raw", INVALID, ids=repr)
def test_invalid_bytes_decode_as_they_do_at_once(raw: bytes) -> None:
    for pieces in splits(raw):
        assert "".join(decode_pieces(pieces)) == raw.decode("utf-8", "replace")


@pytest.mark.parametrize("character", ["é", "한", "😀"])
def test_a_prompt_that_ends_within_a_character(character: str) -> None:
    raw = character.encode()
    for cut in range(1, len(raw)):
        for lead in ([], [b"Hello world "], [b"\x80\x80"], ["한".encode()]):
            for prompt_pieces in splits(raw[:cut]):
                for pieces in splits(raw[cut:]):
                    deltas = decode_pieces([*pieces, b" new"], [*lead, *prompt_pieces])
                    assert "".join(deltas) == character + " new"


def test_the_prompts_half_character_alone_is_not_emitted() -> None:
    assert decode_pieces([], [b"a", b"\xf0\x9f"]) == [""]
    assert decode_pieces([b"x"], [b"a\xf0\x9f"]) == ["\ufffdx", ""]


def test_prompt_text_never_comes_out(tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("Hello world ", add_bos=True)
    answer = tokenizer.encode("the dog", add_bos=False)
    detokenizer = tokenizer.detokenizer(prompt)
    text = "".join([*map(detokenizer.push, answer), detokenizer.finish()])
    assert "Hello" not in text
    assert tokenizer.decode(prompt + answer) == tokenizer.decode(prompt) + text


def unsplit(tokenizer: Tokenizer, text: str) -> bool:
    return len(tokenizer.encode(text, add_bos=False)) == 1


def test_characters_without_a_token_of_their_own_stream_cleanly(tokenizer: Tokenizer) -> None:
    """tok-04: common emoji have tokens of their own and prove nothing, so ask the vocabulary which characters don't."""
    candidates = [
        chr(point) for point in (*range(0xA1, 0x3000, 97), *range(0x3400, 0xD7A3, 997), *range(0x1F300, 0x1FAFF, 31))
    ]
    split = [
        char for char in candidates if not unsplit(tokenizer, char) and tokenizer.decode(tokenizer.encode(char)) == char
    ]
    assert len(split) > 100
    for char in split:
        prompt = tokenizer.encode("x")
        ids = tokenizer.encode_piece(char, at_start=False)
        detokenizer = tokenizer.detokenizer(prompt)
        deltas = [*map(detokenizer.push, ids), detokenizer.finish()]
        assert "".join(deltas) == char
        assert "\ufffd" not in "".join(deltas)


class TestDummyPrefix:
    """SentencePiece puts a space before every text, and takes it away when decoding."""

    def test_first_space_of_a_text_is_dropped(self) -> None:
        tokenizer = sentencepiece_tokenizer()
        for text in ("the", " the", "  the", " "):
            ids = tokenizer.encode(text)
            detokenizer = tokenizer.detokenizer()
            assert "".join(map(detokenizer.push, ids)) == text == tokenizer.decode(ids)

    def test_a_prompt_of_control_tokens_has_no_text(self) -> None:
        tokenizer = sentencepiece_tokenizer()
        detokenizer = tokenizer.detokenizer([1])
        assert "".join(map(detokenizer.push, tokenizer.encode("the", add_bos=False))) == "the"

    def test_after_prompt_text_the_space_stays(self) -> None:
        tokenizer = sentencepiece_tokenizer()
        detokenizer = tokenizer.detokenizer(tokenizer.encode("x"))
        assert "".join(map(detokenizer.push, tokenizer.encode("the", add_bos=False))) == " the"

    def test_byte_level_vocabularies_have_none(self) -> None:
        tokenizer = byte_level_tokenizer()
        assert tokenizer.decode(tokenizer.encode(" the")) == " the"

    def test_metadata_can_switch_it_off(self) -> None:
        from freehold.text.gguf_tokenizer import vocabulary_from_gguf
        from text_vocabularies import sentencepiece_metadata

        tokenizer = Tokenizer(vocabulary_from_gguf(sentencepiece_metadata(add_space_prefix=False)))
        for text in ("the", " the"):
            assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.encode("the") != sentencepiece_tokenizer().encode("the")
