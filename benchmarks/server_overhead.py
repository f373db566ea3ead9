"""What the server itself costs: requests a second, tokens a second and processor time, with a model that takes no time.

    python benchmarks/server_overhead.py [--llama-server BINARY] [--concurrency 64,256] [--rounds 3]

The model is made up: one layer, 64 wide, 512 tokens, so that a step is next to nothing. `freehold-scripted` is the same
server over the backend that answers by script. The servers take turns, level by level. At each level as many clients
as its concurrency send one request after the other over connections that stay open:

- plain: answers of one token, whole;
- streams: answers of 100 tokens, an event each.

It prints requests or tokens a second over all clients, the server's processor time for each, and how long each takes
for one client: an answer, or a token of a stream.

Processor time is that of all of the server's processes, from /proc, by request and by token: what is left when the
clients, which share the machine, are taken out.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from http_servers import Launch, Server, freehold, llama_server, running

from freehold.files.tensors import DType
from freehold.synth import SynthConfig, write_checkpoint

NUM_STREAMED = 100
CONTEXT = 256
SIZES = SynthConfig(
    family="llama",
    hidden_size=64,
    intermediate_size=64,
    num_layers=1,
    num_heads=1,
    num_kv_heads=1,
    head_dim=64,
    vocab_size=512,
    max_position=CONTEXT,
)
PROMPT = "Hello, who are you?"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request."""

    name: str
    num_tokens: int
    stream: bool


KINDS = (Kind("plain", 1, False), Kind("streams", NUM_STREAMED, True))


class Client(asyncio.Protocol):
    """Requests that follow one another, on one connection as long as the server keeps it. It looks for each answer's
    end, no more."""

    def __init__(self, port: int, request: bytes, num_requests: int, is_stream: bool) -> None:
        self._port = port
        self._request = request
        self._num_left = num_requests
        self._is_stream = is_stream
        self._received = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connecting: asyncio.Task[object] | None = None

    def connect(self) -> None:
        """Begin, or go on after the server has closed the connection."""
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(loop.create_connection(lambda: self, "127.0.0.1", self._port))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received = self._received[-64:] + data if self._is_stream else self._received + data
        if self._is_over():
            self._num_left -= 1
            if self._num_left:
                self._send()
            else:
                self._transport.close()
                self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done.done():
            return
        if not self._received:  # between two requests
            self.connect()
        else:
            self.done.set_exception(exc or ConnectionError(f"the server closed: {self._received[-300:]!r}"))

    def _send(self) -> None:
        self._received = b""
        self._transport.write(self._request)

    def _is_over(self) -> bool:
        if self._is_stream:
            return self._received.endswith(b"0\r\n\r\n")
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return False
        if b" 200 " not in head[:20]:
            raise RuntimeError(self._received[:500].decode(errors="replace"))
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return len(body) >= int(lengths[0].split(b":")[1])


async def run_level(server: Server, kind: Kind, concurrency: int, seconds: float) -> dict[str, float]:
    """Ask for about so many seconds."""
    await _ask(server, kind, concurrency, 1)  # warm
    started_s = time.perf_counter()
    await _ask(server, kind, concurrency, 1)
    num_each = max(1, int(seconds / (time.perf_counter() - started_s)))
    cpu_s, started_s = cpu_seconds(server.process_id), time.perf_counter()
    await _ask(server, kind, concurrency, num_each)
    wall_s = time.perf_counter() - started_s
    cpu_s = cpu_seconds(server.process_id) - cpu_s
    num_requests = concurrency * num_each
    num_units = num_requests * kind.num_tokens
    return {
        "per_s": num_units / wall_s,
        "cpu_us": 1e6 * cpu_s / num_units,
        "ms": 1e3 * concurrency * wall_s / num_units,
    }


async def _ask(server: Server, kind: Kind, concurrency: int, num_each: int) -> None:
    extras = {name: value for name, value in server.extras.items() if name == "ignore_eos"}
    fields: dict[str, Any] = {"prompt": PROMPT, "max_tokens": kind.num_tokens, "temperature": 0, **extras}
    body = json.dumps({**fields, "stream": kind.stream}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    clients = [Client(server.port, request, num_each, kind.stream) for _ in range(concurrency)]
    for client in clients:
        client.connect()
    await asyncio.gather(*(client.done for client in clients))


def cpu_seconds(process_id: int) -> float:
    """Processor time of a process and its children, in seconds."""
    folders = Path(f"/proc/{process_id}/task").glob("*/children")
    children = [int(child) for path in folders for child in path.read_text().split()]
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, children))


def launches(model: Path, llama: Path | None, concurrency: int) -> list[Launch]:
    """The servers to compare, with room for so many requests at once."""
    room = ("--max-num-seqs", str(concurrency), "--max-model-len", str(CONTEXT), "--max-num-batched-tokens", "2048")
    ours = freehold(model, 1, *room)
    scripted = replace(freehold(model, 1, *room, "--backend", "scripted"), name="freehold-scripted")
    theirs = [] if llama is None else [llama_server(llama, model, 1, concurrency, CONTEXT)]
    return [ours, *theirs, scripted]


def tiny_model(folder: Path) -> Path:
    """A GGUF that takes no time to run."""
    write_checkpoint(SIZES, folder / "tiny.gguf", format="gguf", dtype=DType.F16)
    return folder / "tiny.gguf"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--concurrency", default="64,256")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(Path(folder))
        for concurrency in map(int, options.concurrency.split(",")):
            compare(launches(model, options.llama_server, concurrency), concurrency, options.rounds, options.seconds)


def compare(servers: Sequence[Launch], concurrency: int, rounds: int, seconds: float) -> None:
    """Measure the servers in turns and print medians."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for launch in servers:
            with running(launch) as server:
                for kind in KINDS:
                    figures = asyncio.run(run_level(server, kind, concurrency, seconds))
                    found.setdefault((kind.name, launch.name), []).append(figures)
    for (kind_name, name), figures_list in sorted(found.items()):
        shown = {key: statistics.median(figures[key] for figures in figures_list) for key in figures_list[0]}
        print(f"{concurrency:4} {kind_name:8} {name:18} " + "  ".join(f"{k} {v:.4g}" for k, v in shown.items()))


if __name__ == "__main__":
    main()
