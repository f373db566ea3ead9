"""``GET /debug/live``: what the server tells of itself, on a real socket."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.server.running import Server, Start

from freehold.backends.script import Gate, Pause
from freehold.config import RecordConfig
from freehold.engine import grammars
from freehold.serve.lanes import LONG_BYTES
from freehold.serve.live import board
from freehold.serve.live.requests import MAX_ENDED
from freehold.serve.live.schema import LiveAnswer

Json = dict[str, Any]


def live(server: Server, **query: Any) -> Json:
    response = server.http.get("/debug/live", params=query)
    assert response.status_code == 200, response.text
    msgspec.json.decode(response.content, type=LiveAnswer, strict=True)
    parsed: Json = response.json()
    return parsed


def until(server: Server, holds: Callable[[Json], bool], timeout_s: float = 30.0) -> Json:
    end_s = time.monotonic() + timeout_s
    while not holds(found := live(server)):
        assert time.monotonic() < end_s, found
        time.sleep(0.1)
    return found


def test_an_idle_server_says_so(start: Start) -> None:
    server = start(engine={"max_num_seqs": 3, "max_num_queued_reqs": 7})
    found = live(server)
    assert found["binding"]["code"] == "idle"
    assert found["server"]["model"] == "test"
    limits = found["server"]["limits"]
    assert (limits["max_num_seqs"], limits["max_num_queued_reqs"]) == (3, 7)
    assert found["requests"] == {"num_live": 0, "live": [], "ended": []}


@pytest.mark.parametrize("record", ["off", "metadata", "full"])
def test_requests_are_listed_with_their_stages(start: Start, tmp_path: Path, record: Any) -> None:
    server = start(record=RecordConfig(mode=record, folder=tmp_path / "recording"))
    server.says("one", Pause(0.2), "two")
    assert server.chat(stream=True).status_code == 200
    found = until(server, lambda found: found["latencies"][0]["ttft"]["count"] == 1)
    [line] = found["requests"]["ended"]
    assert (line["surface"], line["stage"], line["status"], line["outcome"]) == ("chat", "ended", 200, "stop")
    offsets = [line[f"{stage}_s"] for stage in ("tokenized", "queued", "started", "first_token", "ended")]
    assert offsets == sorted(offsets)
    assert offsets[0] > 0
    minute = found["latencies"][0]
    assert {minute[name]["count"] for name in ("ttft", "tokenize", "queue", "prefill")} == {1}
    parts = sum(minute[name]["mean_s"] for name in ("tokenize", "queue", "prefill"))
    assert parts == pytest.approx(minute["ttft"]["mean_s"], abs=1e-4), "stages leave no gap"
    assert line["num_prompt_tokens"] > 10
    assert line["num_output_tokens"] == 3
    assert "one" not in server.http.get("/debug/live").text


def test_each_stage_is_seen_while_it_lasts(start: Start) -> None:
    """A prompt that waits for its lane; one that the engine has; an answer that grows."""
    server = start(engine={"max_num_seqs": 1})
    lane, gate = threading.Event(), Gate(threading.Event())
    server.service.lanes._long.submit(lane.wait)
    server.says("so", gate, "slow")
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(server.complete, max_tokens=2)
        until(server, lambda found: stages(found) == ["answering"])
        second = pool.submit(server.complete)
        until(server, lambda found: stages(found) == ["answering", "queued"])
        third = pool.submit(server.complete, prompt="Hi " * LONG_BYTES)
        found = until(server, lambda found: stages(found) == ["answering", "queued", "tokenizing"])
        growing, queued, arrived = found["requests"]["live"]
        assert growing["num_computed_tokens"] == growing["num_prompt_tokens"]
        assert (queued["num_computed_tokens"], queued["started_s"], queued["compile_s"]) == (0, None, None)
        assert (growing["num_output_tokens"], queued["num_output_tokens"]) == (1, 0)
        assert growing["first_token_s"] is not None
        assert (queued["queued_s"] is None, queued["first_token_s"]) == (False, None)
        assert (arrived["tokenized_s"], arrived["num_prompt_tokens"]) == (None, 0)
        lane.set()
        gate.event.set()
        assert [future.result().status_code for future in (first, second)] == [200, 200]
        assert third.result().status_code == 400  # longer than the context
    ended = live(server)["requests"]["ended"]
    assert sorted(line["outcome"] for line in ended) == ["context_length_exceeded", "length", "stop"]


def test_a_prompts_progress_is_seen(start: Start) -> None:
    """How much of it is computed grows while the request has no token, over all prompts of the request; answers to the
    same one share that."""
    server = start(engine={"max_num_batched_tokens": 64, "prefix_caching": True})
    server.scripts.token_s = 0.002
    server.says("ok")
    prompts = [[1000 + number] * 300 for number in range(2)]
    seen: list[int] = []

    def sees(found: Json) -> bool:
        lines = found["requests"]["live"]
        seen.extend(line["num_computed_tokens"] for line in lines if line["stage"] == "prefilling")
        assert all(0 <= line["started_s"] <= found["cursor"] for line in lines if line["stage"] == "prefilling")
        return len(set(seen)) >= 3

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.complete, prompt=prompts, n=2, max_tokens=1)
        while not asked.done() and not sees(live(server)):
            time.sleep(0.02)
        assert asked.result().status_code == 200
    assert len(set(seen)) >= 3
    assert seen == sorted(seen)
    assert 0 < max(seen) <= 600


@pytest.mark.parametrize("where", ["server", pytest.param("engine", marks=pytest.mark.slow)])
def test_compiling_a_grammar_is_a_stage_of_its_own(start: Start, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Before the engine, or there; while it lasts and afterwards it is no part of the queue."""
    gate = threading.Event()
    server = start()
    if where == "server":
        monkeypatch.setattr(server.service.grammars, "compile", lambda *_, **__: (gate.wait(), None)[1])
    else:
        factory_of = grammars._factory
        monkeypatch.setattr(grammars, "_factory", lambda texts: (gate.wait(), factory_of(texts))[1])
    server.says("yes")

    def compiles(found: Json) -> bool:
        lines = [line for line in found["requests"]["live"] if line["stage"] == "compiling"]
        return [line["queued_s"] is None for line in lines] == [where == "server"]

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.chat, structured_outputs={"choice": ["yes", "no"]})
        try:
            [line] = until(server, compiles)["requests"]["live"]
            least_s = line["compile_s"] + 0.05
            until(server, lambda found: compiles(found) and found["requests"]["live"][0]["compile_s"] > least_s)
        finally:
            gate.set()
        assert asked.result().status_code == 200
    found = until(server, lambda found: found["latencies"][0]["ttft"]["count"] == 1)
    [line] = found["requests"]["ended"]
    assert line["compile_s"] > least_s
    assert line["started_s"] - line["tokenized_s"] >= line["compile_s"]
    minute = found["latencies"][0]
    assert minute["compile"]["mean_s"] == pytest.approx(line["compile_s"], abs=1e-4)
    parts = sum(minute[name]["mean_s"] for name in ("tokenize", "compile", "queue", "prefill"))
    assert parts == pytest.approx(minute["ttft"]["mean_s"], abs=1e-4), "stages leave no gap"


def stages(found: Json) -> list[str]:
    return [line["stage"] for line in found["requests"]["live"]]


def test_each_ended_request_comes_once(start: Start) -> None:
    """Whenever one polls: nothing twice, nothing lost."""
    server = start()
    num_requests, seen, cursor = 60, list[str](), 0.0
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(server.complete, max_tokens=2) for _ in range(num_requests)]
        while len(seen) < num_requests:
            found = live(server, since=repr(cursor))
            cursor = found["cursor"]
            seen += [line["id"] for line in found["requests"]["ended"]]
            assert len(seen) < num_requests or all(future.result().status_code == 200 for future in asked)
    assert len(set(seen)) == len(seen) == num_requests
    assert live(server, since=repr(cursor))["requests"]["ended"] == []


def test_points_come_once_and_in_order(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "TICK_S", 0.05)
    server = start()
    at: list[float] = []
    cursor = 0.0
    while len(at) < 20:
        found = live(server, since=repr(cursor))
        cursor = found["cursor"]
        at += found["history"]["fine"]["at"]
        assert {len(column) for column in found["history"]["fine"]["columns"].values()} <= {
            len(found["history"]["fine"]["at"])
        }
    assert at == sorted(set(at))
    whole = live(server)["history"]
    assert whole["fine"]["at"][: len(at)] == at
    assert whole["coarse"]["at"]


def test_refusals_and_clients_that_leave_are_told_apart(start: Start) -> None:
    server = start(engine={"max_num_seqs": 1, "max_num_queued_reqs": 1})
    gate = Gate(threading.Event())
    server.says("so", gate, "slow")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.complete)
        until(server, lambda found: stages(found) == ["answering"])
        assert server.complete(n=2).status_code == 429
        assert server.complete(model="other").status_code == 404
        with server.http.stream("POST", "/v1/completions", json={"prompt": server.hi, "stream": True}):
            until(server, lambda found: stages(found) == ["answering", "queued"])
        found = until(server, lambda found: len(found["requests"]["ended"]) == 3)
        gate.event.set()
        assert running.result().status_code == 200
    told = [(line["status"], line["outcome"]) for line in found["requests"]["ended"]]
    assert told == [(429, "queue_full"), (404, "model_not_found"), (499, "cancelled")]
    until(server, lambda found: found["history"]["fine"]["columns"]["rejected"][-1] is not None)


def test_lists_are_bounded(start: Start) -> None:
    server = start()
    for _ in range(MAX_ENDED + 20):
        assert server.complete(model="other").status_code == 404
    assert len(live(server)["requests"]["ended"]) == MAX_ENDED


def test_keys_are_shown_by_name_and_nothing_secret_at_all(start: Start) -> None:
    """Neither secrets, nor salts, nor text of prompts and answers."""
    secret = "a-secret-of-mine"
    server = start(api_keys=(secret,))
    server.http.headers["authorization"] = f"Bearer {secret}"
    server.says("bananas are yellow")
    prompt = "What colour has a banana? " * 20
    assert server.complete(prompt=prompt, cache_salt="pepper", max_tokens=5).status_code == 200
    assert server.complete(prompt=prompt, max_tokens=5).status_code == 200
    found = until(server, lambda found: bool(found["now"]["kv"]["by_namespace"]))
    assert [space["name"] for space in found["now"]["kv"]["by_namespace"]] == ["api-key-1"]
    assert {line["key"] for line in found["requests"]["ended"]} == {"api-key-1"}
    [use] = found["now"]["keys"]
    assert (use["key"], use["minute_requests"], use["num_running"]) == ("api-key-1", 2, 0)
    text = server.http.get("/debug/live").text
    for hidden in (secret, "pepper", "banana", "colour", "yellow"):
        assert hidden not in text


@pytest.mark.parametrize("since", ["soon", "nan", "inf", ""])
def test_since_is_a_number(server: Server, since: str) -> None:
    refused = server.http.get("/debug/live", params={"since": since})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "since"
