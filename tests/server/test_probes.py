"""Probes answer at once, whatever else goes on: op-13, op-14, op-15."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
from tests.server.running import Server, Start
from tests.server.test_lifecycle import gate, raw_request, wait_until

NUM_PROBES = 100


def probe_s(server: Server) -> list[float]:
    """Seconds that each of many probes took, the shortest first. They are compared with those of an idle server, which
    whatever else runs on the machine makes longer too."""
    times = []
    for _ in range(NUM_PROBES):
        began_s = time.monotonic()
        assert server.http.get("/livez").status_code == 200
        times.append(time.monotonic() - began_s)
    return sorted(times)


def test_probes_answer_beside_hundreds_of_open_streams(start: Start) -> None:  # op-13, op-15
    server = start(engine={"max_num_seqs": 4})
    idle = probe_s(server)
    with gate() as closed:
        server.says("one", closed, "two")
        streams = [raw_request(server, {"stream": True, "max_tokens": 4}) for _ in range(500)]
        wait_until(lambda: server.service.load.num_answers == 500)
        times = probe_s(server)
        assert times[NUM_PROBES // 2] < 0.05 + 10 * idle[NUM_PROBES // 2]
        assert times[-1] < 1.0 + 10 * idle[-1]
        assert server.http.get("/v1/models").status_code == 200
        closed.event.set()
    for stream in streams:
        stream.close()


def test_probes_answer_while_long_texts_are_prepared(start: Start) -> None:  # op-14
    server = start(max_body_bytes=64 << 20)
    server.says("ok")
    idle = probe_s(server)
    stop = threading.Event()

    def load(work: Callable[[], httpx.Response]) -> None:
        while not stop.is_set():
            work()

    texts = [
        lambda: server.post("/tokenize", prompt="some words " * 200_000),
        lambda: server.complete(prompt="é" * 10**6),
    ]
    with ThreadPoolExecutor(4) as pool:
        for work in texts * 2:
            pool.submit(load, work)
        try:
            time.sleep(0.3)
            times = probe_s(server)
        finally:
            stop.set()
    assert times[NUM_PROBES // 2] < 0.1 + 10 * idle[NUM_PROBES // 2]
    assert times[-1] < 2.0 + 10 * idle[-1]


def test_a_request_for_a_stream_that_nobody_reads_harms_no_other(start: Start) -> None:  # op-15
    server = start()
    server.says("fine")
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(500)]
    assert server.chat().json()["choices"][0]["message"]["content"] == "fine"
    for connection in idle:
        connection.close()
