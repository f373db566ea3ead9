"""What counting for the metrics costs: tokens a second with it and without it, in turns.

    python benchmarks/metrics_cost.py [--model MODEL] [--backend cpu] [--tokens 100] [--pairs 6] [--seconds 2]

Two servers run side by side, one as it is, one whose histograms, loop times and snapshots are replaced by nothing. Both
are asked by 64 clients for streamed answers, one after the other: A B, B A, A B… The ratio is taken within each pair.
Without MODEL it is one that takes no time (`server_overhead.py`), so that the share is the largest there can be.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import timeit
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from http_servers import Launch, Server, freehold, running
from pairs import in_turns, ratios
from server_overhead import CONTEXT, Kind, run_level, tiny_model

CONCURRENCY = 64


def observation_ns() -> tuple[float, float]:
    """What a token costs in the server, and a step's times in the engine, by themselves: nanoseconds."""
    from freehold.engine.snapshot import LoopCounts
    from freehold.serve.entrance.record import Record
    from freehold.serve.operation.timings import Timings

    plain, watched, counts = Record("plain"), Record("watched"), LoopCounts()
    watched.watchers = (Timings(4096),)

    def step() -> None:
        for place in ("inbox", "plan", "submit", "collect", "apply", "publish", "masks"):
            counts.enter(place)
        counts.submitted(counts.num_tokens + CONCURRENCY)

    def best_ns(work: Callable[[], None]) -> float:
        return min(timeit.repeat(work, number=20_000, repeat=7)) / 20_000 * 1e9

    token_ns = best_ns(lambda: watched.note_tokens(0, 1)) - best_ns(lambda: plain.note_tokens(0, 1))
    return token_ns, best_ns(step)


def nothing(*_arguments: object) -> None:
    """In place of what counts."""


def run_engine_without() -> None:
    """The engine's process, which counts nothing but tokens."""
    from freehold.engine import process
    from freehold.engine.snapshot import LoopCounts, Snapshots

    LoopCounts.enter = LoopCounts.submitted = nothing  # type: ignore[method-assign, assignment]
    Snapshots.take_if_due = nothing  # type: ignore[method-assign]
    Snapshots.resting = lambda _self: nullcontext()  # type: ignore[method-assign, assignment]
    Snapshots.newest = lambda self: self._newest  # type: ignore[method-assign]
    process.main()


def run_server_without(arguments: Sequence[str]) -> None:
    """`freehold serve`, without histograms."""
    from freehold.cli.main import main as command
    from freehold.engine import remote
    from freehold.serve.operation.timings import Timings

    for name in ("saw_tokens", "saw_result", "saw_finish", "saw_over", "saw_used"):
        setattr(Timings, name, nothing)
    remote.default_program = lambda: [sys.executable, __file__, "--engine"]
    sys.argv = ["freehold", *arguments]
    command()


def without(launch: Launch) -> Launch:
    """The same server, run by this file."""
    python, _module, _freehold, *arguments = launch.command
    return replace(launch, name="without", command=(python, __file__, "--server", *arguments))


def compare(launch: Launch, num_tokens: int, num_pairs: int, seconds: float) -> None:
    """Measure and print."""
    kind = Kind("streams", num_tokens, True)
    cpu_us: dict[str, dict[int, float]] = {"with": {}, "without": {}}

    def rate(server: Server, turn: int) -> float:
        figures = asyncio.run(run_level(server, kind, CONCURRENCY, seconds))
        cpu_us[server.name][turn] = figures["cpu_us"]
        return figures["per_s"]

    with running(replace(launch, name="with")) as counted, running(without(launch)) as uncounted:
        rates = in_turns({server.name: partial(rate, server) for server in (counted, uncounted)}, num_pairs)
    costs = {name: [by_turn[turn] for turn in range(1, num_pairs + 1)] for name, by_turn in cpu_us.items()}
    for name in rates:
        middle, cost = statistics.median(rates[name]), statistics.median(costs[name])
        print(f"{name:8} {middle:9.0f} tokens/s  {cost:6.1f} us CPU a token")
    for what, found in (("tokens/s", rates), ("CPU a token", costs)):
        low, middle, high = statistics.quantiles(ratios(found["with"], found["without"]), n=4)
        print(f"{what}, with / without: median {middle:.4f}, quartiles {low:.4f} and {high:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--tokens", type=int, default=100, help="of each answer")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    options = parser.parse_args()
    room = ("--max-num-seqs", str(CONCURRENCY), "--max-model-len", str(CONTEXT), "--backend", options.backend)
    token_ns, step_ns = observation_ns()
    print(f"by themselves: {token_ns:.0f} ns a token in the server, {step_ns:.0f} ns a step in the engine")
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or tiny_model(Path(folder))
        launch = freehold(model, 1 if options.model is None else 2, *room)
        compare(launch, options.tokens, options.pairs, options.seconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        run_engine_without()
    elif sys.argv[1:2] == ["--server"]:
        run_server_without(sys.argv[2:])
    else:
        main()
