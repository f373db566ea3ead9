"""What waits at the server: who is refused and when to try again, and who goes first."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.server.running import Server, Start

from freehold.backends.script import Gate, Pause
from freehold.protocol import Generate


def wait_until(condition, timeout_s: float = 60.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.01)


def test_retry_after_says_how_long_the_queue_is(start: Start) -> None:
    """Each answer takes about 0.4 s, alone; four wait. Whole seconds, at least 1, and in the message too."""
    server = start(engine={"max_num_seqs": 1, "max_num_queued_reqs": 4})
    server.says(*[item for word in ("one", "two", "three", "four") for item in (Pause(0.1), word)])
    for _ in range(4):
        assert server.chat().status_code == 200
    with ThreadPoolExecutor(5) as pool:
        running = [pool.submit(server.chat) for _ in range(5)]
        wait_until(lambda: server.engine.num_live == 5)
        refused = server.chat(stream=True)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        retry_after = refused.headers["retry-after"]
        assert retry_after.isdecimal()
        assert 1 <= int(retry_after) <= 6
        assert "--max-num-queued-reqs" in refused.json()["error"]["message"]
        assert [future.result().status_code for future in running] == [200] * 5


@pytest.mark.parametrize("stream", [False, True])
def test_answers_that_belong_together_get_in_together(start: Start, stream: bool) -> None:
    """Of a request for three answers with two places left nothing runs."""
    server = start(engine={"max_num_seqs": 1, "max_num_queued_reqs": 3})
    gate = Gate(threading.Event())
    with ThreadPoolExecutor(2) as pool:
        server.says(gate, "ok")
        running = [pool.submit(server.chat) for _ in range(2)]
        wait_until(lambda: server.engine.num_live == 2)
        assert server.chat(n=3, stream=stream).status_code == 429
        assert server.engine.num_live == 2
        assert server.engine.ledger().refused == 3
        both = pool.submit(server.chat, n=2, stream=stream)
        gate.event.set()
        assert both.result().status_code == 200
        assert [future.result().status_code for future in running] == [200] * 2
    assert server.engine.ledger().accepted == 4


@pytest.mark.parametrize("surface", ["chat", "complete"])
def test_more_answers_than_ever_find_room_are_not_to_be_sent_again(start: Start, surface: str) -> None:
    server = start(engine={"max_num_seqs": 2, "max_num_queued_reqs": 3})
    refused = getattr(server, surface)(n=6)
    assert refused.status_code == 400
    assert "retry-after" not in refused.headers
    error = refused.json()["error"]
    assert error["param"] == "n"
    assert "asks for 6 answers; this server holds 5 at once" in error["message"]
    assert getattr(server, surface)(n=5, max_tokens=2).status_code == 200


def test_tokens_that_wait_are_limited_before_a_stream_begins(start: Start) -> None:
    server = start(engine={"max_num_seqs": 4, "max_num_queued_tokens": 60})
    gate = Gate(threading.Event())
    with ThreadPoolExecutor(1) as pool:
        server.says(gate, "ok")
        long = [{"role": "user", "content": f"{server.hi} " + "word " * 100}]
        running = pool.submit(server.chat, messages=long)
        wait_until(lambda: server.engine.num_live == 1)
        refused = server.chat(stream=True, messages=long)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert "--max-num-queued-tokens" in refused.json()["error"]["message"]
        gate.event.set()
        assert running.result().status_code == 200


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("interactive", 0)),
        ({"service_tier": "auto", "priority": 5}, ("interactive", 5)),
        ({"service_tier": "priority"}, ("interactive", 0)),
        ({"service_tier": "agent", "priority": -100}, ("agent", -100)),
        ({"service_tier": "flex"}, ("batch", 0)),
        ({"service_tier": "batch", "priority": None}, ("batch", 0)),
    ],
)
@pytest.mark.parametrize("surface", ["chat", "complete"])
def test_tier_and_priority_reach_the_engine(
    server: Server, surface: str, fields: dict, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Generate] = []
    send = server.engine._send

    def noting(message) -> None:
        if isinstance(message, Generate):
            sent.append(message)
        send(message)

    monkeypatch.setattr(server.engine, "_send", noting)
    assert getattr(server, surface)(**fields).status_code == 200
    assert [(generate.service, generate.priority) for generate in sent] == [expected]
