"""The Batch API as the official client speaks it, over the scripted model."""

import errno
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types import Batch
from tests.server.conftest import starting
from tests.server.running import Server, Start
from tests.server.test_lifecycle import gate, wait_until

from freehold.backends.script import Pause
from freehold.files.vocabulary import TextAssets
from freehold.serve.batches import run

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}
TIMEOUT_S = 20.0


@pytest.fixture
def server(start: Start, tmp_path: Path) -> Server:
    server = start(state_dir=tmp_path)
    wait_until_open(server)
    return server


@pytest.fixture(scope="module")
def shared(text: TextAssets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server with a file of ten bytes."""
    with starting(text) as start:
        server = start(state_dir=tmp_path_factory.mktemp("shared"))
        wait_until_open(server)
        yield server, server.openai.files.create(file=("ten", b"0123456789"), purpose="batch").id


def wait_until_open(server: Server) -> None:
    """Files and batches are opened in the background."""
    deadline = time.monotonic() + TIMEOUT_S
    while server.http.get("/v1/files").status_code == 503:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def line(custom_id: str, endpoint: str = TEXT, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": endpoint, "body": {"model": "test", **body}}


def text_of(lines: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(entry) + "\n" for entry in lines).encode()


def submit(server: Server, lines: bytes | list[dict[str, Any]], endpoint: str = TEXT, **fields: Any) -> Batch:
    content = lines if isinstance(lines, bytes) else text_of(lines)
    uploaded = server.openai.files.create(file=("in.jsonl", content), purpose="batch")
    asked: Any = {"completion_window": "24h", **fields}
    return server.openai.batches.create(input_file_id=uploaded.id, endpoint=endpoint, **asked)  # type: ignore[arg-type]


def ended(server: Server, batch: Batch) -> Batch:
    deadline = time.monotonic() + TIMEOUT_S
    while batch.status not in ENDED:
        assert time.monotonic() < deadline, batch
        time.sleep(0.01)
        batch = server.openai.batches.retrieve(batch.id)
    return batch


def results(server: Server, file_id: str | None) -> dict[str, dict[str, Any]]:
    """Lines of an output or error file, by custom id; none comes twice."""
    if file_id is None:
        return {}
    text = server.openai.files.content(file_id).text
    parsed = [json.loads(entry) for entry in text.splitlines()]
    assert text.endswith("\n")
    by_id = {entry["custom_id"]: entry for entry in parsed}
    assert len(by_id) == len(parsed), "a line was answered twice"
    return by_id


def test_a_batch_answers_what_requests_over_http_answer(server: Server) -> None:
    server.says("The sea is wide.")
    good = [line(f"good {n}", prompt=f"{server.hi} {'again ' * n}", max_tokens=5 + n, seed=n) for n in range(20)]
    bad = [
        line("negative", prompt="Hi", max_tokens=-1),
        line("unknown", prompt="Hi", maxtokens=3),
        line("other model", prompt="Hi") | {"body": {"model": "other", "prompt": "Hi"}},
        line("missing"),
        line("long", prompt="word " * 20000),
    ]
    batch = submit(server, [*good[:10], *bad, *good[10:]], metadata={"night": "one"})
    assert batch.status == "validating"
    assert batch.metadata == {"night": "one"}
    batch = ended(server, batch)
    assert batch.status == "completed", batch
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 25, "completed": 20, "failed": 5}
    answered, failed = results(server, batch.output_file_id), results(server, batch.error_file_id)
    assert set(answered) == {entry["custom_id"] for entry in good}
    assert set(failed) == {entry["custom_id"] for entry in bad}
    for entry in good + bad:
        over_http = server.http.post(entry["url"], json=entry["body"])
        response = {**answered, **failed}[entry["custom_id"]]["response"]
        assert response["status_code"] == over_http.status_code
        expected, got = over_http.json(), response["body"]
        for varying in ("id", "created", "usage"):
            expected.pop(varying, None), got.pop(varying, None)
        assert got == expected


def test_chats_too(server: Server) -> None:
    server.says("Rhine, Rhone, Po.")
    batch = ended(server, submit(server, [line("a", CHAT, messages=server.messages)], CHAT))
    answer = results(server, batch.output_file_id)["a"]["response"]["body"]
    assert answer["choices"][0]["message"]["content"] == "Rhine, Rhone, Po."
    assert batch.error_file_id is None


def test_a_file_comes_back_as_it_went(server: Server) -> None:
    content = bytes(range(256)) * 5000
    uploaded = server.openai.files.create(file=("data.bin", content), purpose="batch")
    assert (uploaded.bytes, uploaded.filename, uploaded.purpose) == (len(content), "data.bin", "batch")
    assert server.openai.files.content(uploaded.id).content == content
    assert server.openai.files.retrieve(uploaded.id) == uploaded
    assert server.openai.files.delete(uploaded.id).deleted
    for call in (server.openai.files.retrieve, server.openai.files.content, server.openai.files.delete):
        with pytest.raises(openai.NotFoundError):
            call(uploaded.id)


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-3", 206, b"789"),
        ("Bytes=-300", 206, b"0123456789"),
        ("bytes=8-99999999999999999", 206, b"89"),
        ("bytes=2-4, 99-", 206, b"234"),
        *(
            (text, 200, b"0123456789")
            for text in ("", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=4-2", "items=0-1")
        ),
        *(
            (text, 200, b"0123456789")
            for text in ("bytes=--5", "bytes=1-2-3", "bytes=" + "1-2," * 50 + "3-4", "bytes=\xb2-")
        ),
        *((text, 416, b"has 10 bytes") for text in ("bytes=10-", "bytes=-0", "bytes=99-,77-88")),
    ],
)
def test_ranges_of_a_file(shared: tuple[Server, str], asked: str, status: int, content: bytes) -> None:
    server, file_id = shared
    response = server.http.get(f"/v1/files/{file_id}/content", headers={"Range": asked.encode("latin-1")})
    assert (response.status_code, content in response.content) == (status, True)
    if status == 416:
        assert response.json()["error"]["code"] == "range_not_satisfiable"
    else:
        assert response.content == content


def test_an_input_that_is_of_no_use_fails_the_batch(server: Server) -> None:
    batch = ended(server, submit(server, text_of([line("a"), line("a")]) + b"nonsense\n"))
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [(fault.line, fault.code) for fault in batch.errors.data] == [
        (2, "duplicate_custom_id"), (3, "invalid_json"),
    ]  # fmt: skip
    assert batch.output_file_id is batch.error_file_id is None
    assert batch.failed_at is not None


def test_lists_come_in_pages(server: Server) -> None:
    batches = [ended(server, submit(server, [line("a", prompt="Hi", max_tokens=1)])).id for _ in range(5)]
    listed = server.openai.batches.list(limit=2)
    assert [batch.id for batch in listed.data] == batches[:2:-1]
    assert listed.has_more
    assert [batch.id for batch in listed] == batches[::-1], "the client reads all pages"
    inputs = server.openai.files.list(purpose="batch", limit=2, order="asc")
    ids = [file.id for file in inputs]
    assert len(ids) == 5
    assert [file.created_at for file in inputs.data] == sorted(file.created_at for file in inputs.data)
    outputs = [file.id for file in server.openai.files.list(purpose="batch_output")]
    assert len(outputs) == 5
    assert {file.id for file in server.openai.files.list()} == {*ids, *outputs}


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/batches?limit=0", "limit"),
        ("/v1/batches?limit=101", "limit"),
        ("/v1/batches?limit=x", "limit"),
        ("/v1/batches?limit=1&limit=2", "limit"),
        ("/v1/batches?order=asc", "order"),
        ("/v1/files?order=up", "order"),
        ("/v1/files?limit=10001", "limit"),
    ],
)
def test_lists_refuse_what_they_do_not_know(server: Server, path: str, param: str) -> None:
    answer = server.http.get(path)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("fields", "param", "status"),
    [
        ({"completion_window": "soon"}, "completion_window", 400),
        ({"completion_window": "0h"}, "completion_window", 400),
        ({"completion_window": "31d"}, "completion_window", 400),
        ({"endpoint": "/v1/models"}, "endpoint", 400),
        ({"endpoint": "v1/completions"}, "endpoint", 400),
        ({"metadata": {"a": "x" * 513}}, "metadata", 400),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata", 400),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "output_expires_after", 400),
        ({"input_file_id": "file-unknown"}, None, 404),
        ({"input_file_id": "../../etc/passwd"}, None, 404),
        ({"input_file_id": None}, "input_file_id", 400),
        ({"window": "24h"}, "window", 400),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused(
    server: Server, fields: dict[str, Any], param: str | None, status: int
) -> None:
    file_id = server.openai.files.create(file=("in", text_of([line("a")])), purpose="batch").id
    body = {"input_file_id": file_id, "endpoint": TEXT, "completion_window": "24h", **fields}
    answer = server.http.post("/v1/batches", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
    assert server.openai.batches.list().data == []


def upload(server: Server, files: Any, data: Any = None, **settings: Any) -> httpx.Response:
    return server.http.post("/v1/files", files=files, data=data, **settings)


def test_uploads_that_make_no_sense_are_refused(start: Start, tmp_path: Path) -> None:
    server = start(state_dir=tmp_path, max_file_bytes=100_000, max_stored_bytes=250_000)
    wait_until_open(server)
    good, batch = {"file": ("in", b"x" * 100_000)}, {"purpose": "batch"}
    assert upload(server, good, batch).status_code == 200
    refused = {
        "file": [
            upload(server, {"file": ("in", b"x" * 100_001)}, batch),
            upload(server, {"purpose": (None, b"batch")}),
        ],
        "purpose": [upload(server, good), upload(server, good, {"purpose": "vision"})],
        "other": [upload(server, {**good, "other": ("in", b"x")}, batch)],
        "expires_after": [
            upload(server, good, {**batch, "expires_after[anchor]": "created_at", "expires_after[seconds]": seconds})
            for seconds in ("5", "x", "99999999999")
        ],
        None: [
            server.http.post("/v1/files", json={"purpose": "batch"}),
            server.http.post("/v1/files", content=b"x", headers={"content-type": "multipart/form-data"}),
            server.http.post("/v1/files", content=b"x", headers={"content-type": "multipart/form-data; boundary=b"}),
            server.http.post(
                "/v1/files",
                content=b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhalf',
                headers={"content-type": "multipart/form-data; boundary=b"},
            ),
        ],
    }
    for param, answers in refused.items():
        for answer in answers:
            assert 400 <= answer.status_code < 500, answer.text
            assert answer.json()["error"]["param"] == param
    assert upload(server, good, batch).status_code == 200
    full = upload(server, good, batch)
    assert (full.status_code, full.json()["error"]["code"]) == (413, "storage_full")
    (one, other) = server.openai.files.list().data
    server.openai.files.delete(one.id)
    assert upload(server, good, batch).status_code == 200
    folder = tmp_path / "batches" / "files"
    assert len(list(folder.iterdir())) == 2, "refused uploads leave nothing"
    assert other.id in {path.name for path in folder.iterdir()}


def test_a_batch_is_cancelled_with_what_it_has(server: Server) -> None:
    with gate() as held:
        server.says("quick")
        quick = line("quick", prompt=server.hi)
        server.says("as slow as it takes for the quick one to end", held, "slow")
        batch = submit(server, [quick, *(line(f"slow {n}", prompt=server.hi + f" {n}") for n in range(50))])
        wait_until(lambda: server.openai.batches.retrieve(batch.id).request_counts.completed == 1)  # type: ignore[union-attr]
        with pytest.raises(openai.ConflictError):
            server.openai.files.delete(batch.input_file_id)
        assert server.openai.batches.cancel(batch.id).status == "cancelling"
        batch = ended(server, batch)
    assert batch.status == "cancelled"
    assert batch.cancelling_at is not None
    assert batch.cancelled_at is not None
    assert set(results(server, batch.output_file_id)) == {"quick"}
    missing = results(server, batch.error_file_id)
    assert set(missing) == {f"slow {n}" for n in range(50)}
    assert {entry["error"]["code"] for entry in missing.values()} == {"batch_cancelled"}
    assert all(entry["response"] is None for entry in missing.values())
    with pytest.raises(openai.ConflictError):
        server.openai.batches.cancel(batch.id)
    server.openai.files.delete(batch.input_file_id)


def test_a_batch_expires_with_what_it_has(server: Server) -> None:
    with gate() as held:
        server.says("quick")
        quick = line("quick", prompt=server.hi)
        server.says("as slow as it takes for the quick one to end", held, "slow")
        slow = line("slow", prompt=server.hi)
        batch = ended(server, submit(server, [quick, slow], completion_window="1s"))
    assert batch.status == "expired"
    assert batch.expired_at is not None
    assert set(results(server, batch.output_file_id)) == {"quick"}
    assert results(server, batch.error_file_id)["slow"]["error"]["code"] == "batch_expired"


def test_a_batch_may_be_cancelled_at_any_moment(server: Server) -> None:
    """Whenever it comes, the batch ends as it was told, and what it counts is in its files."""
    server.says("x")
    for moment in range(16):
        batch = submit(server, [line(str(n), prompt=server.hi, max_tokens=3) for n in range(3)])
        time.sleep(moment * 0.004)
        try:
            told = server.openai.batches.cancel(batch.id).status
        except openai.ConflictError as error:
            told = "completed" if error.code == "batch_ended" else error.message
        batch = ended(server, batch)
        assert (told, batch.status) in (("cancelling", "cancelled"), ("completed", "completed"))
        answered, failed = results(server, batch.output_file_id), results(server, batch.error_file_id)
        assert batch.request_counts is not None
        assert (len(answered), len(failed)) == (batch.request_counts.completed, batch.request_counts.failed)
        if batch.status == "completed":
            assert len(answered) == 3


def test_a_restart_goes_on_where_it_was(start: Start, tmp_path: Path) -> None:
    """Lines that were answered aren't asked again; those that ran are."""
    first = start(state_dir=tmp_path, max_num_batch_reqs=1)
    wait_until_open(first)
    with gate() as held:
        first.says("quick")
        lines = [line(f"quick {n}", prompt=f"{first.hi} {n}") for n in range(6)]
        first.says(held, "slow")
        lines += [line(f"slow {n}", prompt=f"Tell me {n}") for n in range(6)]
        batch = submit(first, lines)
        wait_until(lambda: first.openai.batches.retrieve(batch.id).request_counts.completed == 6)  # type: ignore[union-attr]
        first.send_signal()
        first.send_signal()
        wait_until(lambda: first.service.load.is_draining)
    first.join()
    second = start(state_dir=tmp_path)
    wait_until_open(second)
    batch = ended(second, second.openai.batches.retrieve(batch.id))
    assert batch.status == "completed"
    said = {
        custom_id: entry["response"]["body"]["choices"][0]["text"]
        for custom_id, entry in results(second, batch.output_file_id).items()
    }
    again = {f"slow {n}": second.complete(prompt=f"Tell me {n}").json()["choices"][0]["text"] for n in range(6)}
    assert said == {f"quick {n}": "quick" for n in range(6)} | again
    assert second.openai.files.content(batch.input_file_id).content == text_of(lines)


def test_one_server_at_a_time_has_the_folder(start: Start, tmp_path: Path) -> None:
    first, second = start(state_dir=tmp_path), None
    wait_until_open(first)
    file_id = first.openai.files.create(file=("in", b"x"), purpose="batch").id
    second = start(state_dir=tmp_path)
    refused = second.http.get("/v1/files")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "batches_unavailable")
    assert second.chat(max_tokens=1).status_code == 200, "all else works"
    first.stop()
    wait_until_open(second)
    assert second.openai.files.retrieve(file_id).bytes == 1


def test_batches_take_turns(start: Start, tmp_path: Path) -> None:
    """A long one doesn't hold up a short one that came later."""
    server = start(state_dir=tmp_path, max_num_batch_reqs=2)
    wait_until_open(server)
    server.says(Pause(0.01), "ok")
    long = submit(server, [line(f"{n}", prompt=f"{server.hi} {n}") for n in range(300)])
    short = ended(server, submit(server, [line(f"{n}", prompt=f"{server.hi} short {n}") for n in range(3)]))
    counts = server.openai.batches.retrieve(long.id).request_counts
    assert short.status == "completed"
    assert counts is not None
    assert counts.completed < 150
    server.openai.batches.cancel(long.id)
    ended(server, long)


def test_a_full_queue_is_waited_for(start: Start, tmp_path: Path) -> None:
    server = start(state_dir=tmp_path, engine={"max_num_seqs": 1, "max_num_queued_reqs": 1})
    wait_until_open(server)
    server.says(Pause(0.01), "ok")
    batch = ended(server, submit(server, [line(f"{n}", prompt=f"{server.hi} {n}") for n in range(6)]))
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 6, "completed": 6, "failed": 0}


def test_lines_can_not_be_streamed_or_urgent(server: Server) -> None:
    server.says("ok")
    lines = [line("stream", prompt=server.hi, stream=True), line("urgent", prompt=server.hi, service_tier="priority")]
    batch = ended(server, submit(server, lines))
    refused = results(server, batch.error_file_id)["stream"]["response"]
    assert (refused["status_code"], refused["body"]["error"]["param"]) == (400, "stream")
    assert set(results(server, batch.output_file_id)) == {"urgent"}


def test_a_full_disk_loses_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers wait until there is room; uploads are refused."""
    monkeypatch.setattr(run, "RETRY_S", 0.01)
    server.says("ok")
    state = server.service.batch_lane.state
    number, add, write = 0, state.batches.add_answer, state.batches.end

    def fails_at_times(work: Any, error: Exception) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal number
            number += 1
            if number % 2:
                raise error
            return work(*arguments)

        return call

    monkeypatch.setattr(state.batches, "add_answer", fails_at_times(add, sqlite3.OperationalError("disk is full")))
    monkeypatch.setattr(state.batches, "end", fails_at_times(write, OSError(errno.ENOSPC, "No space left")))
    batch = ended(server, submit(server, [line(f"{n}", prompt=server.hi) for n in range(5)]))
    assert len(results(server, batch.output_file_id)) == 5

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = sorted(path.name for path in state.files.path("x").parent.iterdir())
    monkeypatch.setattr(os, "fsync", full)
    refused = upload(server, {"file": ("in", b"x")}, {"purpose": "batch"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "disk_full")
    assert sorted(path.name for path in state.files.path("x").parent.iterdir()) == before


def test_a_database_that_is_full_refuses_batches_and_takes_them_later(server: Server) -> None:
    state = server.service.batch_lane.state
    file_id = server.openai.files.create(file=("in", text_of([line("a", prompt="Hi")])), purpose="batch").id
    body = {"input_file_id": file_id, "endpoint": TEXT, "completion_window": "24h", "metadata": {"a": "x" * 500}}

    def limit(num_pages: int) -> None:
        state._thread.submit(state._database.rows, f"PRAGMA max_page_count = {num_pages}").result()

    limit(1)
    statuses = {server.http.post("/v1/batches", json=body).status_code for _ in range(60)}
    assert 507 in statuses
    limit(1 << 30)
    assert server.http.post("/v1/batches", json=body).status_code == 200


def test_keys_see_their_own_alone(start: Start, tmp_path: Path) -> None:
    server = start(state_dir=tmp_path, api_keys=("first-secret-key-0123456789", "second-secret-key-0123456789"))
    clients = [server.openai.with_options(api_key=key) for key in server._config.api_keys]
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            mine = clients[0].files.create(
                file=("in", text_of([line("a", prompt="Hi", max_tokens=1)])), purpose="batch"
            )
            break
        except openai.InternalServerError:
            assert time.monotonic() < deadline
    batch = clients[0].batches.create(input_file_id=mine.id, endpoint=TEXT, completion_window="24h")
    while batch.status not in ENDED:
        batch = clients[0].batches.retrieve(batch.id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 1, "lines run with the key's rights"
    assert batch.output_file_id is not None
    other = clients[1]
    assert list(other.files.list()) == []
    assert list(other.batches.list()) == []
    for call, what in (
        (other.files.retrieve, mine.id), (other.files.content, batch.output_file_id), (other.files.delete, mine.id),
        (other.batches.retrieve, batch.id), (other.batches.cancel, batch.id),
    ):  # fmt: skip
        with pytest.raises(openai.NotFoundError):
            call(what)
    with pytest.raises(openai.NotFoundError):
        other.batches.create(input_file_id=mine.id, endpoint=TEXT, completion_window="24h")
