"""Tokens a second of the engine without HTTP: prefill, decode alone and in a batch; activation modes interleaved.

    python benchmarks/offline.py MODEL.gguf [--rounds 3] [--threads 2]

Prompts are random token ids, distinct in every run; answers are greedy and have a fixed length.
"""

import argparse
import random
import statistics
import threading
import time
from pathlib import Path

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling

RUNS = {"prefill 512": (512, 2, 1), "decode after 128": (128, 65, 1), "decode, batch 32": (32, 65, 32)}
"""Label → prompt tokens, output tokens, requests at once."""


def tokens_per_second(engine: Engine, label: str, seed: int) -> float:
    """Of the prompt for a prefill, else of what comes after every request's first token."""
    num_prompt, num_output, num_requests = RUNS[label]
    draw = random.Random(seed)
    firsts: dict[str, float] = {}
    ended = threading.Semaphore(0)

    def on_event(event: Event) -> None:
        if isinstance(event, Finish):
            ended.release()
        else:
            firsts.setdefault(event.request_id, time.perf_counter())

    started_s = time.perf_counter()
    for index in range(num_requests):
        ids = tuple(draw.randrange(engine.info.vocab_size) for _ in range(num_prompt))
        sampling = Sampling(temperature=0.0, max_tokens=num_output)
        engine.submit(Generate(request_id=RequestId(f"{index}"), prompt_ids=ids, sampling=sampling), on_event)
    for _ in range(num_requests):
        ended.acquire()
    if label.startswith("prefill"):
        return num_prompt / (firsts["0"] - started_s)
    return num_requests * (num_output - 1) / (time.perf_counter() - max(firsts.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--modes", default="float,int8", help="activation modes, each in an engine of its own")
    arguments = parser.parse_args()
    engines = {
        mode: Engine.start(EngineConfig(model_path=arguments.model, activations=mode, num_threads=arguments.threads))
        for mode in arguments.modes.split(",")
    }
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(arguments.rounds + 1):
        for number, label in enumerate(RUNS):
            for mode, engine in engines.items():
                rate = tokens_per_second(engine, label, seed=turn * len(RUNS) + number)
                if turn:  # the first round warms up
                    found.setdefault((label, mode), []).append(rate)
    for (label, mode), rates in found.items():
        print(f"{label:18} {mode:6} {statistics.median(rates):7.0f} tok/s ({min(rates):.0f} to {max(rates):.0f})")
    for engine in engines.values():
        engine.shutdown()


if __name__ == "__main__":
    main()
