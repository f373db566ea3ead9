"""Whether clients that send or read as slowly as they can hold others up.

    python benchmarks/slow_clients.py MODEL.gguf [--trickling 1000] [--stalled 200]

Usual clients come at random moments and are timed to their first token: without slow ones, then beside connections that
send a head a byte at a time and others that ask for much and read nothing; then both once more. The client runs beside
the server on the same processors.
"""

import argparse
import asyncio
import contextlib
import json
import random
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from http_client import Answer, complete
from http_servers import Server, freehold, running
from overload import percentile

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Filler: " + b"a" * 4000
TRICKLE_S = 2.0
"""Between two bytes of a client that sends slowly."""
SMALL_WINDOW = 4096
"""Bytes that the system may take for a client that reads nothing."""
MUCH = {"prompt": "x", "max_tokens": 16, "ignore_eos": True, "logprobs": 5, "n": 4, "stream": True}


async def trickle(server: Server, number: int) -> None:
    """Send a head a byte at a time; begin anew when the server has had enough."""
    await asyncio.sleep(TRICKLE_S * number / 1000)
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            try:
                for byte in HEAD:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(TRICKLE_S)
            finally:
                writer.close()


def stall(server: Server) -> socket.socket:
    """A client that asks for much and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
    connection.connect(("127.0.0.1", server.port))
    content = json.dumps(MUCH).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


@contextlib.asynccontextmanager
async def slow_clients(server: Server, num_trickling: int, num_stalled: int) -> AsyncIterator[None]:
    """Both kinds. What the stalled ones asked for has been generated when this is entered."""
    stalled = []
    for _ in range(num_stalled):
        stalled.append(stall(server))
        await asyncio.sleep(0.01)
    trickling = [asyncio.create_task(trickle(server, number)) for number in range(num_trickling)]
    try:
        await asyncio.sleep(TRICKLE_S)
        await complete(server.port, [1] * 8, 1, server.extras)
        yield
    finally:
        for task in trickling:
            task.cancel()
        await asyncio.gather(*trickling, return_exceptions=True)
        for connection in stalled:
            connection.close()


async def usual_clients(server: Server, rate: float, seconds: float, seed: str) -> list[Answer]:
    """Answers to clients that come at random moments."""
    draw, asked = random.Random(seed), []
    next_s, end_s = time.perf_counter(), time.perf_counter() + seconds
    while next_s < end_s:
        await asyncio.sleep(max(0.0, next_s - time.perf_counter()))
        prompt = [draw.randrange(1000, 40_000) for _ in range(128)]
        asked.append(asyncio.create_task(complete(server.port, prompt, 8, server.extras)))
        next_s += draw.expovariate(rate)
    return await asyncio.gather(*asked)


async def measure(server: Server, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times to the first token, alone and beside slow clients, of the same requests."""
    times: dict[str, list[float]] = {"alone": [], "beside": []}
    await usual_clients(server, arguments.rate, 2.0, "warm up")
    for turn in range(2):
        seed = f"turn {turn}"
        times["alone"] += [a.ttft_s for a in await usual_clients(server, arguments.rate, arguments.seconds, seed)]
        async with slow_clients(server, arguments.trickling, arguments.stalled):
            times["beside"] += [a.ttft_s for a in await usual_clients(server, arguments.rate, arguments.seconds, seed)]
    found: dict[str, Any] = {"requests": len(times["alone"])}
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        alone, beside = (percentile(times[kind], share) for kind in ("alone", "beside"))
        found |= {
            f"{name}_alone_ms": 1e3 * alone,
            f"{name}_beside_ms": 1e3 * beside,
            f"{name}_growth": beside / alone - 1,
        }
    return found


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--trickling", type=int, default=1000)
    parser.add_argument("--stalled", type=int, default=200)
    parser.add_argument("--rate", type=float, default=8.0, help="usual requests a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each of four parts")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(argv)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start a server, measure, and stop it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    with running(freehold(arguments.model, arguments.threads)) as server:
        return asyncio.run(measure(server, arguments))


def main() -> None:
    json.dump(run(parse()), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
