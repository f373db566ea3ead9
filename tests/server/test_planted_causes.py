"""Planted causes, and the sentence that the live page tells of each: on a real socket, with a script for a model."""

import hashlib
import itertools
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.server.running import Server, Start
from tests.server.test_connections import POST
from tests.server.test_live import Json, live
from tests.server.test_queue import wait_until

from freehold.backends.script import Break, Pause
from freehold.engine import grammars
from freehold.engine.start import SCRIPTED_TOKEN_BYTES
from freehold.observe import diagnosis
from freehold.observe.history import RECENT_S
from freehold.serve.lanes import LONG_BYTES
from freehold.serve.live import board

TICK_S = 0.1
TIMEOUT_S = 60.0

SMALL_KV = {"block_size": 16, "kv_cache_bytes": 16 * 16 * SCRIPTED_TOKEN_BYTES, "max_model_len": 224}
"""16 blocks of 16 tokens."""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is shorter, so that causes needn't last as long."""
    monkeypatch.setattr(board, "TICK_S", TICK_S)


def binding(server: Server) -> Json:
    found: Json = live(server)["binding"]
    return found


def told(server: Server, code: str, words: str = "") -> Json:
    """What the server says once it says this, and says it again for some seconds."""
    end_s = time.monotonic() + TIMEOUT_S
    num_right = 0
    while num_right < 8:
        found = binding(server)
        is_right = found["code"] == code and words in found["sentence"]
        num_right = num_right + 1 if is_right else 0
        assert time.monotonic() < end_s, live(server)
        time.sleep(TICK_S / 2)
    assert all(flag in found["sentence"] for flag in found["settings"])
    return found


def test_every_code_has_its_cause_here() -> None:
    source = Path(__file__).read_text()
    assert [code for code in get_args(diagnosis.Code) if f'"{code}"' not in source] == []


@contextmanager
def asking(server: Server, clients: Iterable[Iterable[Json]], pause_s: float = 0.0) -> Iterator[None]:
    """Clients at once, each with completions one after the other until the end."""
    with ThreadPoolExecutor(32) as pool:
        is_over = threading.Event()

        def ask(bodies: Iterable[Json]) -> None:
            for body in bodies:
                if is_over.is_set():
                    return
                server.complete(**body)
                time.sleep(pause_s)

        futures = [pool.submit(ask, bodies) for bodies in clients]
        try:
            yield
        finally:
            is_over.set()
            server.stop()
        for future in futures:
            future.exception()  # the server has ended under it, perhaps


def again(**body: Any) -> Iterator[Json]:
    """The same for ever."""
    return itertools.repeat(body)


def prompt(number: int, num_tokens: int) -> list[int]:
    """A prompt that has nothing in common with those of other numbers."""
    return [1000 + number] * num_tokens


def words(num: int, pause_s: float) -> list[Any]:
    return [item for _ in range(num) for item in (Pause(pause_s), " word")]


def test_queue(start: Start) -> None:
    """More come than have rows, and the KV cache has room."""
    server = start(engine={"max_num_seqs": 2})
    server.says(*words(2000, 0.01))
    with asking(server, [again(max_tokens=1000)] * 6):
        found = told(server, "rows", "max_num_seqs reached (2 of 2 run, 4 wait), KV")
        assert found["sentence"].endswith("raise --max-num-seqs")
        assert found["settings"] == ["--max-num-seqs"]
        now = live(server)["now"]
        assert (now["running"], now["waiting"]["rows"], now["waiting"]["total"]) == (2, 4, 4)


def test_who_waits_for_a_row_is_not_told_to_be_computed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even before a second has closed that tells of the queue."""
    monkeypatch.setattr(board, "TICK_S", 1000.0)  # but for those below
    monkeypatch.setattr(diagnosis, "LATE_S", 0.2)
    server = start(engine={"max_num_seqs": 4})
    server.says(*words(2000, 0.01))
    with asking(server, [again(max_tokens=1000)] * 4):
        wait_until(lambda: [line["stage"] for line in live(server)["requests"]["live"]] == ["answering"] * 4)
        for _ in range(RECENT_S + 1):  # so that those first tokens are of long ago
            server.service.board.tick(0.0)
        with asking(server, [again(max_tokens=1)]):
            wait_until(lambda: (state := server.engine.state()) is not None and state.waiting.rows == 1)
            time.sleep(2 * diagnosis.LATE_S)
            assert not binding(server)["code"].startswith("prefill")


def test_a_burst_is_told_as_it_is(start: Start) -> None:
    """The quiet before it isn't averaged in: in no sentence do fewer run than have rows while others wait."""
    server = start(engine={"max_num_seqs": 8})
    server.says(*words(2000, 0.01))
    told(server, "idle")
    with asking(server, [again(max_tokens=1000)] * 10):
        wait_until(lambda: live(server)["now"]["waiting"]["rows"] == 2)
        for _ in range(10):
            assert "(8 of 8 run, 2 wait)" in binding(server)["sentence"]
            time.sleep(TICK_S / 2)


def test_no_blocks_for_the_next(start: Start) -> None:
    """Each prompt takes most of the KV cache, so they run one after the other though there are rows."""
    server = start(engine={"max_num_seqs": 8, **SMALL_KV})
    server.says(*words(2000, 0.01))
    with asking(server, [again(prompt=prompt(i, 180), max_tokens=20) for i in range(3)]):
        found = told(server, "kv_full")
        assert found["sentence"].startswith("KV full: ")
        assert "--max-num-seqs" not in found["sentence"]
        assert found["settings"] == ["--kv-cache-memory-bytes"]


def test_rows_and_blocks_are_taken(start: Start) -> None:
    """Three have all rows, and nearly all blocks besides: more rows would wait for blocks."""
    server = start(engine={"max_num_seqs": 3, **SMALL_KV})
    server.says(*words(2000, 0.1))
    with asking(server, [again(prompt=prompt(i, 63), max_tokens=17) for i in range(5)]):
        found = told(server, "kv_and_rows", "all rows are taken (3 of 3 run, 2 wait), and 94% of the KV cache is held")
        assert found["sentence"].endswith("raise --kv-cache-memory-bytes first")
        assert found["settings"] == ["--kv-cache-memory-bytes"]


@pytest.mark.parametrize("where", ["server", pytest.param("engine", marks=pytest.mark.slow)])
def test_grammars_take_long(start: Start, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Each request has another, and they are compiled one after the other."""
    gate = threading.Event()
    server = start()
    server.says("yes")
    if where == "server":
        monkeypatch.setattr(server.service.grammars, "compile", lambda *_, **__: (gate.wait(), None)[1])
    else:
        factory_of = grammars._factory
        monkeypatch.setattr(grammars, "_factory", lambda texts: (gate.wait(), factory_of(texts))[1])
    choices = [{"structured_outputs": {"choice": ["yes", f"no {number}"]}, "max_tokens": 2} for number in range(3)]
    try:
        with asking(server, [[body] for body in choices]):
            found = told(server, "grammars", "grammars: 3 requests wait until the grammar of the answer is compiled")
            assert found["sentence"].endswith("use fewer different schemas, or simpler ones")
            gate.set()
            wait_until(lambda: len(live(server)["requests"]["ended"]) == 3)
    finally:
        gate.set()


def test_thrashing(start: Start) -> None:
    """All fit when they start, and take each other's blocks when they grow."""
    server = start(engine={"max_num_seqs": 8, **SMALL_KV})
    server.says(*words(2000, 0.01))
    with asking(server, [again(prompt=prompt(i, 40), max_tokens=150) for i in range(4)]):
        found = told(server, "kv_thrashing", "KV full: thrashing: running requests lost their blocks")
        assert found["severity"] == "critical"
        tier = live(server)["now"]["kv"]["tiers"][0]
        assert tier["held"] + tier["cached"] + tier["free"] == tier["num_blocks"] == 16


def test_long_prompt(start: Start) -> None:
    """A prompt of many steps, and short ones that come after it."""
    server = start(engine={"max_num_seqs": 8, "max_num_batched_tokens": 64})
    server.scripts.token_s = 0.003
    server.says("ok")
    with asking(server, [again(prompt=prompt(0, 7000))]):
        wait_until(lambda: server.engine.num_live == 1)
        with asking(server, [again(prompt=prompt(i, 20), max_tokens=1) for i in range(1, 4)]):
            found = told(server, "long_prompt", "(7000 tokens, 64 fit in a step, 3 others wait)")
            assert "--max-num-batched-tokens" in found["sentence"]


@pytest.mark.parametrize(
    ("answering", "code", "flag"),
    [(1, "prefill_beside_answers", "--itl-target-ms"), (0, "prefill", "--max-num-batched-tokens")],
)
@pytest.mark.slow
def test_prompts_that_take_long(start: Start, answering: int, code: str, flag: str) -> None:
    """They come one after the other, while answers grow, so that they are computed in small pieces; or alone."""
    server = start(engine={"max_num_seqs": 8, "itl_target_ms": 20.0})
    server.scripts.token_s = 0.001
    server.says(*words(2000, 0.0))
    prompts = ({"prompt": prompt(number, 1500), "max_tokens": 1} for number in itertools.count(1))
    with asking(server, [prompts, *[again(max_tokens=2000)] * answering]):
        assert f"raise {flag}" in told(server, code)["sentence"]


def test_slow_clients(start: Start) -> None:
    """The answer is there, and its client takes none of it."""
    server = start(send_buffer_bytes=4096)
    server.says(*words(2000, 0.001))
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        body = b'{"prompt": "Hi", "max_tokens": 2000, "stream": true}'
        client.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        found = told(server, "slow_clients")
        assert found["sentence"].startswith("clients read slowly: 1 client leaves unread")
        [line] = live(server)["requests"]["live"]
        assert line["unread_s"] > 0
        assert line["num_unread_bytes"] > 0


def test_tokenizing(start: Start) -> None:
    """A long text waits for its lane."""
    server = start()
    gate = threading.Event()
    server.service.lanes._long.submit(gate.wait)
    try:
        with asking(server, [again(prompt="Hi " * LONG_BYTES, max_tokens=1)]):
            told(server, "tokenizing", "wait until prompts are tokenized (1 now)")
            gate.set()
    finally:
        gate.set()


def test_the_servers_process_has_no_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works without a pause, and this machine may have other work as well."""
    monkeypatch.setattr(diagnosis, "FULL_CORE", 0.1)
    server, is_over = start(), threading.Event()
    server.says(*words(2000, 0.05))

    def work() -> None:
        while not is_over.is_set():
            hashlib.sha256(bytes(1 << 20))

    with ThreadPoolExecutor(4) as pool, asking(server, [again(max_tokens=1000)]):
        for _ in range(4):
            pool.submit(work)
        try:
            found = told(server, "server_cpu", "CPU: the server's process takes")
        finally:
            is_over.set()
        assert found["settings"] == ["--threads"]


def test_the_engine_plans_more_than_it_computes(start: Start) -> None:
    server = start(engine={"max_num_seqs": 8})
    server.says(*words(2000, 0.002))
    scheduler = server.engine._core._scheduler  # type: ignore[attr-defined]
    plan = scheduler.plan
    scheduler.plan = lambda: (time.sleep(0.01), plan())[1]
    with asking(server, [again(max_tokens=1000)] * 2):
        found = told(server, "engine_overhead", "goes into planning steps and taking them in")
        assert found["sentence"].endswith("leave it a core with a lower --threads")
        assert found["settings"] == ["--threads"]


def test_computing_without_a_pause(start: Start) -> None:
    server = start(engine={"max_num_seqs": 8})
    server.says(*words(2000, 0.01))
    with asking(server, [again(max_tokens=1000)] * 2):
        told(server, "compute", "2 run")


def test_nothing_binds(start: Start) -> None:
    """Answers come and go together, with pauses between them."""
    server = start(engine={"max_num_seqs": 8})
    server.says(*words(3, 0.1))
    with asking(server, [again(n=4, max_tokens=20)], pause_s=0.2):
        assert told(server, "nothing", " of 8 run")["severity"] == "ok"


def test_an_engine_that_failed(start: Start) -> None:
    server = start()
    server.says(Break("the memory burns"))
    server.chat()
    assert told(server, "not_ready", "the memory burns")["severity"] == "critical"
