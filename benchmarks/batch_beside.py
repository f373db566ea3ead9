"""What a batch costs those who wait for answers: chats one at a time, without a batch and beside one.

    python benchmarks/batch_beside.py MODEL.gguf [--chats 60] [--threads 2]

Chats come at random, on average every 0.3 s, in the same order and at the same times in both runs; the batch has more
lines than it can answer meanwhile.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from http_client import Answer, complete
from http_servers import freehold, running

MEAN_GAP_S = 0.3
PROMPT_TOKENS, OUTPUT_TOKENS = 120, 32
LINE_TOKENS, LINE_OUTPUT_TOKENS = 200, (20, 80)
VOCABULARY = 40_000


def random_ids(draw: random.Random, length: int) -> list[int]:
    return [draw.randrange(1000, VOCABULARY) for _ in range(length)]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that so many lie below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ask(port: int, path: str, body: bytes | None = None, kind: str = "application/json") -> dict[str, object]:
    """One request to the server; returns its JSON."""
    headers = {"content-type": kind} if body is not None else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        parsed: dict[str, object] = json.load(answer)
    return parsed


def start_batch(port: int, num_lines: int) -> str:
    """Upload lines and run them; returns the batch's id."""
    draw = random.Random(7)
    lines = [
        {
            "custom_id": f"{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {
                "prompt": random_ids(draw, LINE_TOKENS), "max_tokens": draw.randint(*LINE_OUTPUT_TOKENS),
                "temperature": 0, "ignore_eos": True,
            },
        }
        for number in range(num_lines)
    ]  # fmt: skip
    text = "\n".join(json.dumps(line) for line in lines)
    parts = ('name="purpose"\r\n\r\nbatch', f'name="file"; filename="in.jsonl"\r\n\r\n{text}')
    form = "".join(f"--cut\r\nContent-Disposition: form-data; {part}\r\n" for part in parts) + "--cut--\r\n"
    file = ask(port, "/v1/files", form.encode(), "multipart/form-data; boundary=cut")
    asked = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    return str(ask(port, "/v1/batches", json.dumps(asked).encode())["id"])


async def chats(port: int, num_chats: int, extras: dict[str, object]) -> list[Answer]:
    """Answers to chats that come at random times."""
    draw = random.Random(3)
    asking: list[asyncio.Task[Answer]] = []
    for _ in range(num_chats):
        asking.append(asyncio.create_task(complete(port, random_ids(draw, PROMPT_TOKENS), OUTPUT_TOKENS, extras)))
        await asyncio.sleep(draw.expovariate(1 / MEAN_GAP_S))
    return list(await asyncio.gather(*asking))


def told(name: str, answers: Sequence[Answer]) -> None:
    ttft_ms = [1000 * answer.ttft_s for answer in answers]
    gaps_ms = [1000 * gap for answer in answers for gap in answer.gaps_s]
    print(
        f"{name:14} TTFT p50 {statistics.median(ttft_ms):6.1f} ms, p99 {percentile(ttft_ms, 0.99):6.1f} ms; "
        f"ITL p50 {statistics.median(gaps_ms):5.1f} ms, p99 {percentile(gaps_ms, 0.99):5.1f} ms"
    )


def completed(port: int, batch_id: str) -> int:
    counts = ask(port, f"/v1/batches/{batch_id}")["request_counts"]
    assert isinstance(counts, dict)
    return int(counts["completed"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--chats", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=32, help="lines that run at a time")
    parser.add_argument("--alone-s", type=float, default=8.0, help="seconds that the batch is watched alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = ("--state-dir", folder, "--max-num-batch-reqs", str(arguments.in_flight))
        with running(freehold(arguments.model, arguments.threads, *options)) as server:
            extras = dict(server.extras)
            asyncio.run(chats(server.port, 5, extras))
            told("alone", asyncio.run(chats(server.port, arguments.chats, extras)))
            batch_id = start_batch(server.port, 5000)
            time.sleep(2)
            before, started_s = completed(server.port, batch_id), time.perf_counter()
            told("beside a batch", asyncio.run(chats(server.port, arguments.chats, extras)))
            rate = (completed(server.port, batch_id) - before) / (time.perf_counter() - started_s)
            before, started_s = completed(server.port, batch_id), time.perf_counter()
            time.sleep(arguments.alone_s)
            alone = (completed(server.port, batch_id) - before) / (time.perf_counter() - started_s)
            print(f"{'the batch':14} {rate:.2f} lines/s beside chats, {alone:.2f} alone")


if __name__ == "__main__":
    sys.exit(main())
