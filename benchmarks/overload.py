"""What a server does with three times as many requests as it can answer.

    python benchmarks/overload.py MODEL.gguf [--factor 3] [--seconds 30]

First the most that it answers, with as many clients as it holds; then requests at random moments, `--factor` times
as many a second, whether earlier ones were answered or not; then none. Goodput is answers a second, all of the same
length. The client runs beside the server on the same processors. The KV cache is small, so that it is full before
anything counts.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from http_servers import Server, freehold, running
from plain_client import Reply, ask

NUM_SEQS = 16
NUM_QUEUED = 16
RAMP_S = 2.0
"""The first seconds of a load don't count: all that ends then began before."""
PROBE_S = 0.05
PATIENCE_S = 30.0


@dataclass(slots=True)
class Watch:
    """What was seen beside the load.

    Attributes:
        live_s: seconds that ``/livez`` took to answer, each time.
        memory_bytes: resident memory of server and engine, each time.
    """

    live_s: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)


def body(draw: random.Random, arguments: argparse.Namespace) -> dict[str, Any]:
    """A request for exactly so many tokens; no two begin alike."""
    ids = [draw.randrange(3, arguments.vocab_size) for _ in range(arguments.prompt_tokens)]
    return {"prompt": ids, "max_tokens": arguments.output_tokens, "ignore_eos": True, "temperature": 0.0}


async def watch(server: Server, seen: Watch) -> None:
    """Probe until cancelled."""
    while True:
        seen.live_s.append((await ask(server.port, "GET", "/livez")).seconds)
        seen.memory_bytes.append(await asyncio.to_thread(server.memory_bytes))
        await asyncio.sleep(PROBE_S)


async def saturate(server: Server, arguments: argparse.Namespace, seconds: float) -> list[Reply]:
    """Replies to clients that each ask again once they have been answered."""
    end_s = time.perf_counter() + seconds

    async def client(number: int) -> list[Reply]:
        draw, replies = random.Random(f"peak {number}"), []
        while time.perf_counter() < end_s:
            request = body(draw, arguments)
            replies.append(await ask(server.port, "POST", "/v1/completions", request))
        return replies

    found = await asyncio.gather(*(client(number) for number in range(NUM_SEQS + NUM_QUEUED)))
    return [reply for replies in found for reply in replies]


async def overload(server: Server, arguments: argparse.Namespace, rate: float) -> list[Reply]:
    """Replies to requests that come at random moments, so many a second on average."""
    draw, sent = random.Random("overload"), []
    next_s, end_s = time.perf_counter(), time.perf_counter() + arguments.seconds
    while next_s < end_s:
        await asyncio.sleep(max(0.0, next_s - time.perf_counter()))
        request = body(draw, arguments)
        sent.append(asyncio.create_task(ask(server.port, "POST", "/v1/completions", request)))
        next_s += draw.expovariate(rate)
    return await asyncio.gather(*sent)


async def recovery_s(server: Server, arguments: argparse.Namespace, usual_s: float) -> float:
    """Seconds until a lone request takes no longer than usual again, give or take half."""
    began_s, draw = time.perf_counter(), random.Random("recovery")
    while time.perf_counter() - began_s < PATIENCE_S:
        reply = await ask(server.port, "POST", "/v1/completions", body(draw, arguments))
        if reply.status == 200 and reply.seconds < 1.5 * usual_s:
            return reply.sent_s - began_s
    return PATIENCE_S


def goodput(replies: Sequence[Reply], begin_s: float, end_s: float) -> float:
    """Answers a second that ended in a span of time."""
    return sum(reply.status == 200 and begin_s <= reply.ended_s < end_s for reply in replies) / (end_s - begin_s)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(server: Server, arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures of a run."""
    draw = random.Random("alone")
    alone = [await ask(server.port, "POST", "/v1/completions", body(draw, arguments)) for _ in range(8)]
    usual_s = statistics.median(reply.seconds for reply in alone[2:])
    await saturate(server, arguments, 3.0)
    at_peak, beyond = Watch(), Watch()
    watching = asyncio.create_task(watch(server, at_peak))
    began_s = time.perf_counter()
    answered = await saturate(server, arguments, arguments.peak_seconds)
    peak = goodput(answered, began_s + RAMP_S, began_s + arguments.peak_seconds)
    watching.cancel()
    watching = asyncio.create_task(watch(server, beyond))
    began_s = time.perf_counter()
    loading = asyncio.create_task(overload(server, arguments, arguments.factor * peak))
    await asyncio.sleep(arguments.seconds)
    recovered_s = await recovery_s(server, arguments, usual_s)
    replies = await loading
    watching.cancel()
    refused = [reply for reply in replies if reply.status in (429, 503)]
    held = goodput(replies, began_s + RAMP_S, began_s + arguments.seconds)
    return {
        "peak_goodput_rps": peak,
        "asked_rps": len(replies) / arguments.seconds,
        "goodput_rps": held,
        "goodput_share": held / peak,
        "statuses": {
            status: sum(reply.status == status for reply in replies) for status in {r.status for r in replies}
        },
        "refusals_with_retry_after": sum("retry-after" in reply.headers for reply in refused),
        "refusal_p50_ms": 1e3 * percentile([reply.seconds for reply in refused], 0.5),
        "refusal_p99_ms": 1e3 * percentile([reply.seconds for reply in refused], 0.99),
        "livez_p99_ms": 1e3 * percentile(beyond.live_s, 0.99),
        "memory_growth": max(beyond.memory_bytes) / max(at_peak.memory_bytes) - 1,
        "alone_s": usual_s,
        "recovery_s": recovered_s,
    }


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--factor", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=30.0, help="of overload")
    parser.add_argument("--peak-seconds", type=float, default=12.0)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--vocab-size", type=int, default=40_000, help="prompts are random ids below this")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(argv)


def main() -> None:
    arguments = parse()
    room = ("--max-num-seqs", str(NUM_SEQS), "--max-num-queued-reqs", str(NUM_QUEUED), "--kv-cache-memory-bytes", "64M")
    with running(freehold(arguments.model, arguments.threads, *room)) as server:
        found = asyncio.run(measure(server, arguments))
    json.dump(found, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
