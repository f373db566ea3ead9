"""Servers under load over HTTP: a closed loop of requests with distinct prompts and answers of fixed length.

    python benchmarks/http_load.py [--llama-server BINARY] [--model q4_0] [--concurrency 1,8,32,64] [--spread 0,4]

At each level as many clients as its concurrency ask one request after the other until all are answered. With a spread
of 0 s they begin together, else evenly over so many seconds. Prompts are random token ids, no two alike; the end token
is ignored. The servers take turns, level by level. Tokens are what the server counts in its usage. Times:

- TTFT: from sending a request to its first token,
- ITL: between two events with tokens of one answer, over all answers,
- TPOT: an answer's time after its first token, by its other tokens.

--llama-server names llama.cpp's server, as its source package (also in that of llama-cpp-python) builds it.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from http_client import Answer, complete
from http_servers import Launch, Server, freehold, llama_server, running
from model_files import model_file

from freehold import __version__
from freehold.arch.load import read_model
from freehold.files.model import open_model
from freehold.machine import read_machine


@dataclass(frozen=True, slots=True)
class Level:
    """One point of the load.

    Attributes:
        spread_s: the clients begin evenly over so many seconds.
    """

    concurrency: int
    num_requests: int
    spread_s: float
    num_prompt: int
    num_output: int


def prompts_of(level: Level, vocab_size: int, seed: str) -> list[list[int]]:
    """Random ids for each request."""
    draw = random.Random(seed)
    return [[draw.randrange(vocab_size) for _ in range(level.num_prompt)] for _ in range(level.num_requests)]


async def run_level(server: Server, level: Level, prompts: list[list[int]]) -> dict[str, Any]:
    """Put the load on a server."""
    waiting = list(reversed(prompts))
    answers: list[Answer] = []

    async def client(number: int) -> None:
        await asyncio.sleep(level.spread_s * number / level.concurrency)
        while waiting:
            answers.append(await complete(server.port, waiting.pop(), level.num_output, server.extras))

    started_s, busy_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client(number) for number in range(level.concurrency)))
    duration_s = time.perf_counter() - started_s
    return {
        "concurrency": level.concurrency,
        "spread_s": level.spread_s,
        "duration": duration_s,
        "client_busy_s": time.process_time() - busy_s,
        **summary(answers, duration_s),
    }


def summary(answers: list[Answer], duration_s: float) -> dict[str, float]:
    """Counts, throughput and percentiles, under the names that vLLM's benchmark gives them."""
    num_output = sum(answer.num_output_tokens for answer in answers)
    samples = {
        "ttft": [answer.ttft_s for answer in answers],
        "itl": [gap for answer in answers for gap in answer.gaps_s],
        "tpot": [(a.latency_s - a.ttft_s) / (a.num_output_tokens - 1) for a in answers if a.num_output_tokens > 1],
        "e2el": [answer.latency_s for answer in answers],
    }
    found: dict[str, float] = {
        "completed": len(answers),
        "total_input_tokens": sum(answer.num_prompt_tokens for answer in answers),
        "total_output_tokens": num_output,
        "cached_tokens": sum(answer.num_cached_tokens for answer in answers),
        "request_throughput": len(answers) / duration_s,
        "output_throughput": num_output / duration_s,
    }
    for name, values in samples.items():
        for percent in (50, 99):
            found[f"p{percent}_{name}_ms"] = float(np.percentile(values, percent)) * 1000 if values else 0.0
        found[f"max_{name}_ms"] = max(values, default=0.0) * 1000
    return found


def line_of(server: str, found: Mapping[str, Any]) -> str:
    """A level as text."""
    shape = f"{found['concurrency']:3} at once" + (f" over {found['spread_s']:g} s" if found["spread_s"] else "")
    times = (
        f"TTFT p50 {found['p50_ttft_ms']:.0f} p99 {found['p99_ttft_ms']:.0f} ms  "
        f"ITL p50 {found['p50_itl_ms']:.1f} p99 {found['p99_itl_ms']:.0f} max {found['max_itl_ms']:.0f} ms"
    )
    return f"{shape:18} {server:12} {found['output_throughput']:6.1f} tok/s  {times}  ({found['completed']} requests)"


def launches(model: Path, arguments: argparse.Namespace, slots: int) -> list[Launch]:
    """The servers to measure, Freehold first."""
    found = [freehold(model, arguments.threads, "--kv-cache-memory-bytes", arguments.kv_cache)]
    if arguments.llama_server:
        slot_tokens = -(-(arguments.input + arguments.output) // 256) * 256
        found.append(llama_server(arguments.llama_server, model, arguments.threads, slots, slot_tokens))
    return found


def vocab_size_of(model: Path) -> int:
    with open_model(model) as files:
        return read_model(files)[0].vocab_size


def environment() -> dict[str, Any]:
    """What belongs to every result."""
    machine = read_machine()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"processor": machine.processor, "cores": machine.num_cores, "memory_bytes": machine.memory_bytes},
        "freehold": __version__,
    }


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="q4_0", help="as `model_files` describes")
    parser.add_argument("--llamacpp", type=Path, metavar="PYTHON", help="makes the model file if it is missing")
    parser.add_argument("--llama-server", type=Path, metavar="BINARY")
    parser.add_argument("--concurrency", default="1,8,32,64")
    parser.add_argument("--spread", default="0", help="seconds over which clients begin, comma-separated")
    parser.add_argument("--requests", type=int, default=2, help="requests a client")
    parser.add_argument("--rounds", type=int, default=1, help="of all levels; the servers' order turns round each time")
    parser.add_argument("--input", type=int, default=256)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv-cache", default="1g", help="memory for Freehold's keys and values")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    return parser.parse_args(argv)


def main() -> None:
    arguments = parse()
    model = model_file(arguments.model, arguments.llamacpp)
    vocab_size = vocab_size_of(model)
    sizes = [int(each) for each in arguments.concurrency.split(",")]
    levels = [
        Level(size, max(4, size * arguments.requests), float(spread), arguments.input, arguments.output)
        for size in sizes
        for spread in arguments.spread.split(",")
        if size > 1 or float(spread) == 0
    ]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(running(launch)) for launch in launches(model, arguments, max(sizes))]
        results: dict[str, dict[str, Any]] = {
            server.name: {
                "server": server.name,
                "model": model.name,
                **environment(),
                "first_token_s": server.first_token_s,
                "idle_bytes": server.memory_bytes(),
                "levels": [],
            }
            for server in servers
        }
        warm_up = Level(1, 2, 0.0, arguments.input, 8)
        for server in servers:
            asyncio.run(run_level(server, warm_up, prompts_of(warm_up, vocab_size, f"warm-up of {server.name}")))
        for turn in range(arguments.rounds):
            for level in levels:
                prompts = prompts_of(level, vocab_size, f"{level}, {turn}")
                for server in servers if turn % 2 == 0 else reversed(servers):
                    found = asyncio.run(run_level(server, level, prompts))
                    results[server.name]["levels"].append(found)
                    print(line_of(server.name, found), flush=True)
        for server in servers:
            results[server.name]["peak_bytes"] = server.memory_bytes("VmHWM")
            idle, peak = (results[server.name][key] / (1 << 20) for key in ("idle_bytes", "peak_bytes"))
            print(
                f"{server.name}: first token after {server.first_token_s:.2f} s; {idle:.0f} MiB idle, {peak:.0f} peak"
            )
    if arguments.json:
        for name, result in results.items():
            path = arguments.json.with_name(f"{arguments.json.stem}-{name}{arguments.json.suffix}")
            path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
