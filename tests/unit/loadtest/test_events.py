"""Server-sent events are the same however their bytes are cut, and whatever ends their lines."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.loadtest.client import events
from freehold.loadtest.client.events import EventReader, EventTooLongError

STREAM = (
    b"\xef\xbb\xbfdata: one\n\n: a comment\nevent: x\nid: 7\ndata: two\ndata:three\n\n\n\ndata\n\n"
    b"data:  \xf0\x9f\x8c\x8a\n\nretry: 5\n\ndata: [DONE]\n\n"
)
DATA = [b"one", b"two\nthree", b"", b" \xf0\x9f\x8c\x8a", b"[DONE]"]


def read(parts: list[bytes]) -> list[bytes]:
    reader = EventReader()
    return [data for part in parts for data in reader.feed(part)]


def ended(lines: list[bytes], ends: list[bytes]) -> bytes:
    """Lines with these ends in turns. A CR before an empty line's LF would be one end of both kinds, not two."""
    stream = b""
    for number, line in enumerate(lines):
        end = ends[number % len(ends)]
        stream += line + (b"\r\n" if end == b"\n" and not line and stream.endswith(b"\r") else end)
    return stream


@settings(max_examples=50, deadline=None)
@given(ends=st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=1), cuts=st.lists(st.integers(0, 200)))
def test_any_cut_and_any_end_of_line(ends: list[bytes], cuts: list[int]) -> None:
    stream = ended(STREAM.split(b"\n")[:-1], ends)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assert read([stream[start:end] for start, end in pairwise(edges)]) == DATA


def test_byte_by_byte() -> None:
    assert read([STREAM[at : at + 1] for at in range(len(STREAM))]) == DATA


def test_an_event_is_out_with_its_last_byte() -> None:
    reader = EventReader()
    assert reader.feed(b"data: x\n") == []
    assert reader.feed(b"\n") == [b"x"]


def test_a_last_event_that_the_end_of_the_stream_ends() -> None:
    reader = EventReader()
    assert reader.feed(b"data: x") == []
    assert reader.finish() == [b"x"]
    assert reader.finish() == []


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENT_BYTES", 100)
    reader = EventReader()
    for _ in range(20):
        reader.feed(b"data:\ndata: xx\n")
    with pytest.raises(EventTooLongError):
        reader.feed(b"x" * 61)
