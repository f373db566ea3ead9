"""How requests and servers end: clients that leave, engines that fail, full queues, shutdown."""

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.server.running import TIMEOUT_S, Server, Start
from tests.server.streams import events

from freehold.backends.script import Break, FailStep, Gate, NotFinite, Pause
from freehold.engine import grammars
from freehold.serve import server as lifecycle

SLOW = Pause(0.02)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.005)


@contextmanager
def gate() -> Iterator[Gate]:
    """Holds the model back; opened at the latest when the test ends, or its server could not stop."""
    event = threading.Event()
    try:
        yield Gate(event)
    finally:
        event.set()


def raw_request(
    server: Server, body: dict[str, Any], window: int | None = None, headers: dict[str, str] | None = None
) -> socket.socket:
    """Send a chat and don't read.

    Args:
        window: bytes that the system may take in our stead; the smallest it knows if that is more.
    """
    content = json.dumps({"model": "test", "messages": server.messages, **body}).encode()
    connection = socket.socket()
    connection.settimeout(TIMEOUT_S)
    if window is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    connection.connect(("127.0.0.1", server.port))
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    length = f"Content-Length: {len(content)}\r\n\r\n"
    connection.sendall((head + more + length).encode() + content)
    return connection


def last_error(response: httpx.Response) -> dict[str, Any]:
    """The error event of a stream, which must be followed by the one [DONE]."""
    data = events(response)
    assert data[-1] == "[DONE]"
    assert data.count("[DONE]") == 1
    error: dict[str, Any] = json.loads(data[-2])["error"]
    return error


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_leaves_ends_its_request(start: Start, stream: bool, n: int) -> None:  # ab-01
    server = start()
    server.says(*[SLOW, 40] * 4000, ends=False)
    connection = raw_request(server, {"stream": stream, "n": n, "max_tokens": 4000})
    wait_until(lambda: server.engine.num_live == n)
    if stream:
        assert connection.recv(10).startswith(b"HTTP/1.1")
    connection.close()
    wait_until(lambda: server.engine.num_live == 0 and server.service.load.num_answers == 0)
    assert server.engine.ledger().cancelled == n


def test_clients_that_leave_at_any_moment(start: Start) -> None:  # ab-03
    server = start(engine={"max_num_seqs": 4})
    server.says(*[Pause(0.001), 40] * 50, ends=False)

    def hit_and_run(moment_s: float) -> None:
        connection = raw_request(server, {"stream": moment_s < 0.05, "max_tokens": 50})
        time.sleep(moment_s)
        connection.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(hit_and_run, [i / 1000 for i in range(100)]))
    wait_until(lambda: server.engine.num_live == 0 and server.service.load.num_answers == 0)
    assert server.engine.health().ok
    server.says("fine")
    assert server.chat().json()["choices"][0]["message"]["content"] == "fine"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_in_the_access_log(
    start: Start, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = start()
    server.says(*[SLOW, 40] * 400, ends=False)
    connection = raw_request(server, {"max_tokens": 400, "stream": stream})
    wait_until(lambda: server.engine.num_live == 1)
    if stream:
        assert connection.recv(10)
    connection.close()
    wait_until(lambda: " 499 " in caplog.text)
    assert "outcome=cancelled" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("fault", "code"), [(NotFinite(), "numeric_error"), (FailStep(), "step_failed")])
def test_a_request_that_fails_says_so(start: Start, fault: Any, code: str) -> None:  # sse-01
    server = start()
    server.says("one two", fault, "three")
    assert last_error(server.chat(stream=True))["code"] == code
    plain = server.chat()
    assert (plain.status_code, plain.json()["error"]["code"]) == (500, code)
    server.says("fine")
    assert server.chat().json()["choices"][0]["message"]["content"] == "fine"
    assert server.http.get("/readyz").status_code == 200


def test_a_broken_engine_is_not_ready(start: Start) -> None:
    server = start()
    server.says("one two", Break(), "three")
    error = last_error(server.chat(stream=True))
    assert error["type"] == "server_error"
    assert "scripted" not in error["message"], "what is inside stays inside"
    wait_until(lambda: server.http.get("/readyz").status_code == 503)
    assert server.http.get("/health").status_code == 503
    assert server.http.get("/livez").status_code == 200
    for stream in (False, True):
        refused = server.chat(stream=stream)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


def test_more_than_the_queue_holds_is_refused(start: Start) -> None:
    server = start(engine={"max_num_seqs": 2, "max_num_queued_reqs": 3})
    with gate() as closed, ThreadPoolExecutor(5) as pool:
        server.says(closed, "ok")
        running = [pool.submit(server.chat, n=1) for _ in range(5)]
        wait_until(lambda: server.service.load.num_answers == 5)
        for fields in ({}, {"stream": True}, {"n": 2}):
            started = time.monotonic()
            refused = server.chat(**fields)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
            assert refused.headers["retry-after"] == "1"
            assert time.monotonic() - started < 10
        assert server.http.get("/readyz").status_code == 200
        closed.event.set()
        assert [future.result().status_code for future in running] == [200] * 5
    assert server.chat(n=5).status_code == 200
    assert server.chat(n=6).status_code == 400, "six never find room"


def test_health_answers_while_everything_is_busy(start: Start) -> None:  # op-13
    server = start(engine={"max_num_seqs": 2})
    with gate() as closed, ThreadPoolExecutor(40) as pool:
        server.says("one", closed, "two")
        running = [pool.submit(server.chat, stream=i % 2 == 0) for i in range(40)]
        wait_until(lambda: server.service.load.num_answers == 40)
        for path in ("/livez", "/readyz", "/v1/models"):
            started = time.monotonic()
            assert server.http.get(path).status_code == 200
            assert time.monotonic() - started < 5
        closed.event.set()
        assert all(future.result().status_code == 200 for future in running)


def test_idle_connections_keep_nobody_out(start: Start) -> None:  # op-15
    server = start()
    server.says("fine")
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(300)]
    for connection in idle[::2]:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX")
    assert server.chat().json()["choices"][0]["message"]["content"] == "fine"
    for connection in idle:
        connection.close()


def test_each_client_gets_its_own_answer(start: Start) -> None:  # xt-01
    server = start(engine={"max_num_seqs": 8})
    prompts = []
    for i in range(24):
        server.says(Pause(0.001), f"canary{i}canary {i * 7}", Pause(0.001))
        prompts.append((server.messages, f"canary{i}canary {i * 7}"))

    def ask(prompt: tuple[Any, str]) -> tuple[str, str]:
        answer = server.openai.chat.completions.create(model="test", messages=prompt[0], stream=True)
        return "".join(part.choices[0].delta.content or "" for part in answer), prompt[1]

    with ThreadPoolExecutor(24) as pool:
        for said, expected in pool.map(ask, prompts * 4):
            assert said == expected


def test_slow_readers_get_everything(start: Start) -> None:
    server = start()
    ids = server.says("word " * 300)
    connection = raw_request(server, {"stream": True, "max_tokens": len(ids)})
    wait_until(lambda: server.engine.num_live == 0)
    received = b""
    while b"[DONE]" not in received:
        time.sleep(0.001)
        received += connection.recv(700)
    connection.close()
    contents = re.findall(rb'"content":"([^"]*)"', received)  # one for each token, or for some that were there at once
    assert b"".join(contents).decode() == "word " * 300


def test_shutdown_while_idle(start: Start) -> None:  # op-07
    server = start()
    server.send_signal()
    server.join()
    with pytest.raises(httpx.ConnectError):
        server.http.get("/livez")


def test_shutdown_lets_running_requests_finish(start: Start) -> None:  # op-07
    server = start()
    with gate() as closed, ThreadPoolExecutor(2) as pool:
        server.says("one", closed, " two")
        running = [pool.submit(server.chat, stream=stream) for stream in (False, True)]
        wait_until(lambda: server.engine.num_live == 2)
        server.send_signal()
        wait_until(lambda: server.http.get("/readyz").status_code == 503)
        assert server.http.get("/livez").status_code == 200
        for stream in (False, True):
            refused = server.chat(stream=stream)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert refused.headers["retry-after"] == "1"
        closed.event.set()
        plain, streamed = (future.result() for future in running)
    server.join()
    assert plain.json()["choices"][0]["message"]["content"] == "one two"
    assert '"finish_reason":"stop"' in streamed.text
    assert server.engine.ledger().finished == 2


@pytest.mark.parametrize("num_signals", [1, 2])
def test_shutdown_cuts_short_at_the_deadline_or_the_second_signal(start: Start, num_signals: int) -> None:  # op-07
    server = start(shutdown_timeout_s=0.2 if num_signals == 1 else 3600.0)
    with ThreadPoolExecutor(2) as pool:
        server.says(*[SLOW, 40] * 4000, ends=False)
        running = [pool.submit(server.chat, stream=stream, max_tokens=4000) for stream in (False, True)]
        wait_until(lambda: server.engine.num_live == 2)
        for _ in range(num_signals):
            server.send_signal()
        plain, streamed = (future.result() for future in running)
    server.join()
    assert (plain.status_code, plain.json()["error"]["code"]) == (503, "engine_stopping")
    assert last_error(streamed)["code"] == "engine_stopping"
    assert server.engine.ledger().cancelled == 2


@pytest.mark.parametrize("where", ["server", "engine"])
def test_shutdown_does_not_wait_for_grammars(start: Start, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Whoever waits for one is answered, or finds the connection closed, long before its grammar is compiled."""
    monkeypatch.setattr(lifecycle, "LAST_WORDS_S", 0.2)
    server, compiled, is_compiling = start(), threading.Event(), threading.Event()

    def compile_slowly(*_: Any, **__: Any) -> None:
        is_compiling.set()
        compiled.wait()

    server.says("yes")
    factory, name = (grammars, "_factory") if where == "engine" else (server.service.grammars, "compile")
    monkeypatch.setattr(factory, name, compile_slowly)
    with ThreadPoolExecutor() as pool:
        try:
            asked = [pool.submit(server.complete, structured_outputs={"choice": ["yes", "no"]}) for _ in range(3)]
            assert is_compiling.wait(TIMEOUT_S)
            for _ in range(2):
                server.send_signal()
            ends = [one.exception(TIMEOUT_S / 2) or one.result().status_code for one in asked]
            assert [end for end in ends if end != 503 and not isinstance(end, httpx.RemoteProtocolError)] == []
        finally:
            compiled.set()
    server.join()
