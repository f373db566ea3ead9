"""Traces on their way: whatever becomes of them, requests are served as without, and the server ends in time."""

import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path

import httpx
import pytest
from tests import processes
from tests.server.otlp_receiver import receiving
from tests.server.running import Start
from tests.server.test_lifecycle import wait_until
from tests.server.traced import Traced, stages_of

from freehold.config import TracingConfig
from freehold.errors import ConfigError
from freehold.serve import server as lifecycle
from freehold.serve.entrance.record import Record
from freehold.serve.tracing import otlp, spans, tracing
from freehold.serve.tracing.notes import RequestNotes
from freehold.serve.tracing.spans import Within

TIMEOUT_S = 60.0


@contextmanager
def closed_port() -> Iterator[str]:
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}/v1/traces"


@contextmanager
def silent_port() -> Iterator[str]:
    """Where connections are taken and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"


@contextmanager
def refusing(status: int) -> Iterator[str]:
    with receiving() as receiver:
        receiver.status = status
        yield receiver.url


TROUBLES = {
    "down": closed_port,
    "silent": silent_port,
    "500": lambda: refusing(500),
    "503": lambda: refusing(503),
    "429": lambda: refusing(429),
    "401": lambda: refusing(401),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_an_endpoint_in_trouble_costs_spans_alone(
    start: Start, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F9 in kind: the sink is blocked, serving goes on, and what was lost is counted."""
    monkeypatch.setattr(tracing, "LINGER_S", 0.01)
    monkeypatch.setattr(tracing, "MAX_WAITING", 8)
    monkeypatch.setattr(lifecycle, "LAST_SPANS_S", 0.2)
    caplog.set_level(logging.WARNING)
    with TROUBLES[trouble]() as url:
        server = start(tracing=TracingConfig(endpoint=url))
        server.says("a few words")
        plain = start()
        plain.says("a few words")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: server.complete(seed=number, max_tokens=4), range(48)))
        expected = plain.complete(max_tokens=4).json()["choices"]
        assert all(answer.json()["choices"] == expected for answer in answers)
        assert server.http.get("/readyz").status_code == 200
        server.stop()
        service = server.service
        assert service.tracing is not None
        assert service.tracing.num_lost == 48, "each is counted, wherever it was lost"
    lines = [record.getMessage() for record in caplog.records if "can't be sent" in record.getMessage()]
    assert len(lines) <= 1, "one line a minute"
    if trouble == "401":
        assert "401" in lines[0]
        assert url in lines[0]


@pytest.mark.parametrize(("trouble", "said"), [("down", "Connection refused"), ("503", "Service Unavailable")])
def test_what_was_tried_again_in_vain_is_told_with_its_cause(
    start: Start, trouble: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing, "LINGER_S", 0.01)
    monkeypatch.setattr(lifecycle, "LAST_SPANS_S", 0.2)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1.3")  # it tries again after a second at most 1.2
    caplog.set_level(logging.WARNING)
    with TROUBLES[trouble]() as url:
        server = start(tracing=TracingConfig(endpoint=url))
        server.says("a few words")
        assert server.complete(max_tokens=4).status_code == 200
        wait_until(lambda: "can't be sent" in caplog.text)
        server.stop()
    (line,) = [record.getMessage() for record in caplog.records if "can't be sent" in record.getMessage()]
    assert line.startswith(f"traces of 1 request can't be sent to {url}: {said} (")


def test_a_slow_endpoint_gets_all_in_the_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LINGER_S", 0.01)
    monkeypatch.setattr(lifecycle, "LAST_SPANS_S", TIMEOUT_S)
    with receiving() as receiver:
        receiver.delay_s = 0.2
        server = start(tracing=TracingConfig(endpoint=receiver.url))
        server.says("ok")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: server.complete(max_tokens=1), range(100)))
        server.stop()
        assert server.service.tracing is not None
        assert server.service.tracing.num_lost == 0
        requests = [span for span in receiver.spans if span.kind == "SPAN_KIND_SERVER"]
        assert len(requests) == 100
        assert all(stages_of(receiver.within(span)) == ["queue", "prefill", "decode"] for span in requests)


def test_an_endpoint_that_comes_back_gets_what_comes_then(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LINGER_S", 0.01)
    with receiving() as receiver:
        traced = Traced(start(tracing=TracingConfig(endpoint=receiver.url)), receiver)
        traced.server.says("ok")
        receiver.status = 400
        traced.chat("lost")
        service = traced.server.service
        wait_until(lambda: service.tracing is not None and service.tracing.num_lost == 1)
        assert 'freehold:traces_lost_total{engine="0",model_name="test"} 1.0' in traced.server.http.get("/metrics").text
        receiver.status = 200
        traced.chat("found")
        traced.request("found")
        assert "lost" not in {span.attributes.get("gen_ai.request.id") for span in receiver.spans}


def test_a_request_whose_spans_cannot_be_made_takes_none_with_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LINGER_S", 0.2)
    described = spans.spans_within

    def fails_for_one(notes: RequestNotes, record: Record) -> Iterator[Within]:
        if record.request_id == "faulty":
            raise ValueError("a fault of ours")
        return described(notes, record)

    monkeypatch.setattr(otlp, "spans_within", fails_for_one)
    with receiving() as receiver:
        traced = Traced(start(tracing=TracingConfig(endpoint=receiver.url)), receiver)
        traced.server.says("ok")
        for name in ("before", "faulty", "after"):
            assert traced.chat(name).status_code == 200
        assert stages_of(traced.request("before")[1]) == stages_of(traced.request("after")[1])
        service = traced.server.service
        wait_until(lambda: service.tracing is not None and service.tracing.num_lost == 1)


class Process:
    """A serving process, over the scripted backend and SmolLM2's vocabulary."""

    def __init__(self, model: Path, port: int, endpoint: str) -> None:
        command = [sys.executable, "-m", "freehold", "serve", str(model), "--backend", "scripted", "--port", str(port)]
        options = ["--otlp-traces-endpoint", endpoint, "--served-model-name", "test"]
        self.process = processes.start([*command, *options], stderr=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + TIMEOUT_S
        while not self._is_ready():
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=TIMEOUT_S).status_code == 200
        except httpx.TransportError:
            return False

    def complete(self, request_id: str) -> httpx.Response:
        body = {"model": "test", "prompt": "one two three", "max_tokens": 3}
        headers = {"x-request-id": request_id}
        return httpx.post(f"{self.url}/v1/completions", json=body, headers=headers, timeout=TIMEOUT_S)

    def end(self) -> str:
        """End it as an operator does; returns its log."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, log
        assert "Traceback" not in log
        return log


@contextmanager
def serving(model: Path, port: int, endpoint: str) -> Iterator[Process]:
    process = Process(model, port, endpoint)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.communicate()


def test_a_process_sends_its_last_spans_before_it_ends(smollm2_path: Path, free_port: int) -> None:
    with receiving() as receiver:
        base = receiver.url.removesuffix("/v1/traces")
        with serving(smollm2_path, free_port, base) as process:
            for number in range(5):
                assert process.complete(f"last-{number}").status_code == 200
            assert "can't be sent" not in process.end()
        for number in range(5):
            span, within = receiver.request(f"last-{number}")
            assert span.attributes["gen_ai.usage.output_tokens"] == 3
            assert stages_of(within) == ["queue", "prefill", "decode"], "the engine's process has the same clock"


@pytest.mark.slow
def test_a_silent_endpoint_doesnt_keep_a_process_from_ending(smollm2_path: Path, free_port: int) -> None:
    with silent_port() as url, serving(smollm2_path, free_port, url) as process:
        assert process.complete("unheard").status_code == 200
        began_s = time.monotonic()
        assert "traces of 1 request were not sent" in process.end()
        assert time.monotonic() - began_s < TIMEOUT_S / 2


@pytest.mark.parametrize("absent", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"])
@pytest.mark.parametrize("whole", [True, False])
def test_what_isnt_installed_is_named(monkeypatch: pytest.MonkeyPatch, absent: str, whole: bool) -> None:
    def find(name: str) -> ModuleSpec | None:
        if name == absent and whole:
            raise ModuleNotFoundError(name)
        return None if name == absent else ModuleSpec(name, None)

    monkeypatch.setattr(tracing, "find_spec", find)
    with pytest.raises(ConfigError, match=rf"{absent}.*pip install '\.\[otel\]'"):
        tracing.require_opentelemetry()


def test_a_server_without_traces_loads_nothing_of_them() -> None:
    code = "import sys, freehold.cli.serve, freehold.serve.server; print([m for m in sys.modules if 'opentele' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
