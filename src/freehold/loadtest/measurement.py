"""One repeat of one point: conversations in, records out, with what belongs to them."""

import asyncio
import gc
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter

from freehold.loadtest.asking import Asker
from freehold.loadtest.lag import LagMonitor
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load
from freehold.loadtest.server_metrics import Reading, ServerProbe
from freehold.loadtest.traffic import OnRecord, Traffic
from freehold.loadtest.workloads.base import Conversation

_SWITCH_S = 0.0005  # the longest that a thread keeps the interpreter from another


@dataclass(slots=True)
class Measurement:
    """What was measured.

    Attributes:
        duration_s: from the first intended start to the last end.
        origin_s: what records count from, on the clock of `time.perf_counter`.
        metrics_refusal: status with which the server refused its metrics; None if it gave them or wasn't asked.
        num_unasked: turns that weren't asked, since one before them failed.
        num_cut: earlier attempts that were interrupted; what they asked was asked anew.
        is_complete: False if it was interrupted; requests that were in flight then have no record.
    """

    load: Load
    seed: int
    origin_s: float = 0.0
    duration_s: float = 0.0
    records: list[RequestRecord] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    readings: list[Reading] = field(default_factory=list)
    metrics_refusal: int | None = None
    num_unasked: int = 0
    num_cut: int = 0
    is_complete: bool = True


async def measure(
    load: Load,
    seed: int,
    conversations: Sequence[Conversation],
    asker: Asker,
    probe: ServerProbe,
    on_record: OnRecord,
    prefix: str,
) -> Measurement:
    """Put a load on the server and record it. Cancelling it ends it early with what there is."""
    found = Measurement(load, seed)

    def book(record: RequestRecord) -> None:
        found.records.append(record)
        on_record(record)

    monitor = LagMonitor()
    traffic = Traffic(load, asker, book, prefix)
    await probe.begin()
    with _undisturbed():
        background = [asyncio.create_task(monitor.run()), asyncio.create_task(probe.watch())]
        busy_s = time.process_time()
        asker.origin_s = found.origin_s = perf_counter()
        try:
            await traffic.run(conversations, seed)
        except asyncio.CancelledError:
            found.is_complete = False
        finally:
            ended_s = perf_counter()
            found.cpu_s = time.process_time() - busy_s
            for task in background:
                task.cancel()
            await asyncio.wait(background)
    with suppress(asyncio.CancelledError):
        await probe.read()
    found.readings = probe.readings
    found.metrics_refusal = probe.refusal
    found.lags_s = list(monitor.lags_s)
    found.num_unasked = traffic.num_unasked
    found.records.sort(key=lambda record: record.intended_s)
    began_s = min((record.intended_s for record in found.records), default=0.0)
    last_s = max((record.ended_s for record in found.records), default=ended_s - found.origin_s)
    found.duration_s = (last_s if found.is_complete else ended_s - found.origin_s) - began_s
    return found


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keeps this process from doing what would look like a slow server: collections of garbage take milliseconds with
    many objects about, and threads that write and draw may keep the interpreter for five."""
    interval_s = sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        gc.enable()
        gc.unfreeze()
