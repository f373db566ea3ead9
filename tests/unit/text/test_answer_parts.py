"""Parts of answers: their fold, and where stop strings act."""

import pytest

from freehold.serve.chat.reasoning import THINK, TaggedReasoning
from freehold.text.answer import AnswerReader, Reading
from freehold.text.parts import (
    Call,
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Message,
    Part,
    Reasoning,
    fold,
)

THINKING = Reading(reasoning=lambda: TaggedReasoning(THINK, starts_open=False))


class OneCall:
    """Takes ``!`` for a call without arguments."""

    def push(self, text: str) -> list[Part]:
        before, mark, after = text.partition("!")
        call: list[Part] = [CallBegin(0, "c0", "f"), CallArguments(0, "{}"), CallEnd(0)] if mark else []
        return [*([Content(before)] if before else []), *call, *([Content(after)] if after else [])]

    def finish(self) -> list[Part]:
        return []


def read(reading: Reading, stops: list[str], pieces: list[str]) -> tuple[AnswerReader, Message]:
    reader = AnswerReader(reading, stops)
    parts: list[Part] = []
    for piece in pieces:
        if not reader.has_ended:
            parts += reader.push(piece, stops=True)
    return reader, fold([*parts, *reader.finish("", stops=True)])


def test_fold_joins_parts_of_a_kind_in_order() -> None:
    parts: list[Part] = [
        Reasoning("a"),
        Reasoning("b"),
        Content("c"),
        CallBegin(0, "c0", "f"),
        CallArguments(0, '{"x":'),
        CallArguments(0, " 1}"),
        CallEnd(0),
        Content("d"),
        CallBegin(1, "c1", "g"),
        CallArguments(1, "{"),
    ]
    calls = (Call("c0", "f", '{"x": 1}', True), Call("c1", "g", "{", False))
    assert fold(parts) == Message("cd", "ab", calls)


@pytest.mark.parametrize("pieces", [["<think>9.8</think>9.1, not 9.8."], list("<think>9.8</think>9.1, not 9.8.")])
def test_stop_strings_do_not_act_in_reasoning(pieces: list[str]) -> None:  # stop-05
    reader, message = read(THINKING, ["9.8"], pieces)
    assert message == Message("9.1, not ", "9.8")
    assert reader.stop == "9.8"


def test_held_text_goes_through_every_reader() -> None:  # stop-04
    """What the reasoning reader holds at the end is content that the stop matcher then holds."""
    _, message = read(THINKING, ["<thinking>"], ["  <thin"])
    assert message == Message("  <thin")
    reader, message = read(THINKING, ["<thin"], ["  <thin"])
    assert (message, reader.stop) == (Message("  "), "<thin")


@pytest.mark.parametrize("stop", ["</think>zzzzzzzzzzzz", "zzzzzzzzzzzzzzzzzzzzzzz"])
def test_long_stop_strings_do_not_hide_tags_from_the_reader(stop: str) -> None:  # stop-06
    _, message = read(THINKING, [stop], list("<think>a</think>b"))
    assert message == Message("b", "a")


def test_stop_strings_do_not_reach_across_a_call() -> None:
    reader, message = read(Reading(calls=OneCall), ["AB"], ["A", "!", "B"])
    assert (message.content, len(message.calls), reader.stop) == ("AB", 1, None)
    reader, message = read(Reading(calls=OneCall), ["AB"], ["A!xA", "B"])
    assert (message.content, reader.stop) == ("Ax", "AB")


def test_one_call_ends_the_answer() -> None:
    reader, message = read(Reading(calls=OneCall, one_call=True), [], ["a!b", "c"])
    assert (message.content, len(message.calls), reader.has_ended, reader.stop) == ("a", 1, True, None)


def test_tokens_of_reasoning_are_counted_with_its_tags() -> None:
    for pieces, expected in (
        (["<think>", "a", "b", "</think>", "\n\n", "c"], 4),
        (["<", "think", ">", "a", "</", "think", ">", "c"], 7),
        ([" ", "<thi", "x"], 0),
        (["<think>", "a"], 2),
        (["c", "<think>", "a"], 0),
    ):
        reader, _ = read(THINKING, [], pieces)
        assert reader.num_reasoning_tokens == expected, pieces
