"""Servers to measure over HTTP: started, waited for, their memory read, and stopped."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server.

    Attributes:
        command: with the port appended as the last argument.
        extras: fields that bodies need for answers of fixed length.
    """

    name: str
    command: tuple[str, ...]
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers.

    Attributes:
        first_token_s: seconds from launch to its first token.
    """

    name: str
    port: int
    process_id: int
    first_token_s: float
    extras: Mapping[str, Any]

    def memory_bytes(self, kind: str = "VmRSS") -> int:
        """Resident memory of its processes; ``VmHWM`` for the most that it ever was. Shared pages count for each."""
        return _memory_bytes(self.process_id, kind)


def freehold(model: Path | str, threads: int, *options: str) -> Launch:
    """`freehold serve` of this interpreter."""
    command = (sys.executable, "-m", "freehold", "serve", str(model), "--threads", str(threads), "--log-level", "error")
    return Launch("freehold", (*command, *options, "--port"), {"ignore_eos": True, "return_token_ids": True})


def llama_server(binary: Path, model: Path | str, threads: int, slots: int, slot_tokens: int) -> Launch:
    """llama.cpp's server with room for so many requests at once, each of so many tokens. It tells no token ids."""
    room = ("-np", str(slots), "-c", str(slots * slot_tokens), "-fa", "on")
    work = ("-t", str(threads), "-tb", str(threads), "--log-disable", "--no-webui")
    return Launch("llama-server", (str(binary), "-m", str(model), *room, *work, "--port"), {"ignore_eos": True})


def telling_ids(launch: Launch) -> Launch:
    """The same, but its answers tell their token ids. llama-server then writes more for each token."""
    if launch.name != "llama-server":
        return launch
    return replace(launch, extras={**launch.extras, "verbose": True, "return_tokens": True})


@contextlib.contextmanager
def running(launch: Launch) -> Iterator[Server]:
    """Start a server on a free port, wait for a token of it, and stop it with Ctrl-C in the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    started_s = time.perf_counter()
    process = subprocess.Popen((*launch.command, str(port)), stdout=subprocess.DEVNULL)
    try:
        _wait_for_token(port, process)
        yield Server(launch.name, port, process.pid, time.perf_counter() - started_s, launch.extras)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_token(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return once the first event of a streamed answer is there."""
    body = json.dumps({"prompt": "Hello", "max_tokens": 1, "temperature": 0, "stream": True}).encode()
    url = f"http://127.0.0.1:{port}/v1/completions"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    give_up_s = time.perf_counter() + _PATIENCE_S
    while time.perf_counter() < give_up_s:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(request) as response:
                if any(line.startswith(b"data: {") for line in response):
                    return
        except urllib.error.HTTPError as error:
            if error.code != 503:  # it loads
                raise
        except urllib.error.URLError:
            pass
        time.sleep(0.01)
    raise SystemExit(f"no token after {_PATIENCE_S} s")


def _memory_bytes(process_id: int, kind: str) -> int:
    folders = Path(f"/proc/{process_id}/task").glob("*/children")
    children = [int(child) for path in folders for child in path.read_text().split()]
    status = Path(f"/proc/{process_id}/status").read_text().splitlines()
    own = sum(int(line.split()[1]) << 10 for line in status if line.startswith(kind + ":"))
    return own + sum(_memory_bytes(child, kind) for child in children)
