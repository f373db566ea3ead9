"""Frames between two processes: whole, in order, bounded, and never trusted."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_fixtures import generate, scripted_config
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.engine import ipc
from freehold.engine.ipc import Beat, Channel, Ended, Events, FrameError, FromEngine, NotLoaded, Ready, Start, ToEngine
from freehold.observe.profile import (
    MachineLimits,
    NotProfiled,
    Peak,
    Profiled,
    ProfileId,
    StartProfile,
    StepProfile,
    StopProfile,
)
from freehold.protocol import Abort, Drain, EngineInfo, Finish, RequestId, Tokens
from freehold.sched.admission import Limits

TIMEOUT_S = 60.0
A = RequestId("a")
INFO = EngineInfo(
    model_family="m", vocab_size=1, max_model_len=2, max_position=3, max_num_seqs=4, block_size=5, num_blocks=6,
    kv_tokens=7, weight_bytes=8, kv_bytes=9, scratch_bytes=10, backend="cpu", fingerprint="fh-1", load_s=0.5,
)  # fmt: skip
PEAK = Peak("int8", 1e12, True)
PROFILE = StepProfile(
    phases=("norm",), places=("plan", "idle"), num_threads=2, steps=bytes(range(32)), work=bytes(24), busy=bytes(8),
    spans=b"", beats=b"", start_ns=1 << 60, end_ns=2, num_skipped_steps=3, num_lost_spans=4, num_lost_beats=5,
    limits=MachineLimits("avx2", 2, 1 << 60, 1e9, PEAK, PEAK),
)  # fmt: skip
DOWN = [
    Start(scripted_config(cache_dir=Path("/some/wh€re"), memory_limit_bytes=None), "info"),
    generate("a", (0, 1, 1 << 31), digests=True, seed=(1 << 64) - 1, max_tokens=1 << 40, stop_ids=frozenset({2, 3})),
    Abort(A),
    Drain(0.25),
    StartProfile(ProfileId(3), 100, 200_000),
    StopProfile(ProfileId(3)),
]
UP = [
    Ready(INFO, Limits(1, 2, 3, 4, 5)),
    NotLoaded("ConfigError", "no"),
    Events((Tokens(request_id=A, token_ids=(1, 2), digests=((1 << 64) - 1, 0)),)),
    Events((Finish(request_id=A, reason="stop", num_prompt_tokens=1, num_output_tokens=2, stop_id=2),)),
    Beat(0.5, True, "idle"),
    Profiled(ProfileId(3), PROFILE),
    NotProfiled(ProfileId(3), "limits_unknown", "no"),
    Ended("why"),
]


class Pair:
    """Two ends, the second one raw or a channel of its own."""

    def __init__(self, incoming: Any) -> None:
        ours, self.raw = socket.socketpair()
        self.channel: Channel[Any] = Channel(ours, incoming)
        self.raw.settimeout(TIMEOUT_S)

    def close(self) -> None:
        self.channel.close()
        self.raw.close()

    def receive(self, number: int) -> list[Any]:
        """So many messages."""
        messages: list[Any] = []
        while len(messages) < number:
            arrived = self.channel.receive(TIMEOUT_S)
            assert arrived or messages
            messages += arrived
        return messages


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair(FromEngine)
    yield pair
    pair.close()


def frames(messages: list[Any]) -> bytes:
    """What `messages` look like on the wire."""
    ours, theirs = socket.socketpair()
    with theirs:
        channel: Channel[Any] = Channel(ours, FromEngine)
        received = bytearray()
        reader = threading.Thread(
            target=lambda: [received.extend(part) for part in iter(lambda: theirs.recv(65536), b"")]
        )
        reader.start()
        for message in messages:
            channel.send(message)
        channel.flush()
        channel.close()
        reader.join()
    return bytes(received)


@pytest.mark.parametrize("message", DOWN + UP, ids=lambda message: type(message).__name__)
def test_every_message_arrives_as_it_was(message: Any) -> None:
    pair = Pair(ToEngine if message in DOWN else FromEngine)
    pair.raw.sendall(frames([message]))
    (arrived,) = pair.receive(1)
    assert arrived == message
    assert type(arrived) is type(message)
    pair.close()


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_frames_may_be_cut_anywhere(data: st.DataObject) -> None:
    messages = data.draw(st.lists(st.sampled_from(UP), min_size=1, max_size=8))
    wire = frames(messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=12)))
    pair = Pair(FromEngine)
    arrived: list[Any] = []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        if start < end:
            pair.raw.sendall(wire[start:end])
            arrived += pair.channel.receive(TIMEOUT_S)
    assert arrived == messages
    pair.close()


def test_a_steps_events_are_one_small_frame() -> None:
    events = tuple(Tokens(request_id=RequestId(f"chatcmpl-{i:032x}-0"), token_ids=(40000 + i,)) for i in range(64))
    wire = frames([Events(events)])
    assert int.from_bytes(wire[:4], "big") == len(wire) - 4
    assert len(wire) < 64 * 120


@pytest.mark.parametrize(
    "junk",
    [
        b"\xff\xff\xff\xff",
        (ipc.MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\0\0\0\0",
        b"\0\0\0\1\xc1",
        b"\0\0\0\3abc",
        b"GET / HTTP/1.1\r\n\r\n",
        *(len(body).to_bytes(4, "big") + body for body in map(msgspec.msgpack.encode, (
            None, 5, {"type": "Beat"}, {"type": "Nonsense"}, {"type": "Beat", "still_s": "x", "is_starved": True},
            {"type": "Events", "events": [{"type": "Tokens", "request_id": 5, "token_ids": [1]}]},
            {"type": "Events", "events": [{"type": "Tokens", "request_id": "a", "token_ids": [1.5]}]},
            {"type": "Drain", "deadline_s": 1.0},
        ))),
        b"\0\0\x10\0" + b"\x91" * 4096,
    ],
    ids=repr,
)  # fmt: skip
def test_junk_is_an_error(pair: Pair, junk: bytes) -> None:
    pair.raw.sendall(junk)
    with pytest.raises(FrameError):
        pair.receive(1)


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=64))
def test_random_bytes_are_an_error_or_wait_for_more(junk: bytes) -> None:
    pair = Pair(FromEngine)
    pair.raw.sendall(junk)
    with contextlib.suppress(FrameError):
        assert pair.channel.receive(TIMEOUT_S) == []
    pair.close()


def test_half_a_frame_is_an_end(pair: Pair) -> None:
    pair.raw.sendall(frames([Beat(0.0, False, "idle")])[:-1])
    assert pair.channel.receive(TIMEOUT_S) == []
    assert pair.channel.receive(0.01) == []
    pair.raw.close()
    with pytest.raises(EOFError):
        pair.channel.receive(TIMEOUT_S)


def test_who_sends_never_waits_for_who_reads(pair: Pair) -> None:
    """Far more than a socket holds, to a reader that doesn't read; later all of it arrives, in order."""
    ours, theirs = socket.socketpair()
    sender: Channel[Any] = Channel(ours, ToEngine)
    receiver: Channel[Any] = Channel(theirs, FromEngine)
    started_s = time.monotonic()
    sent = [Events((Tokens(request_id=A, token_ids=tuple(range(i, i + 5000))),)) for i in range(400)]
    for message in sent:
        sender.send(message)
    assert time.monotonic() - started_s < TIMEOUT_S / 2
    assert sender.pending_bytes > 1 << 20
    arrived: list[Any] = []
    while len(arrived) < len(sent):
        arrived += receiver.receive(TIMEOUT_S)
    assert arrived == sent
    sender.flush()
    assert sender.pending_bytes == 0
    sender.close()
    receiver.close()


def test_several_threads_may_send(pair: Pair) -> None:
    ours, theirs = socket.socketpair()
    sender: Channel[Any] = Channel(ours, ToEngine)
    receiver: Channel[Any] = Channel(theirs, FromEngine)

    def send(first: int) -> None:
        for i in range(500):
            sender.send(Beat(float(1000 * first + i), False, "idle"))

    threads = [threading.Thread(target=send, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    arrived: list[float] = []
    while len(arrived) < 2000:
        arrived += [message.still_s for message in receiver.receive(TIMEOUT_S)]
    for thread in threads:
        thread.join()
    for first in range(4):
        assert [still_s for still_s in arrived if still_s // 1000 == first] == [1000.0 * first + i for i in range(500)]
    sender.close()
    receiver.close()


@pytest.mark.parametrize("is_full", [False, True])
def test_sending_to_someone_who_is_gone_does_nothing(pair: Pair, is_full: bool) -> None:
    if is_full:
        for _ in range(50):
            pair.channel.send(Events((Tokens(request_id=A, token_ids=(7,) * 20000),)))
        assert pair.channel.pending_bytes
    pair.raw.close()
    for _ in range(50):
        pair.channel.send(Beat(0.0, False, "idle"))
    pair.channel.flush()
    with pytest.raises(EOFError):
        pair.channel.receive(TIMEOUT_S)


class BrokenSocket(socket.socket):
    """Takes nothing at once, and fails in a way that sockets don't."""

    def send(self, *_arguments: Any) -> int:
        raise BlockingIOError

    def sendall(self, *_arguments: Any) -> None:
        raise MemoryError


def test_a_writer_that_fails_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    channel: Channel[Any] = Channel(BrokenSocket(fileno=ours.detach()), FromEngine)
    channel.send(Beat(0.0, False, "idle"))
    theirs.settimeout(TIMEOUT_S)
    assert theirs.recv(1) == b"", "the other side learns of it"
    channel.flush()
    channel.send(Beat(0.0, False, "idle"))
    assert channel.pending_bytes == 0
    assert "nothing more can be sent" in caplog.text
    channel.close()
    theirs.close()


def test_a_message_that_is_too_large_is_not_sent(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipc, "MAX_FRAME_BYTES", 100)
    with pytest.raises(FrameError, match="100"):
        pair.channel.send(NotLoaded("", "x" * 101))
    pair.channel.send(NotLoaded("", "x"))
    assert pair.raw.recv(1000).count(b"NotLoaded") == 1
