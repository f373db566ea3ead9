"""What a server records, of whom, and that nobody's answer depends on it."""

import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import Server, Start

from freehold.access import key_table
from freehold.access.database import connect, path_in
from freehold.access.keys import KeyLimits, Scope
from freehold.backends.script import NotFinite, Pause
from freehold.config import RecordConfig
from freehold.errors import RecordingError
from freehold.observe.record import RecordedRequest, open_recording
from freehold.serve.recording import FlightRecorder

CANARY = "zanzibar"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "recording"


def recorded(folder: Path) -> list[RecordedRequest]:
    with open_recording(folder) as recording:
        assert recording.faults == []
        return list(recording.requests())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def body(server: Server, **fields: Any) -> dict[str, Any]:
    return {"model": "test", "messages": server.messages, "temperature": 0, **fields}


def metric(server: Server, sample: str) -> float:
    text = server.http.get("/metrics").text
    (value,) = re.findall(rf"^{re.escape(sample)} (.*)$", text, re.MULTILINE)
    return float(value)


def records(server: Server, result: str) -> float:
    return metric(server, f'freehold:records_total{{engine="0",model_name="test",result="{result}"}}')


def stopped(server: Server) -> float:
    return metric(server, 'freehold:recording_stopped{engine="0",model_name="test"}')


def ask(server: Server, **fields: Any) -> Any:
    response = server.chat(temperature=0, return_token_ids=True, **fields)
    assert response.status_code == 200, response.text
    return [(choice["token_ids"], choice["finish_reason"]) for choice in response.json()["choices"]]


def test_off_records_nothing_and_makes_no_folder(start: Start, folder: Path) -> None:
    server = start(record=RecordConfig(folder=folder))
    server.says("hello")
    ask(server)
    assert not folder.exists()


def test_a_request_is_recorded_with_its_id_its_tokens_and_its_steps(start: Start, folder: Path) -> None:
    server = start(record=RecordConfig(mode="full", folder=folder))
    ids = server.says("hello there")
    response = server.chat(n=2, seed=5, temperature=0)
    server.stop()
    first, second = recorded(folder)
    assert first.begun.http_id == second.begun.http_id == response.headers["x-request-id"]
    for choice, one in enumerate((first, second)):
        assert one.begun.generate is not None
        assert (one.begun.generate.sampling.seed, one.begun.generate.sampling.choice) == (5, choice)
        assert one.ended is not None
        assert one.ended.token_ids == tuple(ids)
        assert one.ended.stages is not None
        assert one.begun.at_s <= one.ended.stages.arrived_s <= one.ended.stages.ended_s <= one.ended.at_s
        assert len(one.ended.digests) == len(one.ended.logprobs) == len(ids)
    with open_recording(folder) as recording:
        rows = [row for step in recording.steps(1) for row in zip(step.numbers, step.num_inputs, strict=True)]
    for one in (first, second):
        num_computed = sum(num_inputs for number, num_inputs in rows if number == one.begun.number)
        assert one.ended is not None
        needed = one.begun.num_prompt_tokens - one.ended.num_cached_tokens + len(ids) - 1
        assert needed <= num_computed <= needed + 1, "a row that follows the last id may be computed for nothing"


@pytest.mark.parametrize("streamed", [False, True])
def test_answers_are_the_same_with_and_without(start: Start, folder: Path, streamed: bool) -> None:
    replies = []
    for mode in ("off", "metadata", "full"):
        server = start(record=RecordConfig(mode=mode, folder=folder / mode))
        server.says("one two three four five six")
        kinds: list[dict[str, Any]] = [
            {}, {"logprobs": True, "top_logprobs": 2}, {"stop": "four"}, {"n": 2}, {"max_tokens": 3, "seed": 1},
        ]  # fmt: skip
        bodies = [server.chat(stream=streamed, temperature=0, **kind).text for kind in kinds]
        # Chunks of several answers may come in any order.
        replies.append([sorted(re.sub(r'"(id|created)":("[^"]*"|\d+)', "", body).split("\n")) for body in bodies])
    assert replies[0] == replies[1] == replies[2]


def test_how_answers_end(start: Start, folder: Path) -> None:
    server = start(record=RecordConfig(mode="full", folder=folder))
    server.says("one two three")
    ask(server)
    server.says("one two three", *[Pause(0.05), 5] * 100)
    ask(server, stop="two")
    server.says("one", NotFinite(), " two")
    assert server.chat(temperature=0).status_code == 500
    server.says(*["one", Pause(0.05)] * 200)
    with server.http.stream("POST", "/v1/chat/completions", json=body(server, stream=True)) as response:
        next(response.iter_lines())
    wait_until(lambda: server.engine.num_live == 0)
    server.stop()
    ends = [(one.outcome, one.ended and one.ended.code) for one in recorded(folder)]
    assert ends == [("finished", None), ("stopped", None), ("failed", "numeric_error"), ("cancelled", None)]


def test_metadata_and_logs_hold_no_text(start: Start, folder: Path) -> None:
    server = start(record=RecordConfig(mode="metadata", folder=folder))
    ids = server.says(f"{CANARY} answer")
    server.complete(prompt=f"{server.hi} {CANARY}", cache_salt=CANARY, user=CANARY)
    server.stop()
    (one,) = recorded(folder)
    assert (one.num_output_tokens, one.begun.generate) == (len(ids), None)
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    assert CANARY.encode() not in written
    spelled = b"".join(b"\xcd" + id.to_bytes(2, "big") for id in ids[:2])
    assert spelled not in written


def test_a_key_says_what_is_recorded_of_it(start: Start, folder: Path, tmp_path: Path) -> None:
    connection = connect(path_in(tmp_path / "state"))
    secrets = {
        mode: key_table.create(
            connection, f"{mode}", Scope(), KeyLimits(), now_s=1.0, expires_s=None, record=mode
        )[1]
        for mode in ("off", "metadata", "full", None)
    }  # fmt: skip
    server = start(record=RecordConfig(mode="metadata", folder=folder), state_dir=tmp_path / "state")
    server.says("hello")

    def ask_as(secret: str) -> None:
        headers = {"authorization": f"Bearer {secret}"}
        assert server.http.post("/v1/chat/completions", json=body(server), headers=headers).status_code == 200

    for secret in secrets.values():
        ask_as(secret)
    key_table.set_record(connection, "off", "full")
    connection.close()
    server.service.gatekeeper.reload()
    key_id = secrets["off"].split("-")[1]
    wait_until(lambda: server.service.gatekeeper.meter(key_id).key.record == "full")  # type: ignore[arg-type, union-attr]
    ask_as(secrets["off"])
    server.stop()
    found = [(one.begun.key_id, one.begun.detail) for one in recorded(folder)]
    ids = {mode: secret.split("-")[1] for mode, secret in secrets.items()}
    assert found == [
        (ids["metadata"], "metadata"), (ids["full"], "full"), (ids[None], "metadata"), (ids["off"], "full"),
    ]  # fmt: skip


def test_records_are_counted_and_a_failing_disk_stops_no_request(start: Start, folder: Path) -> None:
    server = start(record=RecordConfig(mode="full", folder=folder))
    server.says("hello")
    ask(server)
    wait_until(lambda: records(server, "written") >= 3)
    shutil.rmtree(folder)
    folder.write_text("no folder any more")
    ask(server)
    wait_until(lambda: stopped(server) == 1)
    before = records(server, "written")
    ask(server)
    assert records(server, "dropped") >= 2
    assert records(server, "written") == before


def test_a_folder_that_cannot_be_used_is_told_at_the_start(start: Start, folder: Path) -> None:
    start(record=RecordConfig(mode="full", folder=folder))
    config = RecordConfig(mode="metadata", folder=folder)
    with pytest.raises(RecordingError, match="another server"):
        FlightRecorder(config, None, None)  # type: ignore[arg-type]
    folder_in_a_file = folder.parent / "file" / "recording"
    folder_in_a_file.parent.write_text("a file")
    with pytest.raises(RecordingError, match="file/recording: Not a directory"):
        FlightRecorder(RecordConfig(mode="full", folder=folder_in_a_file), None, None)  # type: ignore[arg-type]


def test_a_sample_is_whole_requests(start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", random.Random(3).random)
    server = start(record=RecordConfig(mode="metadata", folder=folder, sample=0.5))
    server.says("hello")
    for _ in range(20):
        ask(server, n=2)
    server.stop()
    found = [one.begun.http_id for one in recorded(folder)]
    assert 10 <= len(found) <= 30
    assert all(found.count(http_id) == 2 for http_id in found)
