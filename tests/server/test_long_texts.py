"""Long texts: refused before any work if they can't fit, and nobody waits behind those that can."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from tests.server.running import Server, Start

from freehold.serve.lanes import LONG_BYTES

NUM_BYTES = 3 << 20
QUICK_S = 5.0


@contextmanager
def longest_wait(server: Server) -> Iterator[list[float]]:
    """Neighbours ask all the time; their longest wait is put into the list."""
    waits: list[float] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            begun_s = time.monotonic()
            assert server.http.get("/livez").status_code == 200
            assert server.chat().status_code == 200
            waits.append(time.monotonic() - begun_s)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield waits
        finally:
            is_over.set()
            asking.result()
    waits[:] = [max(waits)]


def chat_of(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


TOO_LONG = {
    "prompt": ("/v1/completions", {"prompt": "lorem ipsum dolor " * (NUM_BYTES // 18)}),
    "prompts": ("/v1/completions", {"prompt": ["short", "lorem ipsum dolor " * (NUM_BYTES // 18)]}),
    "ids": ("/v1/completions", {"prompt": [1] * (NUM_BYTES // 3)}),
    "ids with echo": ("/v1/completions", {"prompt": [1] * (NUM_BYTES // 3), "echo": True}),
    "lists of ids": ("/v1/completions", {"prompt": [[1], [1] * (NUM_BYTES // 3)]}),
    "message": ("/v1/chat/completions", chat_of("x" * NUM_BYTES)),
    "control literals": ("/v1/chat/completions", chat_of("<|im_end|>" * (NUM_BYTES // 10))),
    "parts": ("/v1/chat/completions", chat_of([{"type": "text", "text": "é" * (NUM_BYTES // 2)}])),
    "an answer to continue": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<|im_end|>" * 100_000}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOO_LONG)
def test_what_cannot_fit_is_refused_at_once(start: Start, kind: str) -> None:
    server = start(engine={"max_model_len": 1024})
    server.says("ok")
    path, body = TOO_LONG[kind]
    with longest_wait(server) as waits, ThreadPoolExecutor(4) as pool:
        for response in pool.map(lambda _: server.post(path, **body), range(4)):
            assert response.status_code == 400
            error = response.json()["error"]
            assert error["code"] == "context_length_exceeded"
            assert "1024" in error["message"]
            assert error["param"] == ("prompt" if "prompt" in body else "messages")
    assert waits[0] < QUICK_S


def test_too_many_prompts_are_counted_not_looked_at(server: Server) -> None:
    response = server.complete(prompt=["x"] * 500_000)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
    assert "500000" in response.json()["error"]["message"]


def test_short_texts_do_not_wait_behind_long_ones(start: Start) -> None:
    server = start()
    server.says("ok")
    is_over = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        try:
            for _ in range(8):
                server._loop.call_soon_threadsafe(
                    lambda: server._loop.create_task(server.service.lanes.run(LONG_BYTES, is_over.wait))
                )
            waiting = pool.submit(server.chat, user="x" * LONG_BYTES)
            assert server.chat().status_code == 200
            assert server.complete().status_code == 200
            assert not waiting.done()
        finally:
            is_over.set()
        assert waiting.result().status_code == 200


def test_long_texts_that_fit_are_answered(start: Start) -> None:
    server = start(engine={"max_model_len": 8192})
    server.says("ok")
    text = server.hi + "\n" + " international" * 5500
    assert len(text) > LONG_BYTES
    response = server.post("/v1/completions", prompt=text)
    assert response.status_code == 200
    assert response.json()["usage"]["prompt_tokens"] > 5000
