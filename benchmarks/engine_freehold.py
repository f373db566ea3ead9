"""Freehold behind `engine_worker`, through the engine's Python API: token ids in and out, as in llama.cpp's C API.
Requests are of the class batch, as those of `LLM` are.

python benchmarks/engine_freehold.py MODEL.gguf [--threads 2] [--activations int8] [--kv-cache 1g]
"""

import argparse
import threading
import time
from pathlib import Path
from typing import Any

from engine_worker import serve

from freehold import __version__, resolve
from freehold.engine.client import Engine
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, Tokens


class Freehold:
    """An engine in this process whose answers are timed."""

    def __init__(self, model: Path, threads: int, activations: str, kv_cache: str) -> None:
        config = resolve.engine_config(
            model=str(model), threads=threads, activations=activations, kv_cache_memory_bytes=kv_cache
        )
        self._engine = Engine.start(config)
        self._num_requests = 0

    def describe(self) -> dict[str, Any]:
        info = self._engine.info
        return {
            "version": __version__,
            "fingerprint": info.fingerprint,
            "vocab_size": info.vocab_size,
            "weight_bytes": info.weight_bytes,
            "load_s": info.load_s,
        }

    def run(self, prompts: list[list[int]], num_output: int) -> dict[str, float]:
        sampling = Sampling(temperature=0.0, max_tokens=num_output)
        arrivals: list[list[float]] = [[] for _ in prompts]
        ended = threading.Semaphore(0)

        def listen(times: list[float], event: Event) -> None:
            if isinstance(event, Finish):
                ended.release()
            elif isinstance(event, Tokens):
                times.extend([time.perf_counter()] * len(event.token_ids))

        started_s = time.perf_counter()
        for prompt, times in zip(prompts, arrivals, strict=True):
            self._num_requests += 1
            request_id = RequestId(str(self._num_requests))
            generate = Generate(request_id=request_id, prompt_ids=tuple(prompt), sampling=sampling, service="batch")
            self._engine.submit(generate, lambda event, times=times: listen(times, event))
        for _ in prompts:
            ended.acquire()
        if any(len(times) != num_output for times in arrivals):
            raise SystemExit(f"{num_output} tokens were asked for, {[len(times) for times in arrivals]} came")
        # All answers grow from the last one's first token until the first one is complete.
        begin_s = max(times[0] for times in arrivals)
        end_s = min(times[-1] for times in arrivals)
        num_decoded = sum(begin_s < at <= end_s for times in arrivals for at in times)
        return {"prefill_s": begin_s - started_s, "decode_s": end_s - begin_s, "num_decoded": num_decoded}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--activations", default="int8")
    parser.add_argument("--kv-cache", default="1g")
    arguments = parser.parse_args()
    serve(Freehold(arguments.model, arguments.threads, arguments.activations, arguments.kv_cache))


if __name__ == "__main__":
    main()
