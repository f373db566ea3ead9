"""Runs of the load tester against the stub server, with the truth beside what was reported."""

import asyncio
import itertools
import json
import ssl
import subprocess
import sys
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from tests import processes
from tests.loadtest.stub import Truth

from freehold.loadtest.bench import Surroundings, run_bench
from freehold.loadtest.measurement import Measurement
from freehold.loadtest.options import ENDPOINTS, BenchOptions, DatasetOptions
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load, PointResult, RunResult
from freehold.loadtest.store import RunStore

STUB = Path(__file__).with_name("stub.py")
_numbers = itertools.count()


class StubServer(AbstractContextManager["StubServer"]):
    """The stub in a process of its own."""

    def __init__(self, *arguments: str, is_tls: bool = False) -> None:
        self._tls = ssl._create_unverified_context() if is_tls else None
        self._process = processes.start(
            [sys.executable, str(STUB), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.port = int(self._process.stdout.readline())
        self.url = f"http{'s' if is_tls else ''}://localhost:{self.port}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0
        self._process.stdout.close()

    def truth(self) -> dict[str, Truth]:
        """What was done with each request since the last look."""
        with urllib.request.urlopen(f"{self.url}/truth", context=self._tls) as answer:
            return {key: Truth(**fields) for key, fields in json.load(answer).items()}


class Silent:
    """Watches nothing."""

    def begin(self, load: Load, repeat: int, num_requests: int) -> None:
        pass

    def record(self, record: RequestRecord) -> None:
        pass

    def point(self, result: PointResult) -> None:
        pass


@dataclass(frozen=True)
class Run:
    """A result and the truth.

    Attributes:
        measurement: what was stored of the point.
        is_strict: figures must be true even if the machine had other things to do.
    """

    result: RunResult
    truths: dict[str, Truth]
    measurement: Measurement
    path: Path
    is_strict: bool

    @property
    def point(self) -> PointResult:
        (point,) = self.result.points
        return point

    @property
    def pairs(self) -> list[tuple[RequestRecord, Truth]]:
        """What was recorded of each request, and the truth."""
        return [(record, self.truths[record.request_id]) for record in self.measurement.records]

    @cached_property
    def lateness_s(self) -> list[float]:
        """How long each chunk was on its way from the stub's write to the time that the load tester noted for it, and
        each request the other way. None is negative, and on a machine with nothing else to do all are small."""
        found = []
        for record, truth in self.pairs:
            found.append(truth.received_s - self.measurement.origin_s - record.started_s)
            if record.first_s is not None and record.succeeded:
                arrivals = self.measurement.origin_s + np.cumsum([record.first_s, *record.gaps_s])
                found += np.subtract(arrivals, truth.chunks_s).tolist()
        assert min(found) > -1e-4, "nothing arrives before it is sent"
        return found

    def check(self, name: str, reported_ms: float, true_ms: float) -> None:
        """Within 2 % or 2 ms, and what the machine itself added to a time that begins and ends on the way."""
        allowed = max(0.02 * true_ms, 2.0) + (0 if self.is_strict else 2 * max(self.lateness_s) * 1000)
        assert abs(reported_ms - true_ms) <= allowed, f"{name}: {reported_ms:.2f} ms, and {true_ms:.2f} is the truth"

    def check_distribution(self, metric: str, true_s: list[float]) -> None:
        """Every figure of a latency; no request may give one if there is no truth."""
        if not true_s:
            assert metric not in self.point.latencies
            return
        found = self.point.latencies[metric]
        true_ms = np.asarray(true_s) * 1000
        assert found.num == len(true_ms)
        self.check(f"mean {metric}", found.mean, float(true_ms.mean()))
        self.check(f"median {metric}", found.median, float(np.median(true_ms)))
        self.check(f"std {metric}", found.std, float(true_ms.std()))
        for percent, value in found.percentiles.items():
            self.check(f"p{percent} {metric}", value, float(np.percentile(true_ms, float(percent))))


def bench(server: StubServer, folder: Path, behaviour: Any = None, *, is_strict: bool = False, **options: Any) -> Run:
    """Measure one point (or those in `loads`).

    Args:
        behaviour: of the stub, or a list of behaviours that it takes in turns.
        options: of `BenchOptions`; ``concurrency`` means a closed loop, ``lengths`` tokens in and out.
    """
    server.truth()
    path = folder / f"run-{next(_numbers)}.sqlite"
    num_input, num_output = options.pop("lengths", (32, 16))
    load = Load(kind="closed", concurrency=options.pop("concurrency", 1))
    chosen = BenchOptions(**{
        "base_url": server.url,
        "loads": [load],
        "num_prompts": 10,
        "num_warmups": 0,
        "seed": 1,
        "endpoint": ENDPOINTS[options.get("backend", "openai")],
        "dataset": DatasetOptions(random_input_len=num_input, random_output_len=num_output),
        "fields": {"stub": behaviour or {}},
        **options,
    })  # fmt: skip
    store = RunStore(path, chosen)
    try:
        result = asyncio.run(run_bench(chosen, store, Surroundings(folder), Silent()))
    finally:
        store.close()
    return Run(result, server.truth(), stored(path), path, is_strict)


def stored(path: Path, point: int = 0, repeat: int = 0) -> Measurement:
    """What a run's file has of a measurement."""
    store = RunStore(path, None)
    found = store.measurement(point, repeat)
    store.close()
    assert found is not None
    return found
