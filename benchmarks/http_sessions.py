"""Agents at work over HTTP: sessions with a common beginning that grow turn by turn.

    python benchmarks/http_sessions.py [--llama-server BINARY] [--model q4_0] [--sessions 32] [--concurrency 8]

Each session begins with the same 1,500 tokens; each of its four turns adds 150 new ones and asks for 64. Prompts and
answers go as token ids, so that a server can reuse what it computed. One server after the other. Prints the wall time,
times to first token, and the share of prompt tokens that the server says it reused.
"""

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from http_client import Answer, complete
from http_load import environment, summary, vocab_size_of
from http_servers import Launch, Server, freehold, llama_server, running, telling_ids
from model_files import model_file

NUM_SHARED, NUM_NEW, NUM_OUTPUT, NUM_TURNS = 1500, 150, 64, 4
NUM_TOKENS = NUM_SHARED + NUM_TURNS * (NUM_NEW + NUM_OUTPUT)


@dataclass(frozen=True, slots=True)
class Work:
    """How many sessions there are, and how many at a time."""

    num_sessions: int
    concurrency: int
    vocab_size: int


def random_ids(length: int, vocab_size: int, seed: str) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(vocab_size) for _ in range(length)]


async def run_session(server: Server, number: int, vocab_size: int) -> list[Answer]:
    """All turns, one after the other."""
    ids = random_ids(NUM_SHARED, vocab_size, "shared")
    answers = []
    for turn in range(NUM_TURNS):
        ids += random_ids(NUM_NEW, vocab_size, f"session {number}, turn {turn}")
        answers.append(await complete(server.port, ids, NUM_OUTPUT, server.extras))
        ids += answers[-1].token_ids[:NUM_OUTPUT]
    return answers


async def run_sessions(server: Server, work: Work) -> dict[str, Any]:
    """All sessions, so many at a time."""
    waiting = list(reversed(range(work.num_sessions)))
    answers: list[Answer] = []

    async def client() -> None:
        while waiting:
            answers.extend(await run_session(server, waiting.pop(), work.vocab_size))

    started_s = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(work.concurrency)))
    duration_s = time.perf_counter() - started_s
    if any(len(answer.token_ids) != NUM_OUTPUT for answer in answers):
        raise SystemExit(f"{server.name} doesn't tell the ids of its answers")
    return {"duration": duration_s, "concurrency": work.concurrency, **summary(answers, duration_s)}


def launches(model: Path, arguments: argparse.Namespace) -> list[Launch]:
    found = [freehold(model, arguments.threads, "--kv-cache-memory-bytes", arguments.kv_cache)]
    if arguments.llama_server:
        slot_tokens = -(-NUM_TOKENS // 256) * 256
        found.append(llama_server(arguments.llama_server, model, arguments.threads, arguments.concurrency, slot_tokens))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="q4_0", help="as `model_files` describes")
    parser.add_argument("--llamacpp", type=Path, metavar="PYTHON", help="makes the model file if it is missing")
    parser.add_argument("--llama-server", type=Path, metavar="BINARY")
    parser.add_argument("--only", help="name of the one server to run")
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv-cache", default="1g", help="memory for Freehold's keys and values")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    model = model_file(arguments.model, arguments.llamacpp)
    work = Work(arguments.sessions, arguments.concurrency, vocab_size_of(model))
    results = []
    for launch in launches(model, arguments):
        if arguments.only not in (None, launch.name):
            continue
        with running(telling_ids(launch)) as server:
            found = asyncio.run(run_sessions(server, work))
        results.append({"server": launch.name, "model": model.name, **environment(), **found})
        print(
            f"{launch.name:12} {work.num_sessions} sessions, {work.concurrency} at a time: {found['duration']:.1f} s  "
            f"TTFT p50 {found['p50_ttft_ms'] / 1000:.2f} p99 {found['p99_ttft_ms'] / 1000:.2f} s  "
            f"reused {found['cached_tokens'] / found['total_input_tokens']:.1%} of {found['total_input_tokens']}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
