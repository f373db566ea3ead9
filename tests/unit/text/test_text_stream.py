"""Answers as text: deltas, stops and the one place where everything is cut."""

import pytest

from freehold.protocol import Finish, FinishReason, RequestId, Tokens
from freehold.text.stream import TextDelta, TextResult, TextStream
from freehold.text.tokenizer import Tokenizer
from text_vocabularies import byte_level_tokenizer, sentencepiece_tokenizer

ID = RequestId("r")


def run(
    stream: TextStream, batches: list[list[int]], *, reason: FinishReason = "length", stop_id: int | None = None
) -> tuple[list[TextDelta], TextResult]:
    """Feed batches of ids, with digests 1000 + id, the way an engine does: it goes on until it is told to stop."""
    deltas = []
    for batch in batches:
        deltas.append(
            stream.push(Tokens(request_id=ID, token_ids=tuple(batch), digests=tuple(1000 + i for i in batch)))
        )
    count = sum(map(len, batches))
    finish = Finish(request_id=ID, reason=reason, num_prompt_tokens=3, num_output_tokens=count, stop_id=stop_id)
    return deltas, stream.finish(finish)


def encode(text: str) -> list[int]:
    return byte_level_tokenizer().encode(text, add_bos=False)


def check(deltas: list[TextDelta], result: TextResult) -> None:
    """What holds for every answer."""
    assert "".join(delta.text for delta in deltas) + result.tail == result.text
    assert tuple(i for delta in deltas for i in delta.token_ids) == result.token_ids
    assert tuple(d for delta in deltas for d in delta.digests) == result.digests
    assert result.digests == tuple(1000 + i for i in result.token_ids)
    assert result.num_output_tokens == len(result.token_ids)
    result.text.encode("utf-8")


def test_plain_answer() -> None:
    ids = encode("abc def")
    deltas, result = run(TextStream(byte_level_tokenizer(), []), [[i] for i in ids])
    check(deltas, result)
    assert [delta.text for delta in deltas] == list("abc def")
    assert result == TextResult("abc def", "", tuple(ids), result.digests, "length", None, 3, len(ids), 0)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 50])
def test_a_stop_string_cuts_text_ids_and_digests_at_one_place(size: int) -> None:
    ids = encode("abcSTOPdef")
    batches = [ids[n : n + size] for n in range(0, len(ids), size)]
    stream = TextStream(byte_level_tokenizer(), [], ["STOP"])
    deltas, result = run(stream, batches, reason="cancelled")
    check(deltas, result)
    assert stream.stopped
    assert result.text == "abc"
    assert result.token_ids == tuple(encode("abcSTOP"))
    assert (result.finish_reason, result.stop) == ("stop", "STOP")


def test_a_stop_string_inside_a_token_keeps_that_token() -> None:
    tokenizer = byte_level_tokenizer()
    ids = tokenizer.encode("the", add_bos=False)
    assert len(ids) == 1
    deltas, result = run(TextStream(tokenizer, [], ["h"]), [ids])
    check(deltas, result)
    assert (result.text, result.token_ids) == ("t", tuple(ids))


def test_stopped_tells_at_once() -> None:
    stream = TextStream(byte_level_tokenizer(), [], ["b"])
    ids = encode("abc")
    stream.push(Tokens(request_id=ID, token_ids=(ids[0],)))
    assert not stream.stopped
    stream.push(Tokens(request_id=ID, token_ids=(ids[1],)))
    assert stream.stopped
    assert stream.push(Tokens(request_id=ID, token_ids=(ids[2],))) == TextDelta("", (), ())


def test_held_text_comes_out_at_the_end_whatever_ended_it() -> None:
    tokenizer = byte_level_tokenizer()
    eos = next(iter(tokenizer.eos_ids))
    for reason, tail_ids in (("stop", [eos]), ("length", []), ("cancelled", []), ("failed", [])):
        stop_id = eos if reason == "stop" else None
        stream = TextStream(tokenizer, [], ["STOP"], tokenizer.eos_ids)
        deltas, result = run(stream, [encode("go STO"), tail_ids], reason=reason, stop_id=stop_id)
        check(deltas, result)
        assert result.tail == "STO"
        assert result.text == "go STO"
        assert (result.finish_reason, result.stop) == (reason, stop_id)
        assert result.token_ids == tuple(encode("go STO") + tail_ids)


def test_a_stop_id_has_no_text_even_if_it_is_an_ordinary_token() -> None:
    ids = encode("ab")
    deltas, result = run(TextStream(byte_level_tokenizer(), [], [], [ids[1]]), [ids], reason="stop", stop_id=ids[1])
    check(deltas, result)
    assert (result.text, result.token_ids, result.stop) == ("a", tuple(ids), ids[1])


def test_half_a_character_at_the_end_becomes_a_replacement() -> None:
    ids = encode("a😀")[:-1]
    deltas, result = run(TextStream(byte_level_tokenizer(), []), [ids])
    check(deltas, result)
    assert result.text == "a\ufffd"


def test_a_replacement_at_the_end_may_complete_a_stop_string() -> None:
    ids = encode("a😀")[:-1]
    deltas, result = run(TextStream(byte_level_tokenizer(), [], ["a\ufffd"]), [ids])
    check(deltas, result)
    assert (result.text, result.stop) == ("", "a\ufffd")


def test_digests_are_optional() -> None:
    stream = TextStream(byte_level_tokenizer(), [], ["b"])
    delta = stream.push(Tokens(request_id=ID, token_ids=tuple(encode("abc"))))
    assert delta.digests == ()
    assert delta.token_ids == tuple(encode("ab"))


@pytest.mark.parametrize("tokenizer", [byte_level_tokenizer(), sentencepiece_tokenizer()], ids=["bytes", "pieces"])
def test_control_tokens_in_an_answer_have_no_text(tokenizer: Tokenizer) -> None:
    control = tokenizer.vocabulary.controls["<|im_start|>"].token_id
    ids = tokenizer.encode("the", add_bos=False)
    deltas, result = run(TextStream(tokenizer, tokenizer.encode("x")), [[control], ids, [control]])
    check(deltas, result)
    assert result.text.strip() == "the"
