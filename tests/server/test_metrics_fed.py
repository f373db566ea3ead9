"""Every documented series is fed: a mixed load moves it. And none grows with what clients make up."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.families import QWEN, family
from tests.server.prometheus_text import scrape
from tests.server.running import Server, Start
from tests.server.test_planted_causes import SMALL_KV, prompt, words

from freehold.backends.script import NotFinite, Pause
from freehold.config import RecordConfig, TracingConfig
from freehold.engine import grammars
from freehold.files.vocabulary import TextAssets
from freehold.sched import thrash

ROOT = Path(__file__).parents[2]
KEY = "a-key-for-everything"
NUM_MADE_UP = 10_000
Series = tuple[str, ...]

UNMOVED = {
    "freehold:engine_starts_total": "the engine would have to die; tests of the engine's process kill it",
    "freehold:recording_stopped": "the disk would have to be full; tests of recording fill it",
    "freehold:log_lines_dropped_total": "nobody would have to take the log; tests of the log don't",
    "freehold:ready": "the engine would have to fail or stop; tests of probes do that",
    "freehold:engine_info": "fixed",
    "vllm:cache_config_info": "fixed",
    "vllm:spec_decode_num_drafts_total": "nothing guesses in this build",
    "vllm:spec_decode_num_draft_tokens_total": "nothing guesses in this build",
    "vllm:spec_decode_num_accepted_tokens_total": "nothing guesses in this build",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": "nothing guesses in this build",
    "freehold:records_total dropped": "the disk would have to be slower than a server; tests of recording make it so",
    "freehold:kv_cache_public_blocks": "prefixes would have to be warmed up; tests of warm-up do that",
    "process_max_fds": "fixed",
    "process_start_time_seconds": "fixed",
    "process_open_fds": "may be the same again",
    "process_virtual_memory_bytes": "may be the same again",
    "process_resident_memory_bytes": "may be the same again",
    **{
        f"vllm:admission_rejections_total {code}": "the engine or the server would have to stop; other tests do that"
        for code in (
            "draining", "engine_busy", "engine_died", "engine_restarting", "engine_stalled", "engine_stopped",
            "engine_stopping",
        )
    },
    "vllm:admission_rejections_total insufficient_quota": "a day's quota would have to be used up; tests of keys do it",
    "vllm:admission_rejections_total rate_limit_exceeded": "a key would need limits; tests of keys give it some",
}  # fmt: skip
"""Series that stay as they are under this load, and why."""


@contextmanager
def watching(server: Server, moved: set[Series]) -> Iterator[None]:
    """Note which series differ from what they were first, over and over: gauges go back."""
    first, is_over = scrape(server).values, threading.Event()

    def look() -> None:
        while not is_over.wait(0.01):
            found = scrape(server).values
            moved.update(name for name, value in found.items() if value != first.get(name))

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(look)
        try:
            yield
        finally:
            is_over.set()
            future.result()


@pytest.mark.slow
def test_a_mixed_load_moves_every_documented_series(
    start: Start, text: TextAssets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.1")
    monkeypatch.setattr(thrash, "LEAST_S", 0.1)  # it judges after a moment
    monkeypatch.setattr(thrash, "_SAMPLE_S", 0.02)
    server = start(
        family(text, QWEN, added=("<think>", "</think>")),
        engine={"max_num_seqs": 3, "max_num_queued_reqs": 20, "max_num_batched_tokens": 32, **SMALL_KV},
        api_keys=(KEY,),
        record=RecordConfig(mode="full", folder=tmp_path / "recording"),
        tracing=TracingConfig(endpoint=f"http://127.0.0.1:{free_port}/v1/traces"),
    )
    server.http.headers["authorization"] = f"Bearer {KEY}"
    page = (ROOT / "docs/metrics.md").read_text()
    documented = set(re.findall(r"`((?:vllm|freehold):[a-z0-9_]+)[`{]", page))
    (row,) = [line for line in page.splitlines() if line.startswith("| `process_…`")]
    documented |= {f"process_{name}" for name in re.findall(r"`([a-z_]+)`", row.split("|", 2)[2])}
    assert len(documented) > 50
    moved: set[Series] = set()

    def still() -> set[str]:
        """Series of now, and names of the page, that haven't moved and should have."""
        names = {re.sub("_(bucket|sum|count)$", "", series[0]) for series in moved}
        now = {series for series in scrape(server).values if not series[0].endswith("_bucket")} - moved
        return {
            *(" ".join(series) for series in now if not {" ".join(series), series[0]} & UNMOVED.keys()),
            *(documented - names - UNMOVED.keys()),
        }

    with watching(server, moved):
        mixed_load(server, monkeypatch)
        end_s = time.monotonic() + 10
        while still() and time.monotonic() < end_s:  # the engine tells of itself four times a second
            time.sleep(0.05)
        assert still() == set()


def mixed_load(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of everything: each kind of end, of wait and of refusal."""

    def at_once(asks: list[Callable[[], Any]]) -> None:
        with ThreadPoolExecutor(len(asks)) as pool:
            for future in [pool.submit(ask) for ask in asks]:
                future.result()

    def asks(numbers: range, num_tokens: int, max_tokens: int) -> list[Callable[[], Any]]:
        return [partial(server.complete, prompt=prompt(i, num_tokens), max_tokens=max_tokens) for i in numbers]

    server.says("one", Pause(0.05), " two three")
    for _ in range(2):  # the second finds the first's prompt, and that is pinned
        server.complete(prompt=server.hi + " and so on" * 16, prompt_cache_key="kept")
    server.says("<think>one two three</think>ok")
    server.chat()
    server.says(*words(1000, 0.002))
    compiles = threading.Event()
    factory_of = grammars._factory
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(grammars, "_factory", lambda texts: (compiles.wait(), factory_of(texts))[1])
        try:  # one waits for its grammar; the others take each other's blocks meanwhile
            waiting = pool.submit(server.complete, structured_outputs={"choice": ["yes", "no"]}, max_tokens=3)
            at_once(asks(range(5), 60, 90))
        finally:
            compiles.set()
        assert waiting.result().is_success
    server.scripts.token_s = 0.002  # so that prompts take longer than the engine is silent
    at_once([partial(server.complete, prompt=prompt(9, 180), n=3, max_tokens=5)])  # one leads the others
    at_once(asks(range(20, 23), 180, 2))  # each fills steps, then the blocks
    server.scripts.token_s = 0.0
    at_once([partial(server.complete, n=8, max_tokens=20)] * 5)  # the queue is full
    at_once([partial(server.complete, max_tokens=200), partial(server.complete, max_tokens=50, service_tier="flex")])
    with server.http.stream(
        "POST", "/v1/completions", json={"prompt": server.hi, "stream": True, "max_tokens": 100}
    ) as answer:
        next(answer.iter_lines())
    assert server.chat(temperature="hot").is_client_error
    server.says('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>')
    server.chat(tools=[{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}])
    stranger = {"authorization": "Bearer none-of-yours"}
    assert server.http.post("/v1/chat/completions", json={}, headers=stranger).is_client_error
    server.says("a b c", NotFinite(), " d")
    assert server.chat().is_server_error


@pytest.mark.slow
def test_what_clients_make_up_makes_no_series(start: Start) -> None:
    """Names of models, keys, paths, users, ids: none becomes a label, in whatever answer it ends."""
    server = start(api_keys=(KEY,))
    server.says("ok")
    assert server.http.post(
        "/v1/completions", json={"prompt": "a"}, headers={"authorization": f"Bearer {KEY}"}
    ).is_success

    def series() -> set[Series]:
        answer = server.http.get("/metrics", headers={"authorization": f"Bearer {KEY}"})
        return {tuple(line.rpartition(" ")[:1]) for line in answer.text.splitlines() if not line.startswith("#")}

    def make_up(client: httpx.Client, number: int) -> None:
        name, mine = f"made-up-{number}", {"authorization": f"Bearer {KEY}"}
        body = {"model": name, "prompt": "a", "user": name, "metadata": {name: name}, name: name}
        kinds: list[Callable[[], httpx.Response]] = [
            lambda: client.post("/v1/completions", json=body, headers=mine),
            lambda: client.post("/v1/completions", json=body, headers={"authorization": f"Bearer {name}"}),
            lambda: client.get(f"/{name}", headers=mine),
            lambda: client.request(f"M{number}", "/v1/completions", headers={**mine, "x-request-id": name}),
        ]
        assert kinds[number % 4]().status_code in {400, 401, 404, 405}

    with httpx.Client(base_url=server.url, timeout=60) as client:
        for number in range(4):  # refusals of each kind have series
            make_up(client, number)
        before = series()
        for number in range(NUM_MADE_UP):
            make_up(client, number)
    after = series()
    assert len(before) > 100
    assert after == before
    assert "made-up" not in json.dumps(sorted(after))
