"""Memory, threads and descriptors of server and engine over very many requests: do they stay as they are?

    python benchmarks/soak.py                                   # 300,000 short requests, a fifth of them aborted
    python benchmarks/soak.py --requests 400 --tokens 2000      # few requests, many tokens

Requests go through an engine in its own process with the scripted backend, in rounds. After each round the engine falls
idle, and RssAnon + VmSwap of both processes are read, so that what runs doesn't count. The first third of the
rounds warms up and doesn't count either. Over the rest a line is fitted by least squares; its slope is given in KiB per
100,000 requests, with a 95 % interval from the scatter of the rounds, and in MiB an hour at the rate that was run,
which is far above a real model's.
"""

import argparse
import gc
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from freehold.config import EngineConfig
from freehold.engine.remote import ProcessEngine
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling

WARM_UP = 1 / 3
TIMEOUT_S = 600.0
CONFIG = EngineConfig(
    model_path=Path("scripted"),
    backend="scripted",
    kv_cache_bytes=8 << 20,
    max_num_seqs=32,
    max_num_batched_tokens=512,
)


@dataclass(frozen=True, slots=True)
class Use:
    """What one process uses."""

    memory_kib: int
    num_threads: int
    num_descriptors: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Both processes after some requests, while nothing runs.

    Attributes:
        num_objects: memory blocks that the server's interpreter has given out. Unlike bytes of memory, which also
            depend on how those lie, it moves only if something is kept.
    """

    num_requests: int
    elapsed_s: float
    server: Use
    engine: Use
    num_objects: int = 0


@dataclass(frozen=True)
class Slope:
    """Growth, and half of the 95 % interval around it."""

    value: float
    margin: float

    def times(self, factor: float) -> "Slope":
        """In another unit."""
        return Slope(self.value * factor, self.margin * factor)


@dataclass(frozen=True)
class Load:
    """What is sent.

    Attributes:
        most_tokens: ids of the longest answer; the shortest has half as many.
    """

    num_requests: int = 300_000
    most_tokens: int = 8
    abort_share: float = 0.2
    num_rounds: int = 60
    seed: int = 1


def use_of(pid: int | str) -> Use:
    """Memory that is the process's own (anonymous, in RAM or swapped out), its threads and descriptors."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    memory_kib = sum(int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap"))
    return Use(memory_kib, int(fields["Threads"]), len(list(Path(f"/proc/{pid}/fd").iterdir())))


def soak(load: Load, *, show: bool = False) -> list[Sample]:
    """Run all rounds. Fails if the ledger doesn't balance, or the engine dies: it does so if a block is left over."""
    source, samples = random.Random(load.seed), list[Sample]()
    with ProcessEngine.start(CONFIG) as engine:
        pid, started_s = engine.pid, time.monotonic()
        per_round = load.num_requests // load.num_rounds
        for number in range(load.num_rounds):
            _run_round(engine, load, source, number * per_round, per_round)
            while engine._watch is None or not engine._watch.is_idle:
                time.sleep(0.01)
            assert engine.pid == pid, "the engine died"
            engine.ledger().check(0)
            assert pid is not None
            done = (number + 1) * per_round
            gc.collect()
            elapsed_s, num_objects = time.monotonic() - started_s, sys.getallocatedblocks()
            samples.append(Sample(done, elapsed_s, use_of("self"), use_of(pid), num_objects))
            if show:
                print(f"{done:8d} requests  {samples[-1]}", file=sys.stderr, flush=True)
    return samples


def slope(xs: Sequence[float], ys: Sequence[float]) -> Slope:
    """Of the line of least squares through points, with a margin of two standard errors."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    value = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    scatter = sum((y - mean_y - value * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return Slope(value, 2 * sqrt(scatter / max(1, len(xs) - 2) / spread))


def settled(samples: Sequence[Sample]) -> list[Sample]:
    """Those after the warm-up."""
    return list(samples[int(len(samples) * WARM_UP) :])


def growth(samples: Sequence[Sample]) -> dict[str, Slope]:
    """KiB per request of each process, and of the server its objects per request, after the warm-up."""
    kept = settled(samples)
    done = [float(sample.num_requests) for sample in kept]
    return {
        "objects": slope(done, [float(sample.num_objects) for sample in kept]),
        "server": slope(done, [float(sample.server.memory_kib) for sample in kept]),
        "engine": slope(done, [float(sample.engine.memory_kib) for sample in kept]),
    }


def rate(samples: Sequence[Sample]) -> float:
    """Requests a second, after the warm-up."""
    first, *_, last = settled(samples)
    return (last.num_requests - first.num_requests) / (last.elapsed_s - first.elapsed_s)


def hourly(samples: Sequence[Sample]) -> dict[str, Slope]:
    """MiB an hour of each process, were it to go on like that at the rate that was run."""
    found = growth(samples)
    return {name: found[name].times(rate(samples) * 3600 / 1024) for name in ("server", "engine")}


def _run_round(engine: ProcessEngine, load: Load, source: random.Random, first: int, number: int) -> None:
    """So many requests, at most 64 at a time; returns when all have ended."""
    room = threading.Semaphore(64)

    def take(event: Event) -> None:
        if isinstance(event, Finish):
            room.release()

    for i in range(first, first + number):
        assert room.acquire(timeout=TIMEOUT_S)
        prompt = (source.randrange(50), *(source.randrange(50000) for _ in range(source.randint(1, 30))))
        sampling = Sampling(max_tokens=source.randint(max(1, load.most_tokens // 2), load.most_tokens))
        engine.submit(Generate(request_id=RequestId(str(i)), prompt_ids=prompt, sampling=sampling), take)
        if source.random() < load.abort_share:
            engine.abort(RequestId(str(max(first, i - source.randrange(4)))))
    for _ in range(64):
        assert room.acquire(timeout=TIMEOUT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--tokens", type=int, default=8, help="of the longest answer")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    load = Load(args.requests, args.tokens, num_rounds=min(60, args.requests // 4), seed=args.seed)
    samples = soak(load, show=True)
    print(f"seed {args.seed}: {args.requests} requests in {samples[-1].elapsed_s:.0f} s, {rate(samples):.0f} a second")
    for name, an_hour in hourly(samples).items():
        each = growth(samples)[name].times(100_000)
        uses = [getattr(sample, name) for sample in settled(samples)]
        print(
            f"{name}: {each.value:+.0f} ± {each.margin:.0f} KiB per 100,000 requests "
            f"({an_hour.value:+.2f} ± {an_hour.margin:.2f} MiB an hour at this rate), "
            f"{uses[0].memory_kib} to {uses[-1].memory_kib} KiB; threads {sorted({use.num_threads for use in uses})}, "
            f"descriptors {sorted({use.num_descriptors for use in uses})}"
        )
    objects = growth(samples)["objects"].times(100_000)
    print(f"objects in the server: {objects.value:+.0f} ± {objects.margin:.0f} per 100,000 requests")


if __name__ == "__main__":
    main()
