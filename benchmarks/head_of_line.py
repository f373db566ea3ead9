"""Whether a long prompt holds up others' answers: gaps between their tokens while a full context is prefilled.

    python benchmarks/head_of_line.py MODEL.gguf [--decoding 8]

Some answers grow; then a prompt comes that fills the context. The longest gap between two tokens of an answer is
compared with the longest step that the prompt takes alone.
"""

import argparse
import itertools
import random
import statistics
import threading
import time
from pathlib import Path

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.protocol import Event, Finish, Generate, PromptLogprobs, RequestId, Sampling


class Answers:
    """When each request's tokens came."""

    def __init__(self, engine: Engine) -> None:
        self.times: dict[str, list[float]] = {}
        self.ended: dict[str, threading.Event] = {}
        self._engine = engine

    def submit(self, name: str, prompt_ids: tuple[int, ...], max_tokens: int) -> None:
        """Ask for a greedy answer."""
        self.times[name], self.ended[name] = [], threading.Event()
        sampling = Sampling(temperature=0.0, max_tokens=max_tokens)
        request = Generate(request_id=RequestId(name), prompt_ids=prompt_ids, sampling=sampling)
        self._engine.submit(request, self._on_event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Finish):
            self.ended[event.request_id].set()
        elif not isinstance(event, PromptLogprobs):
            self.times[event.request_id].append(time.perf_counter())


def random_ids(engine: Engine, length: int, seed: int) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(engine.info.vocab_size) for _ in range(length))


def steps_alone(engine: Engine, prompt: tuple[int, ...]) -> list[float]:
    """Seconds of each of the prompt's steps when nothing else runs."""
    collect, ends = engine._core._runner.collect, [time.perf_counter()]

    def timed_collect(plan):  # type: ignore[no-untyped-def]
        outcomes = collect(plan)
        ends.append(time.perf_counter())
        return outcomes

    engine._core._runner.collect = timed_collect  # type: ignore[method-assign]
    answers = Answers(engine)
    answers.submit("alone", prompt, 1)
    answers.ended["alone"].wait()
    engine._core._runner.collect = collect  # type: ignore[method-assign]
    return [after - before for before, after in itertools.pairwise(ends)]


def gaps_beside(engine: Engine, prompt: tuple[int, ...], num_decoding: int) -> list[float]:
    """All gaps between tokens of answers that grow while the prompt is prefilled."""
    answers = Answers(engine)
    for index in range(num_decoding):
        answers.submit(f"short {index}", random_ids(engine, 16, index), 2000)
    while any(len(times) < 8 for times in answers.times.values()):
        time.sleep(0.01)
    started_s = time.perf_counter()
    answers.submit("long", prompt, 1)
    answers.ended["long"].wait()
    (ended_s,) = answers.times["long"]
    for name in answers.times:
        engine.abort(RequestId(name))
    return [
        after - before
        for name, times in answers.times.items()
        if name != "long"
        for before, after in itertools.pairwise(times)
        if started_s <= before and after <= ended_s
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--decoding", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    config = EngineConfig(
        model_path=arguments.model,
        activations="int8",
        num_threads=arguments.threads,
        kv_cache_bytes=1 << 30,
        prefix_caching=False,
    )
    with Engine.start(config) as engine:
        length = engine.info.max_model_len - 1
        steps_alone(engine, random_ids(engine, 1024, 0))
        alone = steps_alone(engine, random_ids(engine, length, 1))
        gaps = gaps_beside(engine, random_ids(engine, length, 1), arguments.decoding)
    step_ms = [1000 * statistics.median(alone), 1000 * max(alone)]
    gap_ms = [1000 * statistics.median(gaps), 1000 * max(gaps)]
    print(f"a prompt of {length} tokens, {config.max_num_batched_tokens} a step, beside {arguments.decoding} answers")
    print(f"  its steps alone:          median {step_ms[0]:6.0f} ms, longest {step_ms[1]:6.0f} ms")
    print(f"  gaps between their tokens: median {gap_ms[0]:6.0f} ms, longest {gap_ms[1]:6.0f} ms ({len(gaps)} gaps)")
    print(f"  longest gap to longest step {gap_ms[1] / step_ms[1]:.2f}")


if __name__ == "__main__":
    main()
