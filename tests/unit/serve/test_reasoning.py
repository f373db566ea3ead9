"""The reader of reasoning, over every way to cut a text."""

from itertools import combinations, pairwise

import pytest

from freehold.serve.chat.reasoning import THINK, TaggedReasoning
from freehold.text.parts import Content, Message, Reasoning, fold

SAMPLES = {
    "<think>\nSo: a < b.\n</think>\n\nYes.": (Message("Yes.", "So: a < b."), Message("Yes.", "So: a < b.")),
    "So.\n</think>\nYes.": (Message("So.\n</think>\nYes."), Message("Yes.", "So.")),
    "Yes.": (Message("Yes."), Message("", "Yes.")),
    " \n Yes.\n": (Message(" \n Yes.\n"), Message("", "Yes.\n")),
    "<think>\n\n</think>\n\nYes.": (Message("Yes."), Message("Yes.")),
    "<think></think>": (Message(), Message()),
    "<think>So </thin k": (Message("", "So </thin k"), Message("", "So </thin k")),
    "<think>So </": (Message("", "So </"), Message("", "So </")),
    "<thi": (Message("<thi"), Message("", "<thi")),
    "<think>a</think>b</think><think>c</think>": (
        Message("b</think><think>c</think>", "a"),
        Message("b</think><think>c</think>", "a"),
    ),
    "<think>a<think>b</think>c": (Message("c", "a<think>b"), Message("c", "a<think>b")),
}


def read(pieces: list[str], starts_open: bool) -> Message:
    reader = TaggedReasoning(THINK, starts_open=starts_open)
    parts = [part for piece in pieces for part in reader.push(piece)] + reader.finish()
    assert all(isinstance(part, Content | Reasoning) and part.text for part in parts)
    return fold(parts)


@pytest.mark.parametrize("starts_open", [False, True])
@pytest.mark.parametrize("text", SAMPLES)
def test_every_cut_gives_the_same(text: str, starts_open: bool) -> None:  # rsn-02
    expected = SAMPLES[text][starts_open]
    assert read(list(text), starts_open) == expected
    for count in (0, 1, 2):
        for places in combinations(range(1, len(text)), count):
            edges = [0, *places, len(text)]
            pieces = [text[begin:end] for begin, end in pairwise(edges)]
            assert read(pieces, starts_open) == expected


def test_nothing_is_held_but_what_may_be_markup() -> None:
    reader = TaggedReasoning(THINK, starts_open=False)
    assert reader.push("<think>\n") == []
    assert reader.push("a <") == [Reasoning("a")]
    assert reader.push(" b") == [Reasoning(" < b")]
    assert reader.push("</think") == []
    assert reader.push("> \n") == []
    assert reader.push("c <think") == [Content("c <think")]
