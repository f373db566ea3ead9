"""Starts, feeds, watches and ends the process that renders chat templates."""

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from freehold.errors import RequestError, ResourceError

_WORKER = Path(__file__).with_name("template_worker.py")


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What one rendering may take.

    Attributes:
        cpu_s: processor seconds, kept by the kernel inside the process.
        wall_s: seconds until the process is ended from outside. Long, because a loaded machine is no one's fault.
        memory_bytes: address space beyond what the process has after starting.
        steps: loop rounds and calls.
        output_chars: length of the text.
    """

    cpu_s: float = 0.5
    wall_s: float = 10.0
    memory_bytes: int = 128 << 20
    steps: int = 1_000_000
    output_chars: int = 16 << 20


class TemplateError(RequestError):
    """The template can't render these messages. `code` tells why: ``template_refused`` (it says so itself),
    ``template_failed`` (it hit an error, or tried what the sandbox forbids), ``template_budget`` (time, steps, memory
    or output)."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message, param="messages", code=code)


class TemplateProcess:
    """One worker for one model's templates, started when first needed and again after it died. Thread-safe; renderings
    take turns."""

    def __init__(self, sources: Mapping[str, str], limits: TemplateLimits) -> None:
        self._sources = dict(sources)
        self._limits = limits
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._facts: dict[str, dict[str, Any]] | None = None
        self._end: weakref.finalize[Any, Any] | None = None

    def start(self) -> None:
        """Start the worker if it isn't there, without waiting for it.

        Raises:
            ResourceError: no process can be started.
        """
        with self._lock:
            self._start()

    def facts(self, template: str) -> Mapping[str, Any]:
        """``literals`` (the text the template itself may write) and ``iterates_content``.

        Raises:
            TemplateError: the templates don't compile.
        """
        with self._lock:
            if self._facts is None:
                self._open()
            assert self._facts is not None
            return self._facts[template]

    def render(self, template: str, variables: Mapping[str, Any], now: tuple[int, ...]) -> str:
        """Render one of the templates. Blocks, at worst for the limits' `wall_s`.

        Arguments:
            now: year, month, day, hour, minute, second, microsecond.

        Raises:
            TemplateError: see there.
            ResourceError: the worker can't be started.
        """
        request = msgspec.json.encode({"template": template, "variables": variables, "now": now})
        with self._lock:
            if self._facts is None or self._worker is None or self._worker.poll() is not None:
                self._open()
            text: str = self._exchange(request)["text"]
            return text

    def close(self) -> None:
        """End the worker. A later rendering starts another."""
        with self._lock:
            self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._worker is not None and self._worker.poll() is None:
            return self._worker
        self._stop()
        try:
            worker = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},  # it needs none, and so can tell none
            )
        except OSError as error:
            raise ResourceError(f"can't start the process that renders chat templates: {error.strerror}.") from None
        assert worker.stdin is not None
        os.set_blocking(worker.stdin.fileno(), False)
        self._worker = worker
        self._end = weakref.finalize(self, _end, worker, os.getpid())
        self._facts = None
        limits = {
            "cpu_s": self._limits.cpu_s,
            "memory_bytes": self._limits.memory_bytes,
            "steps": self._limits.steps,
            "output_chars": self._limits.output_chars,
        }
        frame = msgspec.json.encode({"path": sys.path, "sources": self._sources, "limits": limits})
        _write(worker, frame, time.monotonic() + self._limits.wall_s)
        return worker

    def _open(self) -> None:
        """Start the worker and wait until it has compiled the templates."""
        self._start()
        self._facts = self._exchange(None)["facts"]

    def _exchange(self, request: bytes | None) -> dict[str, Any]:
        worker = self._worker
        assert worker is not None
        deadline = time.monotonic() + self._limits.wall_s
        if request is not None:
            _write(worker, request, deadline)
        answer = _read(worker, deadline)
        if answer is None:
            self._stop()
            if worker.returncode >= 0:  # no signal ended it
                raise ResourceError(
                    f"the process that renders chat templates ended by itself, with exit code {worker.returncode}; "
                    f"run `{sys.executable} -I -c 'import jinja2'` to see whether Python works there."
                )
            raise TemplateError(
                f"The model's chat template takes more than {self._limits.cpu_s} s of processor time, or more memory "
                "than it may; use another template.",
                code="template_budget",
            )
        reply: dict[str, Any] = msgspec.json.decode(answer)
        if "error" in reply:
            if self._facts is None:
                self._stop()
            raise TemplateError(_sentence(reply), code=f"template_{reply['error']}")
        return reply

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._worker = self._facts = self._end = None


def _sentence(reply: Mapping[str, str]) -> str:
    # What the template says itself is for the client, word for word.
    if reply["error"] == "refused":
        return reply["message"]
    return f"The model's chat template can't render these messages: {reply['message']}."


def _end(worker: subprocess.Popen[bytes], owner_pid: int) -> None:
    if os.getpid() != owner_pid:  # in a fork's child, which shares our worker but doesn't own it
        return
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _write(worker: subprocess.Popen[bytes], frame: bytes, deadline: float) -> None:
    """Send one frame, or as much of it as the worker takes until the deadline; reading then tells."""
    assert worker.stdin is not None
    descriptor = worker.stdin.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    rest = memoryview(len(frame).to_bytes(4, "big") + frame)
    with contextlib.suppress(BrokenPipeError):  # it died
        while rest and poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            rest = rest[os.write(descriptor, rest) :]


def _read(worker: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """One frame; None if the worker died or the deadline passed."""
    assert worker.stdout is not None
    descriptor = worker.stdout.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    received = bytearray()
    wanted = 4
    while len(received) < wanted:
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        chunk = os.read(descriptor, 1 << 20) if ready else b""
        if not chunk:
            return None
        received += chunk
        if wanted == 4 and len(received) >= 4:
            wanted += int.from_bytes(received[:4], "big")
    return bytes(received[4:])
