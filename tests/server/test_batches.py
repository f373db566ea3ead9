"""The Batch API as the official client speaks it, over the scripted model."""

import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Batch
from tests.server.running import Server, Start

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}
TIMEOUT_S = 20.0


@pytest.fixture
def server(start: Start, tmp_path: Path) -> Server:
    server = start(state_dir=tmp_path)
    wait_until_open(server)
    return server


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
