"""Recordings: what is written comes back, whatever happened to the files in between."""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.observe.recordings import LARGE, begin, finish, header, record_one, recorder, request, tokens

from freehold.errors import EngineError, RecordingError
from freehold.observe.record import open_recording
from freehold.observe.record import recorder as recorder_module
from freehold.observe.record.format import FORMAT_VERSION, MAGIC, Encoder
from freehold.observe.record.hashes import BLOCK_TOKENS, PromptHasher
from freehold.observe.record.recorder import Recorder
from freehold.observe.record.ring import Ring, RingLimits
from freehold.protocol import Event, Generate, Grammar, Logprobs, Pin, PromptLogprobs, RequestId, StepRows, Tokens


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "recording"


def ids_in(folder: Path) -> list[str]:
    with open_recording(folder) as recording:
        return [found.begun.request_id for found in recording.requests()]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_what_is_recorded_comes_back_whole(folder: Path) -> None:
    generate = request("a", (1, 2, 3), grammar=Grammar(source=b"\x00\xff"), cache_namespace="key salt")
    with recorder(folder) as writing:
        take = begin(writing, generate, key_id="abc")
        writing.step(StepRows(5, 20.0, (RequestId("a"), RequestId("other")), (3, 1)))
        take.see(tokens(generate, 4, 5))
        take.see(finish(generate, 2, num_cached_tokens=2))
    with open_recording(folder) as recording:
        (found,) = recording.requests()
        assert found == recording.find("1-1")
        assert (found.begun.http_id, found.begun.key_id, found.begun.num_prompt_tokens) == ("http-a", "abc", 3)
        assert found.began_unix_s == pytest.approx(1000.0 + found.begun.at_s - 10.0)
        assert found.begun.generate is not None
        assert found.begun.generate.sampling == generate.sampling
        assert found.begun.generate.grammar == generate.grammar
        assert found.ended is not None
        assert (found.ended.outcome, found.ended.reason) == ("finished", "length")
        assert (found.ended.token_ids, found.ended.digests) == ((4, 5), (4000, 5000))
        assert [scored.logprob for scored in found.ended.logprobs] == [-0.4, -0.5]
        assert (found.ended.num_cached_tokens, found.ended.stages) == (2, finish(generate, 2).stages)
        (step,) = recording.steps(1)
        assert (step.step_id, step.numbers, step.num_inputs) == (5, (1, 0), (3, 1))
        assert recording.headers == [header(1)]
        assert recording.faults == []


@pytest.mark.parametrize("detail", ["full", "metadata"])
@pytest.mark.parametrize("with_digests", [False, True])
@pytest.mark.parametrize("num_logprobs", [None, 0])
def test_events_pass_as_they_are_but_for_what_the_client_didnt_ask_for(
    folder: Path, detail: Any, with_digests: bool, num_logprobs: int | None
) -> None:
    generate = request("a", digests=with_digests)
    generate = msgspec.structs.replace(
        generate, sampling=msgspec.structs.replace(generate.sampling, num_logprobs=num_logprobs)
    )
    engine_says: list[Event] = [
        PromptLogprobs(request_id=generate.request_id, start_pos=1, logprobs=(Logprobs(-0.5, 1, ()),) * 2),
        msgspec.structs.replace(tokens(generate, 4, 5), started_s=2.0, held_s=1.0),
        tokens(generate, 6),
        finish(generate, 3, "stop", num_cached_tokens=2, stop_id=6, code="c", message="m"),
    ]
    for event in engine_says:  # so that a field that comes to be is watched too
        if not isinstance(event, Tokens) or event.started_s is not None:
            defaults = zip(event.__struct_fields__[::-1], event.__struct_defaults__[::-1], strict=False)
            assert all(getattr(event, name) != default for name, default in defaults), event
    with recorder(folder) as writing:
        take = begin(writing, generate, detail)
        given = [event if detail == "full" else _without(event, generate) for event in engine_says]
        assert [take.see(event) for event in given] == [_without(event, generate) for event in engine_says]


def _without(event: Event, generate: Generate) -> Event:
    """An event without what the request didn't ask for."""
    if not isinstance(event, Tokens):
        return event
    without = {} if generate.digests else {"digests": ()}
    without |= {} if generate.sampling.num_logprobs is not None else {"logprobs": ()}
    return msgspec.structs.replace(event, **without)


def test_outcomes(folder: Path) -> None:
    with recorder(folder) as writing:
        for name, reason in (("stop", "stop"), ("length", "length"), ("left", "cancelled"), ("broken", "failed")):
            begin(writing, request(name)).see(finish(request(name), 0, reason))
        stopped = begin(writing, request("stop string"))
        stopped.stop()
        stopped.see(finish(request("stop string"), 0, "cancelled"))
        begin(writing, request("refused")).refuse(EngineError("full", code="queue_full"))
        begin(writing, request("running"))
    with open_recording(folder) as recording:
        outcomes = {found.begun.request_id: found.outcome for found in recording.requests()}
    assert outcomes == {
        "stop": "finished", "length": "finished", "left": "cancelled", "broken": "failed", "stop string": "stopped",
        "refused": "refused", "running": None,
    }  # fmt: skip


def test_metadata_holds_nothing_that_was_said(folder: Path) -> None:
    prompt = (1234567, 2345678, 3456789)
    generate = request("a", prompt, cache_namespace="salt-of-theirs", grammar=Grammar(source=b"grammar-of-theirs"))
    with recorder(folder) as writing:
        take = begin(writing, generate, "metadata")
        assert not take.asked.digests
        assert take.asked.sampling.num_logprobs is None
        take.see(tokens(generate, 4567890))
        take.see(finish(generate, 1, "failed", code="numeric_error", message="secret words"))
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    for id in (*prompt, 4567890):
        assert id.to_bytes(4, "big") not in written
    for text in (b"theirs", b"secret words"):
        assert text not in written
    with open_recording(folder) as recording:
        (found,) = recording.requests()
        assert (found.begun.num_prompt_tokens, found.num_output_tokens) == (3, 1)
        assert found.ended is not None
        assert found.ended.code == "numeric_error"


def test_names_that_clients_made_up_are_hashed_in_full_detail_too(folder: Path) -> None:
    with recorder(folder) as writing:
        for name in ("a", "b"):
            record_one(writing, name, cache_namespace="salt-of-theirs", pin=Pin(name="pin-of-theirs", ttl_s=1))
        record_one(writing, "c", cache_namespace="another")
    assert b"theirs" not in b"".join(path.read_bytes() for path in folder.iterdir())
    with open_recording(folder) as recording:
        spaces = [found.begun.generate.cache_namespace for found in recording.requests() if found.begun.generate]
    assert spaces[0] == spaces[1] != spaces[2]


def test_what_the_client_did_not_ask_for_is_kept_from_it(folder: Path) -> None:
    generate = request("a")
    with recorder(folder) as writing:
        take = begin(writing, generate)
        assert take.asked.digests
        assert take.asked.steps
        passed = take.see(tokens(generate, 4))
    assert passed == tokens(generate, 4).__class__(request_id=RequestId("a"), token_ids=(4,))


def test_hashes_tell_which_prompts_begin_alike_and_no_more() -> None:
    hasher = PromptHasher(b"s" * 16)
    long = tuple(range(3 * BLOCK_TOKENS + 5))
    base = hasher.blocks("", long)
    assert len(base) == 4
    assert hasher.blocks("", long[:-1])[:3] == base[:3]
    assert hasher.blocks("", long[:-1])[3] != base[3]
    changed = hasher.blocks("", (long[0] + 1, *long[1:]))
    assert not set(changed) & set(base), "each depends on all before it"
    assert not set(hasher.blocks("other", long)) & set(base)
    assert not set(PromptHasher(b"t" * 16).blocks("", long)) & set(base)
    assert hasher.blocks("", ()) == ()


def test_only_its_owner_may_read_it(folder: Path) -> None:
    with recorder(folder) as writing:
        record_one(writing)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


@pytest.mark.parametrize("kept", range(1, 60, 7))
def test_a_torn_tail_is_cut(folder: Path, kept: int) -> None:
    with recorder(folder) as writing:
        record_one(writing, "whole")
    (segment,) = folder.iterdir()
    whole = segment.read_bytes()
    with recorder(folder) as writing:
        record_one(writing, "later")
    torn = Encoder().encode(header(9)) * 2
    segment.write_bytes(whole + torn[:kept])
    with open_recording(folder) as recording:
        assert [found.begun.request_id for found in recording.requests()] == ["whole", "later"]
        assert len(recording.faults) == 1
        assert str(segment) in recording.faults[0]


def test_no_byte_of_damage_goes_unnoticed(folder: Path) -> None:
    with recorder(folder) as writing:
        record_one(writing, "a")
        record_one(writing, "b")
    (segment,) = folder.iterdir()
    whole = segment.read_bytes()
    with open_recording(folder) as recording:
        intact = list(recording.requests())
    for position in range(0, len(whole), 29):
        segment.write_bytes(whole[:position] + bytes([whole[position] ^ 0x20]) + whole[position + 1 :])
        if position < len(MAGIC) + 4:
            with pytest.raises(RecordingError, match=str(segment)):
                open_recording(segment)
        with open_recording(folder) as recording:
            found = list(recording.requests())
            assert recording.faults, position
        assert all(one in intact or one.ended is None for one in found)


def test_other_formats_and_other_files_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="--record"):
        open_recording(folder)
    folder.mkdir(parents=True)
    with pytest.raises(RecordingError, match="--record"):
        open_recording(folder)
    segment = folder / "00000001.fhr"
    segment.write_bytes(b"SQLite format 3\0")
    with pytest.raises(RecordingError, match="isn't a segment"):
        open_recording(segment)
    segment.write_bytes(b"FHRECORD" + (FORMAT_VERSION + 1).to_bytes(4, "little"))
    with pytest.raises(RecordingError, match=f"format {FORMAT_VERSION + 1}"):
        open_recording(segment)


@pytest.mark.parametrize(
    "content",
    [
        bytes(4096),
        b"SQLite format 3\0",
        b"FHRECORD" + (FORMAT_VERSION + 1).to_bytes(4, "little"),
        b"FHRECORD" + FORMAT_VERSION.to_bytes(4, "little") + bytes(4096),
        None,
    ],
    ids=["zeros", "another kind", "another version", "zeros after its beginning", "a folder"],
)
def test_a_file_that_cant_be_read_takes_nothing_else_with_it(
    folder: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder(folder) as writing:
        record_one(writing, "before")
    alien = folder / "00000009.fhr"
    if content is None:
        alien.mkdir()
        os.utime(alien, (0, 0))  # so old that a segment would go
    else:
        alien.write_bytes(content)
    with recorder(folder, RingLimits(max_bytes=1 << 30, max_age_s=1e6)) as writing:
        record_one(writing, "after")
    assert caplog.messages == [], "recording didn't stop"
    assert ids_in(folder) == ["before", "after"]
    with open_recording(folder) as recording:
        (fault,) = recording.faults
    assert str(alien) in fault


def test_the_ring_stays_within_its_bytes_and_drops_the_oldest(folder: Path) -> None:
    limits = RingLimits(max_bytes=40_000, max_age_s=1e9)
    ring = Ring(folder, limits, lambda run: Encoder().encode(header(run)))
    for _ in range(100):
        ring.append([b"x" * 1500])
        assert sum(path.stat().st_size for path in folder.iterdir()) <= limits.max_bytes + limits.segment_bytes
    ring.close()
    numbers = sorted(int(path.stem) for path in folder.iterdir())
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] > 1
    assert len(numbers) >= 6


def test_old_segments_go_also_when_nothing_comes(folder: Path) -> None:
    now_s = [time.time()]
    limits = RingLimits(max_bytes=1 << 30, max_age_s=80.0)
    ring = Ring(folder, limits, lambda run: Encoder().encode(header(run)), lambda: now_s[0])
    ring.append([b"x"])
    now_s[0] += 50
    ring.append([b"y"])
    os.utime(folder / "00000002.fhr", (now_s[0], now_s[0]))
    ring.append([])
    assert sorted(path.stem for path in folder.iterdir()) == ["00000001", "00000002"]
    now_s[0] += 40
    ring.append([])
    assert [path.stem for path in folder.iterdir()] == ["00000002"]
    now_s[0] += 50
    ring.append([])
    assert list(folder.iterdir()) == []
    ring.close()


def test_a_second_server_is_refused_and_the_next_goes_on_in_a_new_run(folder: Path) -> None:
    with recorder(folder) as first:
        first.open()
        second = Recorder(folder, LARGE, header)
        with pytest.raises(RecordingError, match="another server"):
            second.open()
        record_one(first, "a")
    with recorder(folder) as third:
        record_one(third, "b")
    with open_recording(folder) as recording:
        assert [found.record_id for found in recording.requests()] == ["1-1", "2-1"]


def test_a_server_that_ended_leaves_what_had_begun(folder: Path) -> None:
    with recorder(folder) as writing:
        begin(writing, request("poison"))
        wait_until(lambda: writing.counts.written == 1)
        (segment,) = folder.iterdir()
        assert b"poison" in segment.read_bytes(), "written though it still runs"
    with open_recording(folder) as recording:
        (found,) = recording.requests()
    assert found.ended is None


def test_a_full_disk_stops_recording_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_S", 0.1)
    is_full = threading.Event()
    write = os.write

    def write_if_room(descriptor: int, data: Any) -> int:
        if not is_full.is_set():
            return write(descriptor, data)
        if len(data) > 20:
            return write(descriptor, data[:20])  # what still fits
        raise OSError(errno.ENOSPC, "No space left on device")

    with recorder(folder) as writing:
        record_one(writing, "before")
        wait_until(lambda: writing.counts.written == 2)
        is_full.set()
        monkeypatch.setattr("freehold.observe.record.ring.os.write", write_if_room)
        for name in ("lost 1", "lost 2"):
            record_one(writing, name)
        wait_until(lambda: writing.is_stopped)
        assert writing.begin(request("later"), http_id="", key_id="", detail="full") is None
        time.sleep(0.5)  # some tries in vain
        assert writing.is_stopped
        assert len(list(folder.iterdir())) == 1
        is_full.clear()
        wait_until(lambda: not writing.is_stopped)
        record_one(writing, "after")
    assert ids_in(folder) == ["before", "after"]
    with open_recording(folder) as recording:
        assert recording.faults == [], "what was half written was cut off"
    errors = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert len(errors) == 1
    assert "No space left" in errors[0]
    assert writing.counts.dropped == 5


def test_steps_of_a_request_that_stands_in_several_segments(folder: Path) -> None:
    with recorder(folder, RingLimits(max_bytes=400_000, max_age_s=1e9)) as writing:
        take = begin(writing, request("long"))
        for step in range(300):
            record_one(writing, f"short {step}")
            if step % 3 == 0:
                writing.step(StepRows(step, 20.0, (RequestId("long"), RequestId(f"short {step}")), (1, 2)))
            if step % 50 == 0:
                wait_until(lambda written=2 * step: writing.counts.written >= written)
        take.see(finish(request("long"), 0))
        record_one(writing, "after")
    assert len(list(folder.iterdir())) > 3
    with open_recording(folder) as recording:
        long, *shorts, after = recording.requests()
        assert [step.step_id for step in recording.steps_of(long)] == list(range(0, 300, 3))
        assert [step.step_id for step in recording.steps_of(shorts[150])] == [150]
        assert list(recording.steps_of(after)) == []


def test_a_deleted_segment_is_noticed_and_a_new_one_begun(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with recorder(folder) as writing:
        record_one(writing, "gone")
        wait_until(lambda: writing.counts.written == 2)
        next(folder.iterdir()).unlink()
        record_one(writing, "kept")
    assert ids_in(folder) == ["kept"]
    assert any("was deleted" in line.getMessage() for line in caplog.records)


def test_a_deleted_folder_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_S", 0.1)
    with recorder(folder) as writing:
        record_one(writing, "gone")
        wait_until(lambda: writing.counts.written == 2)
        next(folder.iterdir()).unlink()
        folder.rmdir()
        record_one(writing, "lost")
        wait_until(lambda: folder.exists() and not writing.is_stopped)
        record_one(writing, "kept")
    assert ids_in(folder) == ["kept"]
    assert any("folder was deleted" in line.getMessage() for line in caplog.records)


def test_what_the_disk_does_not_take_in_time_is_dropped_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_PENDING_BYTES", 5000)
    stuck, waiting = threading.Event(), threading.Event()
    append = Ring.append

    def wait(ring: Ring, frames: Any) -> None:
        waiting.set()
        stuck.wait(20)
        append(ring, frames)

    monkeypatch.setattr(Ring, "append", wait)
    with recorder(folder) as writing:
        record_one(writing, "first")
        assert waiting.wait(20)
        for number in range(100):
            writing.begin(request(f"{number}"), http_id="", key_id="", detail="full")
        dropped = writing.counts.dropped
        stuck.set()
    assert 50 < dropped < 100
    assert len(ids_in(folder)) == 101 - dropped


def test_a_recording_can_be_read_while_it_is_written(folder: Path) -> None:
    with recorder(folder, RingLimits(max_bytes=40_000, max_age_s=1e9)) as writing:
        for round in range(10):
            for number in range(10):
                record_one(writing, f"{round}-{number}")
            wait_until(lambda written=20 * (round + 1): writing.counts.written >= written)
            with open_recording(folder) as recording:
                found = list(recording.requests())
            assert found[-1].begun.request_id == f"{round}-9"
            assert all(one.outcome == "finished" for one in found)
        assert len(found) < 100, "the oldest went"
