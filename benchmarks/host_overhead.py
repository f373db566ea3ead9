"""What a step costs on the host: planning, submitting, applying, and the messages to the server's process.

    python benchmarks/host_overhead.py [--running 64]                  # no model: a backend that takes no time
    python benchmarks/host_overhead.py MODEL.gguf --running 32         # the share of real steps

The engine's parts and its loop are the real ones. Messages go over a socket pair, as between the engine's process and
the server's, and are taken off it by a thread of this process. Each part is timed by wrapping the function that does
it. Planning and submitting overlap the step before, so the sum bounds what a step is longer for it.
"""

import argparse
import functools
import itertools
import random
import socket
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from freehold.config import EngineConfig
from freehold.engine.ipc import Channel, Events, FromEngine
from freehold.engine.start import Loaded, load
from freehold.protocol import Drain, Event, Finish, Generate, RequestId, Sampling

PARTS = ("plan", "submit", "wait", "apply", "send")
NUM_WARM_STEPS = 20


class Stopwatch:
    """Seconds of each part, step by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, with every call's time noted."""

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            started_s = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.seconds[part].append(time.perf_counter() - started_s)

        return call

    def medians_ms(self, num_steps: int) -> dict[str, float]:
        """By part, over the last `num_steps` steps."""
        return {part: 1000 * statistics.median(self.seconds[part][-num_steps:]) for part in PARTS}


class Receiver:
    """The server's end: a thread that decodes what comes and finds each event's request."""

    def __init__(self, end: socket.socket) -> None:
        self.all_ended = threading.Semaphore(0)
        self._channel: Channel[FromEngine] = Channel(end, FromEngine)
        self._counts: dict[RequestId, int] = defaultdict(int)
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            for message in self._channel.receive(None):
                assert isinstance(message, Events)
                for event in message.events:
                    self._counts[event.request_id] += 1
                    if isinstance(event, Finish):
                        self.all_ended.release()


def start(config: EngineConfig, stopwatch: Stopwatch, end: socket.socket) -> Loaded:
    """A loaded core whose parts are timed and whose events go to `end`."""
    channel: Channel[FromEngine] = Channel(end, FromEngine)

    def publish(events: Sequence[Event]) -> None:
        if events:
            channel.send(Events(tuple(events)))

    sending = stopwatch.timed("send", publish)
    loaded = load(config, publish=sending, on_profile=lambda _end: None, on_step=lambda _rows: None)
    scheduler, runner = loaded.core._scheduler, loaded.core._runner
    scheduler.plan = stopwatch.timed("plan", scheduler.plan)  # type: ignore[method-assign]
    scheduler.apply = stopwatch.timed("apply", scheduler.apply)  # type: ignore[method-assign]
    runner.submit = stopwatch.timed("submit", runner.submit)  # type: ignore[method-assign]
    runner.collect = stopwatch.timed("wait", runner.collect)  # type: ignore[method-assign]
    return loaded


def measure(config: EngineConfig, num_running: int, num_steps: int) -> tuple[dict[str, float], float]:
    """Medians of each part in ms, and the median time from step to step in ms, while `num_running` answers grow."""
    ours, theirs = socket.socketpair()
    stopwatch, receiver = Stopwatch(), Receiver(theirs)
    loaded = start(config, stopwatch, ours)
    draw = random.Random(0)
    sampling = Sampling(temperature=0.0, max_tokens=NUM_WARM_STEPS + num_steps)
    for index in range(num_running):
        ids = tuple(draw.randrange(loaded.info.vocab_size) for _ in range(32))
        loaded.core.inbox.put(Generate(request_id=RequestId(f"request-{index}"), prompt_ids=ids, sampling=sampling))
    loaded.core.inbox.put(Drain(3600.0))
    starts: list[float] = []
    plan = loaded.core._scheduler.plan
    loaded.core._scheduler.plan = lambda: (starts.append(time.perf_counter()), plan())[1]  # type: ignore[method-assign]
    thread = threading.Thread(target=loaded.core.run)
    thread.start()
    thread.join()
    loaded.core.close()
    assert not loaded.core.progress.fault
    for _ in range(num_running):
        assert receiver.all_ended.acquire(timeout=60)
    between = [after - before for before, after in itertools.pairwise(starts)][-num_steps:-2]
    return stopwatch.medians_ms(num_steps), 1000 * statistics.median(between)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    config = EngineConfig(
        model_path=arguments.model or Path("none"),
        backend="cpu" if arguments.model else "scripted",
        activations="int8" if arguments.model else "float",
        num_threads=arguments.threads,
        max_num_seqs=arguments.running,
    )
    parts, step_ms = measure(config, arguments.running, arguments.steps)
    host_ms = sum(parts[part] for part in ("plan", "apply", "send"))
    print(f"{arguments.running} running, {arguments.steps} steps, medians in ms")
    for part, ms in parts.items():
        print(f"  {part:6} {ms:7.3f}")
    print(f"  plan + apply + send {host_ms:.3f}, of {step_ms:.3f} from step to step: {host_ms / step_ms:.1%}")


if __name__ == "__main__":
    main()
