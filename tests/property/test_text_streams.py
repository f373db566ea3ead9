"""Streams of text over random bytes, cuts and stop strings, against the obvious way."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.text.detok import Detokenizer
from freehold.text.literals import LiteralFinder
from freehold.text.markers import LiteralBreaker, drop
from freehold.text.stops import StopMatcher

MANY = settings(max_examples=400, deadline=None)
PIECES = st.lists(st.one_of(st.binary(max_size=6), st.text(max_size=3).map(lambda text: text.encode())), max_size=12)


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[begin:end] for begin, end in pairwise(edges)]


@MANY
@given(pieces=PIECES)
def test_deltas_join_to_the_full_decoding(pieces: list[bytes]) -> None:
    detokenizer = Detokenizer(pieces.__getitem__, (), strips_space=False)
    deltas = [*map(detokenizer.push, range(len(pieces))), detokenizer.finish()]
    assert "".join(deltas) == b"".join(pieces).decode("utf-8", "replace")
    for delta in deltas:
        delta.encode("utf-8")


@MANY
@given(text=st.text(), places=st.lists(st.integers(0, 10**6), max_size=20))
def test_valid_text_has_no_replacements_however_it_is_cut(text: str, places: list[int]) -> None:
    raw = text.encode()
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    pieces = [raw[begin:end] for begin, end in pairwise(edges)]
    detokenizer = Detokenizer(pieces.__getitem__, (), strips_space=False)
    assert "".join([*map(detokenizer.push, range(len(pieces))), detokenizer.finish()]) == text


@MANY
@given(
    prompt=st.text(), answer=st.text(), place=st.integers(0, 10**6), places=st.lists(st.integers(0, 10**6), max_size=9)
)
def test_prompt_and_answer_join_wherever_the_border_falls(
    prompt: str, answer: str, place: int, places: list[int]
) -> None:
    raw = (prompt + answer).encode()
    border = place % (len(raw) + 1)
    edges = [0, *sorted({border, *(p % (len(raw) + 1) for p in places)}), len(raw)]
    pieces = [raw[begin:end] for begin, end in pairwise(edges)]
    num_prompt = edges.index(border)
    detokenizer = Detokenizer(pieces.__getitem__, range(num_prompt), strips_space=False)
    out = "".join([*map(detokenizer.push, range(num_prompt, len(pieces))), detokenizer.finish()])
    whole_characters = raw[:border].decode("utf-8", "ignore")
    if border < len(raw):
        assert whole_characters + out == prompt + answer
    else:
        assert out == ""


def naive_cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Text before the stop that ends first, the longest of those."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


def naive_hold(text: str, stops: list[str]) -> int:
    """Length of the longest end of the text that a stop begins with."""
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


@MANY
@given(
    text=st.text(alphabet="abé", max_size=40),
    stops=st.lists(st.text(alphabet="abé", min_size=1, max_size=6), max_size=4),
    places=st.lists(st.integers(0, 10**6), max_size=40),
)
def test_stop_strings_against_the_obvious_way(text: str, stops: list[str], places: list[int]) -> None:
    matcher = StopMatcher(stops)
    seen = out = ""
    for piece in cut(text, places):
        seen += piece
        out += matcher.push(piece)
        expected, hit = naive_cut(seen, stops)
        assert matcher.hit == hit
        assert out == (expected if hit else seen[: len(seen) - naive_hold(seen, stops)])
        if hit is not None:
            break
    assert out + matcher.finish() == naive_cut(seen, stops)[0]


@MANY
@given(literals=st.sets(st.text(alphabet="<|>a", min_size=1, max_size=5), min_size=1), text=st.text(alphabet="<|>ab"))
def test_finding_literals_against_the_obvious_way(literals: set[str], text: str) -> None:
    found = [(match.start(), match[0]) for match in LiteralFinder(literals).finditer(text)]
    expected, place = [], 0
    while place < len(text):
        here = [literal for literal in literals if text.startswith(literal, place)]
        if here:
            expected.append((place, max(here, key=len)))
        place += len(max(here, key=len)) if here else 1
    assert found == expected


@MANY
@given(
    literals=st.sets(st.text(alphabet="<|>a", min_size=2, max_size=5), min_size=1),
    texts=st.lists(st.text(alphabet="<|>ab", max_size=8), min_size=1, max_size=4),
)
def test_broken_literals_never_come_together(literals: set[str], texts: list[str]) -> None:
    """However a template joins users' strings, no literal that begins with punctuation is whole in the result."""
    breaker = LiteralBreaker(literals)
    broken = "".join(breaker.break_text(text, "\ue000") for text in texts)
    assert drop(broken, "\ue000") == "".join(texts)
    assert not any(literal in broken for literal in literals if not literal[0].isalnum())
    for text in texts:
        assert (breaker.break_text(text, "\ue000") != text) == breaker.needs_breaking(text)
