"""What it costs a server that somebody watches it: tokens a second, with and without polls of ``/debug/live``.

    python benchmarks/watched.py [MODEL] [--concurrency 64] [--rounds 4] [--seconds 4]

Streams at a fixed concurrency, in turns unwatched and polled once a second as the live page and `freehold top` do. By
default the model is made up and takes no time, so that the server's own work is all there is; a real one shows what is
left of it in practice. Processor time is that of all of the server's processes. It also prints how long a poll takes
its client, and how large an answer is.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
import timeit
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from http_servers import Server, freehold, running
from server_overhead import CONTEXT, KINDS, run_level, tiny_model

from freehold.engine.handle import EngineHandle
from freehold.serve.entrance.record import Record
from freehold.serve.live.board import Board
from freehold.serve.operation.counts import Counts
from freehold.serve.operation.timings import Timings

STREAMS = KINDS[1]
POLL_S = 1.0


@dataclass(slots=True)
class Polls:
    """What polls were answered with: seconds and bytes of each."""

    seconds: list[float] = field(default_factory=list)
    num_bytes: list[int] = field(default_factory=list)


async def poll(port: int, cursor: float) -> bytes:
    """One answer's body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        head = f"GET /debug/live?since={cursor!r} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        return (await reader.read()).partition(b"\r\n\r\n")[2]
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def watching(server: Server, polls: Polls) -> AsyncIterator[None]:
    """Poll until the context is left."""

    async def watch() -> None:
        cursor = 0.0
        while True:
            begin_s = time.perf_counter()
            body = await poll(server.port, cursor)
            polls.seconds.append(time.perf_counter() - begin_s)
            polls.num_bytes.append(len(body))
            cursor = json.loads(body)["cursor"]
            await asyncio.sleep(max(0.0, POLL_S - (time.perf_counter() - begin_s)))

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(server: Server, concurrency: int, rounds: int, seconds: float) -> None:
    """Measure in turns and print."""
    polls = Polls()
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(2 * rounds):
        is_watched = number % 4 in {1, 2}
        async with watching(server, polls) if is_watched else contextlib.nullcontext():
            found[is_watched].append(await run_level(server, STREAMS, concurrency, seconds))
    medians = {
        is_watched: {key: statistics.median(figures[key] for figures in several) for key in several[0]}
        for is_watched, several in found.items()
    }
    for is_watched, figures in medians.items():
        name = "watched" if is_watched else "unwatched"
        print(f"{name:10} {figures['per_s']:9.1f} tokens/s  {figures['cpu_us']:6.1f} µs of processor time a token")
    for key, name in (("per_s", "tokens/s"), ("cpu_us", "processor time")):
        print(f"watched, {name}: {medians[True][key] / medians[False][key] - 1:+.2%}")
    print(f"a poll: {1e3 * statistics.median(polls.seconds):.1f} ms for its client, "
          f"{statistics.median(polls.num_bytes):.0f} bytes, the first {max(polls.num_bytes)}")  # fmt: skip


class NoEngine:
    """Says nothing."""

    num_live = 0
    num_starts = 0

    def state(self) -> None:
        """None yet."""


def noting_us() -> float:
    """What it takes to note a token, whether somebody watches or not; without other watchers."""
    board, record = Board(cast(EngineHandle, NoEngine()), Counts(Timings(CONTEXT)), str), Record("one")
    with board.following(record, "completions"):
        return 10 * min(timeit.repeat(lambda: record.note_tokens(0, 1), number=100_000, repeat=7))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    options = parser.parse_args()
    print(f"noting a token: {noting_us():.2f} µs")
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or tiny_model(Path(folder))
        room = ("--max-num-seqs", str(options.concurrency), "--max-model-len", str(CONTEXT), "--state-dir", folder)
        with running(freehold(model, options.threads, *room)) as server:
            asyncio.run(measure(server, options.concurrency, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
