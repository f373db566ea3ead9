"""Random traffic on an engine's process, and a nemesis that stops and kills it: nothing may be lost, doubled or wrong.

    python tests/nemesis/nemesis.py --seed 7 --cancellations 10000 --kills 20

prints the seed, what happened and what was wrong. The same seed makes the same requests, cancellations and strikes;
when each lands is up to the machine.
"""

import argparse
import heapq
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from history import Record, Truth, problems, summary
from traffic import Job, Mix, jobs, scripted_ids

from freehold.config import EngineConfig
from freehold.engine.handle import EngineHandle
from freehold.engine.remote import ProcessEngine
from freehold.errors import EngineError
from freehold.protocol import Event, Finish

PROGRAM = (sys.executable, str(Path(__file__).with_name("nemesis_child.py")))
TIMEOUT_S = 120.0
MAX_LIVE = 48

SCRIPTED = EngineConfig(
    model_path=Path("scripted"),
    backend="scripted",
    block_size=16,
    kv_cache_bytes=40 * 16 * 1024,  # little more than three of the longest requests
    max_model_len=208,
    max_num_seqs=8,
    max_num_batched_tokens=64,
)


class Client:
    """Submits jobs, cancels them when their moment has come, and keeps the history."""

    def __init__(self, engine: EngineHandle) -> None:
        self.history: list[Record] = []
        self.num_cancelled = 0
        self._engine = engine
        self._later: list[tuple[float, int, Record]] = []  # heap of cancellations by time

    def run(self, source: Iterator[Job], num_cancellations: int) -> bool:
        """Submit until so many requests were cancelled, and wait for the rest. Returns whether there may be more."""
        is_more = True
        while is_more and self.num_cancelled < num_cancellations:
            batch = list(islice(source, 20))
            is_more = bool(batch)
            for job in batch:
                self._wait_for_room()
                self._submit(job)
        end_s = time.monotonic() + TIMEOUT_S
        while self._engine.num_live or self._later:
            self._cancel_due()
            time.sleep(0.002)
            if time.monotonic() > end_s:
                return False  # the checker will see
        return is_more

    def _wait_for_room(self) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        self._cancel_due()
        while self._engine.num_live >= MAX_LIVE and time.monotonic() < end_s:
            time.sleep(0.001)
            self._cancel_due()

    def _submit(self, job: Job) -> None:
        record = Record(job)
        self.history.append(record)
        try:
            self._engine.submit(job.generate, lambda event: self._take(record, event))
        except EngineError as refusal:
            record.refusal = refusal.code
            time.sleep(0.01)
            return
        if job.cancel == "at once":
            self._cancel(record)
        elif job.cancel == "after a while":
            heapq.heappush(self._later, (time.monotonic() + job.cancel_after, len(self.history), record))

    def _take(self, record: Record, event: Event) -> None:
        record.take(event)
        is_due = record.job.cancel in {"after some ids", "before the last id"}
        if is_due and not isinstance(event, Finish) and len(record.token_ids) >= record.job.cancel_after:
            self._cancel(record)

    def _cancel_due(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            self._cancel(heapq.heappop(self._later)[2])

    def _cancel(self, record: Record) -> None:
        self.num_cancelled += not record.is_cancelled
        record.is_cancelled = True
        self._engine.abort(record.job.generate.request_id)


@dataclass
class Nemesis:
    """Strikes the engine's process at random moments, spread over the run, in a thread of its own.

    Attributes:
        progress: of the run, from 0 to 1.
        num_kills, num_stops: strikes so far.
    """

    engine: ProcessEngine
    seed: int
    most_kills: int
    progress: Callable[[], float]
    num_kills: int = 0
    num_stops: int = 0
    is_over: bool = False

    def run(self) -> None:
        """Until all kills were made, or `is_over`."""
        source = random.Random(self.seed)
        while self.num_kills < self.most_kills and not self.is_over:
            time.sleep(source.uniform(0.05, 0.6))
            pid = self.engine.pid
            if pid is None or self.progress() * self.most_kills < self.num_kills:
                continue
            if source.random() < 0.4:
                self._signal(pid, signal.SIGSTOP)
                time.sleep(source.uniform(0.0, 0.2))
                self._signal(pid, signal.SIGCONT)
                self.num_stops += 1
            else:
                self._signal(pid, signal.SIGKILL)
                self.num_kills += 1
                end_s = time.monotonic() + TIMEOUT_S
                while self.engine.pid in {None, pid} and time.monotonic() < end_s and not self.engine.fault:
                    time.sleep(0.005)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return  # it has just ended


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        problems: what can't be, in words.
    """

    history: Sequence[Record]
    problems: Sequence[str]
    num_kills: int
    num_stops: int
    summary: str


def storm(seed: int, num_cancellations: int, num_kills: int) -> Outcome:
    """A run on the scripted backend, whose every step is checked by a referee and against all accounts."""
    truth = Truth(scripted_ids, allowed=frozenset({"step_failed", *({"engine_died"} if num_kills else ())}))
    with tempfile.TemporaryDirectory() as folder:
        lives = Path(folder) / "lives"
        with ProcessEngine.start(SCRIPTED, program=[*PROGRAM, str(lives)]) as engine:
            outcome = strike(engine, seed, jobs(seed, Mix()), truth, num_cancellations, num_kills)
        num_lives = lives.stat().st_size
    if num_lives != outcome.num_kills + 1:
        return replace(outcome, problems=[*outcome.problems, f"{num_lives} processes, {outcome.num_kills} kills"])
    return outcome


def strike(
    engine: ProcessEngine, seed: int, source: Iterator[Job], truth: Truth, num_cancellations: int, num_kills: int
) -> Outcome:
    """Send jobs to an engine, and let the nemesis at it."""
    first_s, client = time.monotonic(), Client(engine)
    nemesis = Nemesis(engine, seed, num_kills, lambda: client.num_cancelled / num_cancellations)
    thread = threading.Thread(target=nemesis.run)
    thread.start()
    try:
        while True:
            is_more = client.run(source, max(num_cancellations, client.num_cancelled + 50))
            if nemesis.num_kills >= num_kills or engine.fault or not is_more:
                break
    finally:
        nemesis.is_over = True
        thread.join()
    found = problems(client.history, truth, engine.ledger())
    found += _unwell(engine, nemesis)
    told = (
        f"seed {seed}: {summary(client.history)}; {nemesis.num_kills} kills, {nemesis.num_stops} stops, "
        f"{time.monotonic() - first_s:.0f} s"
    )
    return Outcome(client.history, found, nemesis.num_kills, nemesis.num_stops, told)


def _unwell(engine: ProcessEngine, nemesis: Nemesis) -> list[str]:
    """The engine must come back by itself, fall idle, and survive its own checks for left-over blocks then."""
    end_s = time.monotonic() + TIMEOUT_S
    while not (engine.health().ok and engine._watch is not None and engine._watch.is_idle):
        if time.monotonic() > end_s:
            return [f"the engine isn't back: {engine.health().reason}"]
        time.sleep(0.01)
    pid = engine.pid
    time.sleep(0.2)
    return [] if engine.pid == pid else ["the engine died although nobody killed it"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--cancellations", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5)
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    outcome = storm(args.seed, args.cancellations, args.kills)
    print(outcome.summary)
    print(*(outcome.problems or ["nothing was lost, doubled or wrong"]), sep="\n")
    sys.exit(bool(outcome.problems))


if __name__ == "__main__":
    main()
