"""Replays: the same engine repeats everything to the bit, and whatever is another is found and named."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recorded_load import config, record, traffic, write_model

from freehold.engine.client import Engine
from freehold.errors import RecordingError
from freehold.files.tensors import DType
from freehold.observe.record import open_recording
from freehold.observe.record.format import Encoder, Ended, Frame, bodies, decode, preface, read_preface
from freehold.replay.cause import NONDETERMINISM
from freehold.replay.replay import Options, recorded_settings, replay
from freehold.replay.report import Report, lines
from freehold.replay.run import Pace

NUM_REQUESTS = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "m.gguf")


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    record(folder, config(model), traffic(3, NUM_REQUESTS))
    return folder


def replayed(folder: Path, model: Path, *, bisect: bool = False, concurrency: int = 8, **changes: Any) -> Report:
    with open_recording(folder) as recording:
        options = Options(Pace(concurrency=concurrency), with_bisection=bisect)
        return replay(recording, config(model, **changes), options, Engine.start)


def the_cause(report: Report) -> str:
    """The one cause of all differences, and that a person is told of it."""
    (cause,) = {differing.cause for differing in report.differing}
    text = "\n".join(lines(report))
    assert cause in text
    assert report.differing[0].record_id in text
    return cause


def test_the_recording_holds_all_kinds(folder: Path) -> None:
    with open_recording(folder) as recording:
        found = list(recording.requests())
    outcomes = Counter(one.outcome for one in found)
    assert outcomes.total() == NUM_REQUESTS
    assert min(outcomes["finished"], outcomes["cancelled"]) > 5
    ends = [one.ended for one in found if one.ended]
    assert sum(end.stages.num_preemptions for end in ends if end.stages) > 5
    assert sum(end.num_cached_tokens > 0 for end in ends) > 5
    assert sum(bool(end.prompt_logprobs) for end in ends) > 5
    assert sum(one.begun.generate.grammar is not None for one in found if one.begun.generate) > 5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"concurrency": 1}, marks=pytest.mark.slow),
        {"kv_cache_bytes": 4 << 20},
        {"max_num_batched_tokens": 7, "max_num_seqs": 3},
        pytest.param({"prefix_caching": False}, marks=pytest.mark.slow),
        {"num_threads": 2},
        {"block_size": 32, "kv_cache_bytes": 1 << 17},
    ],
    ids=str,
)
def test_no_difference_whatever_the_schedule(folder: Path, model: Path, changes: dict[str, Any]) -> None:
    report = replayed(folder, model, **changes)
    assert report.num_differing == 0, "\n".join(lines(report))
    assert report.num_requests == NUM_REQUESTS
    assert report.num_compared + sum(report.skipped.values()) == NUM_REQUESTS
    assert report.num_same == report.num_compared > NUM_REQUESTS / 2
    assert report.num_partial > 0
    assert report.num_tokens > 500
    assert any("no differences" in line for line in lines(report))


def test_one_bit_of_one_weight_is_found(folder: Path, model: Path, tmp_path: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-2000] ^= 0x10
    other = tmp_path / "m.gguf"
    other.write_bytes(data)
    report = replayed(folder, other)
    assert report.num_differing > NUM_REQUESTS / 4
    assert the_cause(report).startswith("other model hash")
    assert ";" not in the_cause(report), "nothing else is another"


def test_another_quantization_is_found(folder: Path, tmp_path: Path) -> None:
    cause = the_cause(replayed(folder, write_model(tmp_path / "m.gguf", DType.Q8_0)))
    assert "other model hash" in cause
    assert "other numeric format of weights" in cause


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"activations": "float"}, "other numeric format of activations"),
        ({"kv_cache_dtype": "int8"}, "other numeric format of the KV cache"),
        ({"isa": "generic"}, "other instruction set"),
    ],
)
def test_other_numeric_formats_are_found(folder: Path, model: Path, changes: dict[str, Any], cause: str) -> None:
    report = replayed(folder, model, **changes)
    if report.num_differing == 0:  # an instruction set may be another and compute the same
        assert changes == {"isa": "generic"}
        assert report.runs[0].changes[0].what == "isa"
        return
    assert the_cause(report).startswith(cause)


def test_another_version_and_another_tokenizer_are_named(folder: Path, model: Path, tmp_path: Path) -> None:
    def change(frame: Frame) -> Frame:
        if hasattr(frame, "info"):
            identity = msgspec.structs.replace(frame.info.identity, version="0.0.9")
            info = msgspec.structs.replace(frame.info, identity=identity)
            return msgspec.structs.replace(frame, info=info, tokenizer="another")
        return wrong_id(frame)

    report = replayed(rewritten(folder, tmp_path, change), model)
    with_grammar = {differing.record_id: "tokenizer" in differing.cause for differing in report.differing}
    assert all(differing.cause.startswith("other version") for differing in report.differing)
    assert any(with_grammar.values()), "it matters to answers that had a grammar"
    assert not all(with_grammar.values()), "and to no other"


def test_a_difference_without_a_cause_is_nondeterminism_and_is_looked_into(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    report = replayed(rewritten(folder, tmp_path, wrong_id), model, bisect=True)
    assert the_cause(report) == NONDETERMINISM
    first = report.differing[0].difference
    assert first is not None
    assert first.position == first.id_at == 2
    assert first.recorded.token_id == 399
    assert first.logits_at is None, "only what was sampled is another"
    assert len(report.bisections) == 3
    assert all("it differed then" in sentence for sentence in report.bisections)


def test_drift_of_logits_is_found_where_it_begins(folder: Path, model: Path, tmp_path: Path) -> None:
    def drift(frame: Frame) -> Frame:
        if isinstance(frame, Ended) and len(frame.digests) > 3:
            digests = (*frame.digests[:3], *(digest ^ 1 for digest in frame.digests[3:]))
            return msgspec.structs.replace(frame, digests=digests)
        return frame

    found = [differing.difference for differing in replayed(rewritten(folder, tmp_path, drift), model).differing]
    assert found
    assert all(one and (one.position, one.logits_at, one.id_at) == (3, 3, None) for one in found)


def test_one_request_alone_and_the_first_few(folder: Path, model: Path) -> None:
    with open_recording(folder) as recording:
        wanted = [one for one in recording.requests() if one.outcome == "finished"][4]
        one = replay(recording, config(model), Options(Pace(), only=wanted.record_id), Engine.start)
        few = replay(recording, config(model), Options(Pace(), limit=5), Engine.start)
        assert (one.num_requests, one.num_same, few.num_requests) == (1, 1, 5)
        with pytest.raises(RecordingError, match="1-9999"):
            replay(recording, config(model), Options(Pace(), only="1-9999"), Engine.start)


def test_nothing_to_compare_is_no_success(folder: Path, model: Path, tmp_path: Path) -> None:
    def strip(frame: Frame) -> Frame:
        return msgspec.structs.replace(frame, generate=None) if hasattr(frame, "generate") else frame

    with pytest.raises(RecordingError, match="metadata"):
        replayed(rewritten(folder, tmp_path, strip), model)


def test_recorded_times_are_kept(folder: Path, model: Path) -> None:
    with open_recording(folder) as recording:
        starts = [one.began_unix_s for one in recording.requests()]
        report = replay(recording, config(model), Options(Pace("recorded")), Engine.start)
    assert report.num_differing == 0
    assert report.duration_s >= starts[-1] - starts[0]


def test_the_recording_says_what_engine_repeats_it(folder: Path, model: Path) -> None:
    with open_recording(folder) as recording:
        settings = recorded_settings(recording.headers[-1])
    assert settings["model"] == str(model)
    assert (settings["activations"], settings["kv_cache_dtype"], settings["block_size"]) == ("int8", "bf16", 16)
    assert settings["max_model_len"] == 192


def wrong_id(frame: Frame) -> Frame:
    """Another id at the third place of an answer."""
    if isinstance(frame, Ended) and len(frame.token_ids) > 3:
        return msgspec.structs.replace(frame, token_ids=(*frame.token_ids[:2], 399, *frame.token_ids[3:]))
    return frame


def rewritten(folder: Path, tmp_path: Path, change: Any) -> Path:
    """A copy of a recording in which every frame was changed."""
    copy, encoder = tmp_path / "changed", Encoder()
    copy.mkdir()
    for segment in folder.iterdir():
        with segment.open("rb") as file:
            assert read_preface(file, segment.name)
            size = segment.stat().st_size
            frames = [encoder.encode(change(decode(body, offset))) for offset, body in bodies(file, size)]
        (copy / segment.name).write_bytes(preface() + b"".join(frames))
    return copy
