"""What the flight recorder costs: tokens a second with many clients at once, not recorded, metadata alone, and in full.

    python benchmarks/recording.py MODEL.gguf [--concurrency 64] [--pairs 2] [--threads 2]

Three servers that differ in ``--record`` take turns. Prompts are random and distinct; the end token is ignored.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from http_client import complete
from http_servers import Server, freehold, running
from pairs import Spread, in_turns, ratios

MODES = ("off", "metadata", "full")
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 48
VOCABULARY = 40_000


def rate(server: Server, concurrency: int) -> Callable[[int], float]:
    """What measures a server: output tokens a second from the first request to the last token."""

    def measure(turn: int) -> float:
        draw = random.Random(f"{server.name} {turn}")
        prompts = [[draw.randrange(1000, VOCABULARY) for _ in range(PROMPT_TOKENS)] for _ in range(concurrency)]

        async def ask_all() -> int:
            asked = (complete(server.port, prompt, OUTPUT_TOKENS, server.extras) for prompt in prompts)
            return sum(answer.num_output_tokens for answer in await asyncio.gather(*asked))

        started_s = time.perf_counter()
        return asyncio.run(ask_all()) / (time.perf_counter() - started_s)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        servers = {}
        for mode in MODES:
            options = (
                "--record",
                mode,
                "--record-dir",
                str(folder / mode),
                "--state-dir",
                str(folder / f"{mode}-state"),
            )
            launch = replace(freehold(arguments.model, arguments.threads, *options), name=mode)
            servers[mode] = held.enter_context(running(launch))
        found = in_turns({mode: rate(servers[mode], arguments.concurrency) for mode in MODES}, arguments.pairs)
        num_bytes = sum(path.stat().st_size for path in (folder / "full").iterdir())
    num_tokens = (arguments.pairs + 1) * arguments.concurrency * (PROMPT_TOKENS + OUTPUT_TOKENS)
    for mode in MODES:
        rates, shares = Spread.of(found[mode]), Spread.of(ratios(found[mode], found["off"]))
        print(
            f"{mode:8}  {rates.median:7.1f} tok/s ({rates.lowest:.1f}-{rates.highest:.1f})  "
            f"of off: {shares.median:.3f} ({shares.lowest:.3f}-{shares.highest:.3f})"
        )
    print(f"full takes {num_bytes / num_tokens:.0f} bytes for each token of prompts and answers")


if __name__ == "__main__":
    main()
