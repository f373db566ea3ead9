"""Batches of the real server, which is killed while they run."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.server.test_end_to_end import TIMEOUT_S, Served

TEXT = "/v1/completions"


def line(number: int, max_tokens: int = 12) -> dict[str, Any]:
    """Greedy and sampled ones in turn; the answers depend on nothing but this."""
    sampling = {"temperature": 0.0} if number % 2 else {"temperature": 1.0, "seed": number}
    body = {"prompt": f"Number {number} is", "max_tokens": max_tokens, "return_token_ids": True, **sampling}
    return {"custom_id": f"line {number}", "method": "POST", "url": TEXT, "body": body}


def kill(served: Served) -> None:
    """End server and engine as the kernel would, out of memory."""
    family = served.family()
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    served.process.wait(TIMEOUT_S)
    served.client.close()
    if served.process.stderr is not None:
        served.process.stderr.close()


def progress(client: openai.OpenAI, batch_id: str) -> tuple[str, int]:
    """Status and answered lines; the server may still be opening its folder."""
    while True:
        try:
            batch = client.batches.retrieve(batch_id)
        except openai.InternalServerError:
            time.sleep(0.02)
            continue
        assert batch.request_counts is not None
        return batch.status, batch.request_counts.completed


def run_through_kills(model: Path, state: Path, num_lines: int, num_kills: int) -> None:
    flags = ("--state-dir", str(state), "--max-num-batch-reqs", "8")
    lines = [line(number) for number in range(num_lines)]
    served = Served(model, *flags)
    content = "".join(json.dumps(entry) + "\n" for entry in lines).encode()
    file_id = served.client.files.create(file=("in.jsonl", content), purpose="batch").id
    batch_id = served.client.batches.create(input_file_id=file_id, endpoint=TEXT, completion_window="24h").id
    for number in range(1, num_kills + 1):
        deadline = time.monotonic() + TIMEOUT_S
        while (now := progress(served.client, batch_id))[1] < number * num_lines // (num_kills + 1):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert now[0] == "in_progress", "it was to be killed in the middle"
        kill(served)
        served = Served(model, *flags)
    deadline = time.monotonic() + TIMEOUT_S
    while progress(served.client, batch_id)[0] != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    batch = served.client.batches.retrieve(batch_id)
    assert batch.error_file_id is None
    assert batch.output_file_id is not None
    answers = [json.loads(text) for text in served.client.files.content(batch.output_file_id).text.splitlines()]
    assert [answer["custom_id"] for answer in answers] == [entry["custom_id"] for entry in lines], "each once, in order"
    with ThreadPoolExecutor(8) as pool:
        over_http = pool.map(
            lambda entry: httpx.post(f"{served.url}{TEXT}", json=entry["body"], timeout=TIMEOUT_S).json(), lines
        )
        for answer, expected in zip(answers, over_http, strict=True):
            assert answer["response"]["body"]["choices"] == expected["choices"]
    assert {path.name for path in (state / "batches" / "files").iterdir()} == {file_id, batch.output_file_id}
    served.process.send_signal(signal.SIGTERM)
    served.client.close()
    _, errors = served.process.communicate(timeout=TIMEOUT_S)
    assert served.process.returncode == 0, errors


def test_a_batch_outlives_kills(smollm2_path: Path, tmp_path: Path) -> None:
    run_through_kills(smollm2_path, tmp_path, num_lines=48, num_kills=2)


@pytest.mark.slow
def test_a_long_batch_outlives_many_kills(smollm2_path: Path, tmp_path: Path) -> None:
    run_through_kills(smollm2_path, tmp_path, num_lines=600, num_kills=12)


def test_a_dying_engine_loses_no_line(smollm2_path: Path, tmp_path: Path) -> None:
    """The server lives on, and asks again."""
    served = Served(smollm2_path, "--state-dir", str(tmp_path), "--max-num-batch-reqs", "8")
    try:
        content = "".join(json.dumps(line(number)) + "\n" for number in range(32)).encode()
        file_id = served.client.files.create(file=("in.jsonl", content), purpose="batch").id
        batch_id = served.client.batches.create(input_file_id=file_id, endpoint=TEXT, completion_window="24h").id
        while progress(served.client, batch_id)[1] < 8:
            time.sleep(0.005)
        os.kill(served.engine_pid(), signal.SIGKILL)
        deadline = time.monotonic() + TIMEOUT_S
        while progress(served.client, batch_id)[0] != "completed":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert progress(served.client, batch_id) == ("completed", 32)
    finally:
        served.process.send_signal(signal.SIGTERM)
        served.client.close()
        served.process.communicate(timeout=TIMEOUT_S)
