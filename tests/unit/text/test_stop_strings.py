"""Stop strings: what is held back, which one wins, nothing lost."""

import pytest

from freehold.text.stops import StopMatcher


def feed(stops: list[str], pieces: list[str]) -> tuple[list[str], StopMatcher]:
    matcher = StopMatcher(stops)
    return [matcher.push(piece) for piece in pieces], matcher


def test_a_stop_string_spread_over_pieces_is_never_seen() -> None:
    deltas, matcher = feed(["DEFGHIJ"], ["ABC", "DEF", "G", "HI", "J"])
    assert deltas == ["ABC", "", "", "", ""]
    assert matcher.hit == "DEFGHIJ"
    assert matcher.finish() == ""


def test_only_a_true_beginning_is_held_back() -> None:
    deltas, matcher = feed(["</answer>"], ["x <", "think", "> y </", "b> </ans", "!"])
    assert deltas == ["x ", "<think", "> y ", "</b> ", "</ans!"]
    assert matcher.hit is None
    assert matcher.finish() == ""


def test_held_text_is_given_out_at_the_end() -> None:
    deltas, matcher = feed(["STOP"], ["go ST", "O"])
    assert deltas == ["go ", ""]
    assert matcher.held == "STO"
    assert matcher.finish() == "STO"
    assert matcher.finish() == ""


@pytest.mark.parametrize(
    ("stops", "text", "hit", "before"),
    [
        (["abcd", "bc"], "xabcd", "bc", "xa"),  # bc ends first
        (["bc", "abc"], "xabc", "abc", "x"),  # both end here: the longest
        (["c", "bc", "abc"], "abc", "abc", ""),
        (["ab", "ab"], "zab", "ab", "z"),
        (["aab"], "aaab", "aab", "a"),
        (["abab", "ba"], "abab", "ba", "a"),
        (["\n\n"], "a\n\nb", "\n\n", "a"),
        (["é😀"], "xé😀y", "é😀", "x"),
        (["a"], "a", "a", ""),
    ],
)
def test_the_stop_that_ends_first_wins(stops: list[str], text: str, hit: str, before: str) -> None:
    for pieces in ([text], list(text)):
        deltas, matcher = feed(stops, pieces)
        assert matcher.hit == hit
        assert "".join(deltas) + matcher.finish() == before


def test_text_after_a_hit_is_dropped() -> None:
    deltas, matcher = feed(["|"], ["a|b", "c|", "d"])
    assert deltas == ["a", "", ""]
    assert matcher.hit == "|"


def test_no_stops_hold_nothing() -> None:
    deltas, _ = feed([], ["a", "", "b"])
    assert deltas == ["a", "", "b"]


def test_empty_stop_strings_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])


def test_repetitive_text_is_linear() -> None:
    matcher = StopMatcher(["a" * 255 + "b", "a" * 100 + "c"])
    out = "".join(matcher.push("a" * 50) for _ in range(2000))
    assert len(out) == 100_000 - 255
    assert matcher.finish() == "a" * 255
