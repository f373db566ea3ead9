"""``freehold serve --profile`` and ``freehold profile``, as a person meets them."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import processes
from tests.processes import Started
from tests.traces import check_trace

TIMEOUT_S = 60


def command(*arguments: str, **options: Any) -> Started:
    return processes.start(
        [sys.executable, "-m", "freehold", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "40"},
        **options,
    )


def run(*arguments: str) -> tuple[int, str, str]:
    process = command(*arguments)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def complete(url: str, max_tokens: int) -> None:
    body = {"prompt": "The sea", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        assert response.status == 200


def wait_until_ready(url: str) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=TIMEOUT_S).close()
            return
        except OSError:
            assert time.monotonic() < end_s
            time.sleep(0.05)


@pytest.fixture
def serving(smollm2_path: Path, free_port: int) -> Iterator[tuple[str, Started]]:
    server = command("serve", str(smollm2_path), "--profile", "--port", str(free_port), "--max-num-seqs", "4")
    url = f"http://127.0.0.1:{free_port}"
    try:
        wait_until_ready(url)
        yield url, server
    finally:
        server.kill()
        server.communicate()


def test_a_server_is_profiled_from_start_to_end(serving: tuple[str, Started], tmp_path: Path) -> None:
    url, server = serving
    profiling = command("profile", "--url", url, "--steps", "12", "--trace", str(tmp_path / "trace.json"))
    while profiling.poll() is None:
        complete(url, 10)
    out, err = profiling.communicate()
    assert profiling.returncode == 0, err
    assert out.startswith("12 steps, ")
    for word in ("phase", "of the limit", "qkv", "attention", "gate_up", "waiting", "reading memory at"):
        assert word in out
    check_trace(json.loads((tmp_path / "trace.json").read_text()), 12)

    complete(url, 5)
    code, out, err = run("profile", "--url", f"{url}/v1", "--seconds", "0.2")
    assert code == 0, err
    assert out.startswith("No step ran.")

    server.send_signal(signal.SIGTERM)
    out, err = server.communicate(timeout=TIMEOUT_S)
    assert server.returncode == 0, err
    assert "Decode, 1 request a step" in out
    assert "With prefill" in out
    num_steps = int(out.split()[0])
    assert num_steps >= 10 + 5


def test_wrong_ways_to_ask(tmp_path: Path, free_port: int) -> None:
    code, out, err = run("profile", "--url", f"http://127.0.0.1:{free_port}")
    assert (code, out) == (2, "")
    assert "no server answers" in err
    code, _, err = run("profile", "--url", "localhost")
    assert code == 2
    assert "--url" in err
