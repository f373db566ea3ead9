"""What clients see of an engine that has a process of its own, when that process has trouble."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import Server
from tests.server.test_lifecycle import last_error, raw_request, wait_until
from tests.server.test_live import Json, until
from tests.server.test_prefix_cache import LONG, cached
from tests.server.test_warmup import TEXT as WARM
from tests.server.test_warmup import written

from freehold.config import EngineConfig
from freehold.engine import watch
from freehold.engine.remote import ProcessEngine
from freehold.files.vocabulary import TextAssets
from freehold.serve.live import board, numbers

PROGRAM = (sys.executable, "-P", str(Path(__file__).with_name("slow_engine.py")))
FAULTY = Path(__file__).parents[1] / "unit" / "engine" / "fault_child.py"


@pytest.fixture
def server(text: TextAssets) -> Iterator[Server]:
    config = EngineConfig(model_path=Path("scripted"), backend="scripted", max_num_seqs=4)
    server = Server(text, config, handle=ProcessEngine.start(config, program=PROGRAM))
    yield server
    server.stop()


def engine_pid(server: Server) -> int:
    assert isinstance(server.engine, ProcessEngine)
    assert server.engine.pid is not None
    return server.engine.pid


def is_ready(server: Server) -> bool:
    return server.http.get("/readyz").status_code == 200


def answers(server: Server) -> None:
    wait_until(lambda: is_ready(server))
    assert server.chat(max_tokens=3).json()["usage"]["completion_tokens"] == 3


def running(server: Server, pool: ThreadPoolExecutor, number: int = 6) -> list[Any]:
    """Requests of every kind: more than run at once, streamed, plain and in several choices."""
    futures = [pool.submit(server.chat, stream=i % 2 == 0, n=1 + i % 3, max_tokens=4000) for i in range(number)]
    wait_until(lambda: server.engine.num_live == sum(1 + i % 3 for i in range(number)))
    return futures


def check_died(futures: list[Any]) -> None:
    for i, future in enumerate(futures):
        response = future.result()
        if i % 2 == 0:
            error = last_error(response)
        else:
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            error = response.json()["error"]
        assert error["code"] == "engine_died"
        assert "SIG" not in error["message"], "what is inside stays inside"


def test_the_live_page_tells_of_the_engine_across_its_deaths(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says with its heartbeats; that it is gone; and its successor's numbers, which go on from there."""
    monkeypatch.setattr(board, "TICK_S", 0.1)
    with ThreadPoolExecutor(6) as pool:
        futures = running(server, pool)
        before = until(server, lambda found: found["now"]["waiting"]["rows"] == 8)
        assert (before["now"]["running"], before["server"]["num_engine_starts"]) == (4, 1)
        assert before["now"]["engine_age_s"] < 10
        os.kill(engine_pid(server), signal.SIGKILL)
        gone = until(server, lambda found: found["binding"]["code"] == "not_ready")
        assert not gone["server"]["ready"]
        check_died(futures)
    after = until(server, lambda found: found["binding"]["code"] == "idle")
    assert after["server"]["num_engine_starts"] == 2
    assert {line["outcome"] for line in after["requests"]["ended"]} == {"failed:engine_died", "engine_died"}
    rates = [rate for rate in after["history"]["fine"]["columns"]["computed"] if rate is not None]
    assert min(rates) >= 0


def test_what_a_dead_engine_did_binds_nobody(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor is idle from the first."""
    monkeypatch.setattr(board, "TICK_S", 0.1)
    monkeypatch.setattr(numbers, "RECENT_S", 15)  # so that the last seconds are longer than the start of an engine
    codes: list[str] = []

    def is_idle(found: Json) -> bool:
        codes.append(found["binding"]["code"])
        return codes[-1] == "idle"

    with ThreadPoolExecutor(2) as pool:
        futures = running(server, pool, 2)
        until(server, lambda found: found["now"]["running"] == 3)
        time.sleep(15 * board.TICK_S)
        os.kill(engine_pid(server), signal.SIGKILL)
        until(server, lambda found: found["binding"]["code"] == "not_ready")
        check_died(futures)
    until(server, is_idle)
    assert set(codes) == {"not_ready", "idle"}


def test_a_killed_engine_ends_every_request_and_comes_back(server: Server) -> None:
    with ThreadPoolExecutor(6) as pool:
        futures = running(server, pool)
        os.kill(engine_pid(server), signal.SIGKILL)
        check_died(futures)
    assert server.http.get("/livez").status_code == 200
    answers(server)
    ledger = server.engine.ledger()
    assert (ledger.accepted, ledger.failed, ledger.finished) == (13, 12, 1)
    wait_until(lambda: server.service.load.num_answers == 0)


@pytest.mark.slow
def test_what_shall_stay_cached_is_cached_again(text: TextAssets, tmp_path: Path) -> None:
    """Warm prefixes without anybody's doing, before the server is ready again; what clients pin with their next
    request."""
    config = EngineConfig(model_path=Path("scripted"), backend="scripted", max_num_seqs=4)
    warm = written(tmp_path / "prefixes", {"text": WARM})
    server = Server(text, config, handle=ProcessEngine.start(config, program=PROGRAM), warmup_prefixes=warm)
    try:
        for number in range(3):
            wait_until(lambda: is_ready(server))
            assert cached(server.complete(prompt=WARM + "It was old.", max_tokens=1).json())[0] > 90
            pinned = [
                cached(server.complete(prompt=LONG, max_tokens=1, prompt_cache_key="mine").json()) for _ in range(2)
            ]
            assert pinned[0][0] == 0, "it went with the engine"
            assert pinned[1][0] == pinned[1][1] - 1
            os.kill(engine_pid(server), signal.SIGKILL)
            wait_until(lambda: not is_ready(server))
            assert server.engine.num_starts == number + 1
    finally:
        server.stop()


def test_a_stopped_engine_is_not_ready_and_is_replaced(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SILENT_S", 1.0)
    monkeypatch.setattr(watch, "DEAD_S", 4.0)
    with ThreadPoolExecutor(6) as pool:
        futures = running(server, pool)
        os.kill(engine_pid(server), signal.SIGSTOP)
        stopped_s = time.monotonic()
        wait_until(lambda: not is_ready(server))
        assert time.monotonic() - stopped_s < 3.5
        assert server.http.get("/livez").status_code == 200
        refused = server.chat()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "engine_stalled"
        check_died(futures)
    answers(server)


def test_a_stall_is_not_ready_and_says_where_until_it_ends(
    text: TextAssets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENT_S", 1.0)
    config = EngineConfig(model_path=Path("scripted"), backend="scripted")
    command = (sys.executable, str(FAULTY), str(tmp_path / "lives"), "1", "COLLECT:wait=4:3")
    server = Server(text, config, handle=ProcessEngine.start(config, program=command))
    pid = engine_pid(server)
    with ThreadPoolExecutor(1) as pool:
        stalling = pool.submit(server.chat, max_tokens=9)
        started_s = time.monotonic()
        wait_until(lambda: not is_ready(server))
        assert time.monotonic() - started_s < 3.5  # of which the first half second is before the stall
        assert "at: collect" in server.http.get("/readyz").json()["error"]["message"]
        assert server.http.get("/livez").status_code == 200
        assert stalling.result().json()["usage"]["completion_tokens"] == 9
    answers(server)
    assert engine_pid(server) == pid
    server.stop()


def test_clients_that_leave_while_the_engine_is_stopped(server: Server) -> None:
    """Their aborts wait with the rest, and nothing is left in the end."""
    connections = [raw_request(server, {"stream": i % 2 == 0, "max_tokens": 4000}) for i in range(5)]
    wait_until(lambda: server.engine.num_live == 5)
    os.kill(engine_pid(server), signal.SIGSTOP)
    for connection in connections:
        connection.close()
    wait_until(lambda: server.service.load.num_answers == 0)
    assert server.engine.num_live == 5
    os.kill(engine_pid(server), signal.SIGCONT)
    wait_until(lambda: server.engine.num_live == 0)
    assert server.engine.ledger().cancelled == 5
    answers(server)


@pytest.mark.parametrize("num_signals", [1, 2])
def test_shutdown_cuts_short(text: TextAssets, num_signals: int) -> None:
    config = EngineConfig(model_path=Path("scripted"), backend="scripted")
    engine = ProcessEngine.start(config, program=PROGRAM)
    server = Server(text, config, handle=engine, shutdown_timeout_s=0.2 if num_signals == 1 else 3600.0)
    pid = engine_pid(server)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(server.chat, stream=stream, max_tokens=4000) for stream in (False, True)]
        wait_until(lambda: server.engine.num_live == 2)
        for _ in range(num_signals):
            server.send_signal()
        plain, streamed = (future.result() for future in futures)
    server.stop()
    assert (plain.status_code, plain.json()["error"]["code"]) == (503, "engine_stopping")
    assert last_error(streamed)["code"] == "engine_stopping"
    assert engine.ledger().cancelled == 2
    assert not Path(f"/proc/{pid}").exists()


def test_killed_while_the_server_drains(server: Server) -> None:
    with ThreadPoolExecutor(6) as pool:
        futures = running(server, pool)
        server.send_signal()
        wait_until(lambda: not is_ready(server))
        os.kill(engine_pid(server), signal.SIGKILL)
        check_died(futures)
    server.join()
