"""Answers as text: deltas, stops and the one place where everything is cut."""

import pytest

from freehold.protocol import Finish, FinishReason, Logprobs, PromptLogprobs, RequestId, Tokens
from freehold.text.parts import Content, Message
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
    assert "".join(delta.text for delta in deltas) + result.tail_text == result.text
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
    parts = tuple(Content(text) for text in "abc def")
    assert result == TextResult(
        Message("abc def"), parts, (), tuple(ids), result.digests, "length", None, 3, len(ids), 0
    )


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
    assert stream.push(Tokens(request_id=ID, token_ids=(ids[2],))) == TextDelta((), (), ())


def test_held_text_comes_out_at_the_end_whatever_ended_it() -> None:
    tokenizer = byte_level_tokenizer()
    eos = next(iter(tokenizer.eos_ids))
    for reason, tail_ids in (("stop", [eos]), ("length", []), ("cancelled", []), ("failed", [])):
        stop_id = eos if reason == "stop" else None
        stream = TextStream(tokenizer, [], ["STOP"], tokenizer.eos_ids)
        deltas, result = run(stream, [encode("go STO"), tail_ids], reason=reason, stop_id=stop_id)
        check(deltas, result)
        assert result.tail_text == "STO"
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


def scored(ids: list[int]) -> Tokens:
    """Tokens whose log probability tells their id, each beside the next id."""
    scores = tuple(Logprobs(-i / 8, 1, ((i, -i / 8), (i + 1, -i / 8 - 1))) for i in ids)
    return Tokens(request_id=ID, token_ids=tuple(ids), logprobs=scores)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize("answer", ["abcSTOPdef", "a😀bSTOP", "é語STO", ""])
def test_log_probabilities_are_cut_with_the_ids(answer: str, size: int) -> None:
    tokenizer, ids = byte_level_tokenizer(), encode(answer)
    stream = TextStream(tokenizer, [], ["STOP"])
    deltas = [stream.push(scored(ids[n : n + size])) for n in range(0, len(ids), size)]
    result = stream.finish(Finish(request_id=ID, reason="length", num_prompt_tokens=0, num_output_tokens=len(ids)))
    assert sum((delta.logprobs for delta in deltas), ()) == result.logprobs
    assert sum((delta.pieces for delta in deltas), ()) == result.pieces
    assert [score.token_id for score in result.logprobs] == list(result.token_ids)
    assert len(result.pieces) == len(result.token_ids)
    assert "".join(result.pieces).partition("STOP")[0] == result.text
    cut = answer.partition("STOP")[0] + ("STOP" if "STOP" in answer else "")
    assert b"".join(score.bytes or b"" for score in result.logprobs) == cut.encode()
    for score in result.logprobs:
        assert score.logprob == -score.token_id / 8
        assert [other.token_id for other in score.top] == [score.token_id, score.token_id + 1]
        assert score.top[0].bytes == score.bytes == tokenizer.token_bytes(score.token_id)


def test_a_token_by_itself_is_readable_and_its_bytes_are_exact() -> None:
    tokenizer = byte_level_tokenizer()
    control = tokenizer.vocabulary.controls["<|im_start|>"].token_id
    ids = encode("😀")
    assert len(ids) > 1
    spelled = [tokenizer.spell(token_id) for token_id in [*ids, control, *encode("é")]]
    assert b"".join(raw or b"" for _, raw in spelled) == "😀é".encode()
    assert "".join(text for text, _ in spelled[: len(ids)]) == "\\xf0\\x9f\\x98\\x80"
    assert spelled[len(ids)] == ("<|im_start|>", None)
    assert tokenizer.spell(tokenizer.vocab_size + 7) == (f"<{tokenizer.vocab_size + 7}>", None)


def test_a_prompts_log_probabilities_come_with_its_tokens() -> None:
    ids = encode("abc")
    stream = TextStream(byte_level_tokenizer(), ids)
    events = [
        PromptLogprobs(request_id=ID, start_pos=pos, logprobs=scored(ids[pos : pos + 1]).logprobs) for pos in (1, 2)
    ]
    deltas = [stream.push(event) for event in events]
    result = stream.finish(Finish(request_id=ID, reason="length", num_prompt_tokens=3, num_output_tokens=0))
    assert [score.token for score in result.prompt_logprobs] == ["b", "c"]
    assert sum((delta.prompt_logprobs for delta in deltas), ()) == result.prompt_logprobs
    assert result.logprobs == result.token_ids == ()


def test_an_answer_that_is_not_wanted_is_dropped_whole() -> None:
    tokenizer = byte_level_tokenizer()
    eos_id = min(tokenizer.eos_ids)
    ends: list[tuple[list[int], FinishReason, int | None]] = [(encode("a"), "length", None), ([eos_id], "stop", eos_id)]
    for ids, reason, stop_id in ends:
        stream = TextStream(tokenizer, [], ["a"], tokenizer.eos_ids, wants_output=False)
        assert stream.push(scored(ids)) == TextDelta((), (), ())
        finish = Finish(request_id=ID, reason=reason, num_prompt_tokens=3, num_output_tokens=1, stop_id=stop_id)
        result = stream.finish(finish)
        assert (result.text, result.token_ids, result.logprobs, result.num_output_tokens) == ("", (), (), 0)
        assert (result.finish_reason, result.stop) == ("length", None)
    failed = Finish(request_id=ID, reason="failed", num_prompt_tokens=3, num_output_tokens=0)
    assert TextStream(tokenizer, [], wants_output=False).finish(failed).finish_reason == "failed"


@pytest.mark.parametrize("size", [1, 3, 50])
@pytest.mark.parametrize(
    ("min_tokens", "text", "num_tokens"),
    [(0, "a", 2), (1, "a", 2), (2, "axb", 4), (3, "axb", 4), (4, "axbxc", 6), (6, "axbxcxd", 7), (99, "axbxcxd", 7)],
)
def test_stop_strings_are_not_looked_for_too_early(min_tokens: int, text: str, num_tokens: int, size: int) -> None:
    """One token a letter."""
    ids = encode("axbxcxd")
    assert len(ids) == 7
    stream = TextStream(byte_level_tokenizer(), [], ["x"], min_tokens=min_tokens)
    _, result = run(stream, [ids[n : n + size] for n in range(0, 7, size)])
    assert (result.text, result.num_output_tokens) == (text, num_tokens)


def test_a_stop_string_that_begins_too_early_is_none() -> None:
    ids = encode("abxyxy")
    _, result = run(TextStream(byte_level_tokenizer(), [], ["xy"], min_tokens=3), [[i] for i in ids])
    assert (result.text, result.stop) == ("abxy", "xy")


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
