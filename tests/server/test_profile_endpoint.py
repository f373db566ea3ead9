"""``POST /debug/profile`` over the real model, in an engine's process of its own."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.running import Server, Start
from tests.server.test_lifecycle import wait_until
from tests.traces import check_trace

from freehold.config import EngineConfig
from freehold.engine.remote import ProcessEngine
from freehold.files.vocabulary import TextAssets

LINEAR = {"qkv", "o", "gate_up", "down", "head"}


def serve_smollm2(text: TextAssets, path: Path, **settings: Any) -> Server:
    config = EngineConfig(
        model_path=path, activations="int8", num_threads=2, kv_cache_bytes=64 << 20, max_num_seqs=4, profile=True
    )
    return Server(text, config, handle=ProcessEngine.start(config), profile=True, **settings)


@pytest.fixture(scope="module")
def profiled(text: TextAssets, smollm2_path: Path) -> Iterator[Server]:
    server = serve_smollm2(text, smollm2_path)
    yield server
    server.stop()


@pytest.fixture
def busy(profiled: Server) -> Iterator[Server]:
    """Three requests at a time that never seem to end."""
    with ThreadPoolExecutor(3) as pool:
        is_over = False

        def ask() -> None:
            while not is_over:
                profiled.complete(prompt=[5, 6, 7], max_tokens=50, temperature=0)

        for _ in range(3):
            pool.submit(ask)
        wait_until(lambda: profiled.engine.num_live == 3)
        yield profiled
        is_over = True


def profile(server: Server, form: str = "json", **body: Any) -> httpx.Response:
    return server.http.post(f"/debug/profile?format={form}", json=body)


def hang_up_later(server: Server, body: dict[str, Any]) -> socket.socket:
    """A request for a profile, by a client that can leave."""
    content = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port))
    head = "POST /debug/profile HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    profiler = server.service.profiler
    assert profiler is not None
    wait_until(lambda: profiler._asked is not None)
    return connection


def profile_of(engine: ProcessEngine) -> int:
    """The number of the profile that is being taken; -1 if none is."""
    awaited = engine._profile
    return -1 if awaited is None else awaited.profile_id


@contextmanager
def being_profiled(server: Server, **body: Any) -> Iterator["Future[httpx.Response]"]:
    """A request for a profile, which the engine has begun to take."""
    engine = server.engine
    assert isinstance(engine, ProcessEngine)
    wait_until(lambda: profile_of(engine) >= 0)
    before = profile_of(engine)  # one of those that are taken all the time
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(profile, server, **body)
        wait_until(lambda: profile_of(engine) > before)
        yield answer


def test_a_profile_accounts_for_the_steps_time(busy: Server) -> None:
    started_s = time.monotonic()
    answer = profile(busy, steps=20)
    wall_s = time.monotonic() - started_s
    assert answer.status_code == 200
    report = answer.json()
    summary = report["summary"]
    assert (report["ended_by"], summary["num_steps"]) == ("steps", 20)
    assert 20 <= summary["num_tokens"] <= 20 * 3 * 3
    total_s = summary["steps_s"] + summary["between_s"]
    assert 0 < total_s < wall_s
    assert sum(group["step_s"] * group["num_steps"] for group in report["groups"]) == pytest.approx(total_s)
    for group in report["groups"]:
        phases = {row["phase"]: row for row in group["phases"]}
        assert all(phases[name]["step_s"] > 0 for name in LINEAR | {"attention", "norm", "gate", "sample"})
        assert {name for name, row in phases.items() if row["step_bytes"]} == LINEAR | {"attention"}
        assert sum(row["share"] for row in phases.values()) == pytest.approx(1.0)
        assert sum(row["step_s"] for row in phases.values()) == pytest.approx(group["step_s"])
        assert group["limit_share"] > 0
    assert report["limits"]["bytes_per_s"] > 1e9
    assert report["limits"]["linear"]["operations_per_s"] > 1e9


def test_the_same_as_text_and_as_a_trace(busy: Server) -> None:
    text = profile(busy, "text", steps=4)
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text.startswith("4 steps, ")
    assert "\nattention " in text.text
    trace = profile(busy, "trace", steps=4)
    assert "freehold-trace.json" in trace.headers["content-disposition"]
    found = trace.json()
    check_trace(found, 4)
    assert found["otherData"]["report"]["missing"]["lost_spans"] == 0


def test_an_idle_engine_has_an_empty_profile(profiled: Server) -> None:
    wait_until(lambda: profiled.engine.num_live == 0)
    report = profile(profiled, seconds=0.3).json()
    assert (report["ended_by"], report["summary"]["num_steps"], report["groups"]) == ("seconds", 0, [])
    assert report["summary"]["idle_s"] == pytest.approx(0.3, abs=0.2)
    assert profile(profiled, "text", seconds=0.1).text.startswith("No step ran. The engine was idle for 0.1")


def test_one_at_a_time_and_the_next_when_the_client_has_left(profiled: Server) -> None:
    client = hang_up_later(profiled, {"seconds": 300})
    refused = profile(profiled, steps=1)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "profile_running")
    client.close()
    wait_until(lambda: profile(profiled, seconds=0.05).status_code == 200)


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({}, "steps", "seconds"),
        ({"steps": 0}, "steps", "0"),
        ({"steps": 2049}, "steps", "2048"),
        ({"steps": -3, "seconds": 1}, "steps", "-3"),
        ({"seconds": 0}, "seconds", "0"),
        ({"seconds": 301}, "seconds", "300"),
        ({"seconds": -1.5}, "seconds", "-1.5"),
        ({"steps": "five"}, "steps", "int"),
        ({"steps": 1.5}, "steps", "int"),
        ({"step": 5}, "step", "unknown field"),
        ([5], None, "object"),
    ],
)
def test_bad_bodies_are_refused_by_name(profiled: Server, body: Any, param: str | None, part: str) -> None:
    refused = profiled.http.post("/debug/profile", json=body)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, param)
    assert part in error["message"]


def test_other_bad_requests(profiled: Server) -> None:
    refused = profile(profiled, "xml", steps=1)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "format")
    assert profiled.http.post("/debug/profile", content=b"{", headers={"content-type": "application/json"}).is_error
    assert profiled.http.post("/debug/profile", content=b"steps=5").status_code == 415
    assert profiled.http.post("/debug/profile", json={"steps": 5, "note": "x" * 5000}).status_code == 413
    assert profiled.http.get("/debug/profile").status_code == 405


def test_it_is_off_unless_asked_for(server: Server) -> None:
    refused = profile(server, steps=1)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "profiling_off")
    assert "--profile" in refused.json()["error"]["message"]


def test_a_backend_that_cant_be_profiled_says_so(start: Start) -> None:
    server = start(profile=True)
    refused = profile(server, steps=1)
    assert (refused.status_code, refused.json()["error"]["code"]) == (501, "profiling_unsupported")
    assert server.chat(max_tokens=2).status_code == 200


def test_an_engine_that_dies_ends_the_profile_and_has_others_later(text: TextAssets, smollm2_path: Path) -> None:
    server = serve_smollm2(text, smollm2_path)
    assert isinstance(server.engine, ProcessEngine)
    assert server.engine.pid is not None
    with being_profiled(server, seconds=300) as died:
        os.kill(server.engine.pid, signal.SIGKILL)
    error = died.result().json()["error"]
    assert (died.result().status_code, error["code"]) == (503, "engine_died")
    wait_until(lambda: server.http.get("/readyz").status_code == 200)
    with being_profiled(server, steps=5) as later:
        assert server.complete(prompt=[5, 6, 7], max_tokens=20, temperature=0).status_code == 200
    assert later.result().json()["summary"]["num_steps"] == 5
    # One that is being taken at shutdown is answered with what it has.
    with being_profiled(server, seconds=300) as last:
        assert server.complete(prompt=[5, 6, 7], max_tokens=9, temperature=0).status_code == 200
        server.send_signal()
    report = last.result().json()
    assert (report["ended_by"], report["summary"]["num_steps"]) == ("seconds", 9)
    server.stop()
    assert server.service.profiler is not None
    tally = server.service.profiler.tally
    assert tally is not None
    assert tally.report().summary.num_steps >= 5 + 9
