"""What a shared beginning saves: sessions that begin alike and grow turn by turn, as agents do.

    python benchmarks/shared_prefix.py MODEL.gguf [--sessions 32] [--concurrency 8] [--no-cache]

Every session has the same first 1,500 tokens, then turns of 150 new ones and an answer of 64. Prints wall time, time to
first token, and the share of prompt tokens that was reused beside the share that could be: all but the beginning once,
each turn's new tokens, and the last token of each answer, whose keys and values nobody has computed.
"""

import argparse
import queue
import random
import statistics
import threading
import time
from pathlib import Path

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, Tokens

NUM_SHARED, NUM_NEW, NUM_OUTPUT, NUM_TURNS = 1500, 150, 64, 4


class Session:
    """One conversation over an engine."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.first_token_s: list[float] = []
        self.finishes: list[Finish] = []
        self._engine, self._number = engine, number
        self._ids = random_ids(engine, NUM_SHARED, "shared")

    def run(self) -> None:
        """All turns, one after the other."""
        for turn in range(NUM_TURNS):
            self._ids += random_ids(self._engine, NUM_NEW, f"session {self._number}, turn {turn}")
            self._ids += self._answer(turn)

    def _answer(self, turn: int) -> tuple[int, ...]:
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        sampling = Sampling(temperature=0.0, max_tokens=NUM_OUTPUT)
        name = RequestId(f"session {self._number}, turn {turn}")
        started_s, ids = time.perf_counter(), []
        self._engine.submit(Generate(request_id=name, prompt_ids=self._ids, sampling=sampling), events.put)
        while not isinstance(event := events.get(), Finish):
            assert isinstance(event, Tokens)
            if not ids:
                self.first_token_s.append(time.perf_counter() - started_s)
            ids += event.token_ids
        self.finishes.append(event)
        return tuple(ids)


def random_ids(engine: Engine, length: int, seed: str) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(engine.info.vocab_size) for _ in range(length))


def reusable(num_sessions: int) -> int:
    """Prompt tokens that were computed before, over all sessions and turns."""
    grown = [NUM_SHARED + turn * (NUM_NEW + NUM_OUTPUT) + NUM_NEW for turn in range(NUM_TURNS)]
    later = sum(length + NUM_OUTPUT - 1 for length in grown[:-1])
    return (num_sessions - 1) * NUM_SHARED + num_sessions * later


def run_all(sessions: list[Session], concurrency: int) -> float:
    """Seconds until all sessions have ended, so many at a time."""
    waiting: queue.SimpleQueue[Session] = queue.SimpleQueue()
    for session in sessions:
        waiting.put(session)

    def work() -> None:
        while True:
            try:
                waiting.get_nowait().run()
            except queue.Empty:
                return

    started_s = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-cache", action="store_true")
    arguments = parser.parse_args()
    config = EngineConfig(
        model_path=arguments.model,
        activations="int8",
        num_threads=arguments.threads,
        kv_cache_bytes=1 << 30,
        prefix_caching=not arguments.no_cache,
    )
    with Engine.start(config) as engine:
        sessions = [Session(engine, number) for number in range(arguments.sessions)]
        wall_s = run_all(sessions, arguments.concurrency)
    finishes = [finish for session in sessions for finish in session.finishes]
    firsts = sorted(first for session in sessions for first in session.first_token_s)
    num_prompt = sum(finish.num_prompt_tokens for finish in finishes)
    num_cached = sum(finish.num_cached_tokens for finish in finishes)
    could_be = reusable(arguments.sessions)
    print(f"{arguments.sessions} sessions, {arguments.concurrency} at a time: {wall_s:.1f} s")
    print(
        f"time to first token: median {statistics.median(firsts):.2f} s, 99 % {firsts[int(0.99 * len(firsts))]:.2f} s"
    )
    print(f"reused {num_cached} of {num_prompt} prompt tokens ({num_cached / num_prompt:.2%}); {could_be} could be")


if __name__ == "__main__":
    main()
