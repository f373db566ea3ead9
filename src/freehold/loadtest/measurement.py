"""One repeat of one point: conversations in, records out, with what belongs to them."""

import asyncio
import gc
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from freehold.loadtest.asking import Asker
from freehold.loadtest.lag import LagMonitor
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load, Stopped
from freehold.loadtest.saturation import SaturationWatch
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
        stopped: it was ended early, as the server was over-saturated; it is complete nevertheless.
        expects_hits: requests were meant to find prompts in the server's prefix cache.
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
    stopped: Stopped | None = None
    expects_hits: bool = False


@dataclass(frozen=True, slots=True)
class Means:
    """What all measurements of a run work with.

    Attributes:
        detects_saturation: an over-saturated server ends a measurement.
    """

    asker: Asker
    probe: ServerProbe
    detects_saturation: bool = False


async def measure(
    load: Load, seed: int, conversations: Sequence[Conversation], means: Means, on_record: OnRecord, prefix: str
) -> Measurement:
    """Put a load on the server and record it. Cancelling it ends it early with what there is."""
    found = Measurement(load, seed)
    asker, probe = means.asker, means.probe

    def book(record: RequestRecord) -> None:
        found.records.append(record)
        on_record(record)

    monitor = LagMonitor()
    traffic = Traffic(load, asker, book, prefix)
    watch = SaturationWatch(traffic, found.records) if means.detects_saturation and load.kind != "closed" else None
    stopped: Stopped | None = None
    await probe.begin()
    with _undisturbed():
        background = [asyncio.create_task(monitor.run()), asyncio.create_task(probe.watch())]
        busy_s = time.process_time()
        asker.origin_s = found.origin_s = perf_counter()
        try:
            stopped = await _ask(traffic, conversations, seed, watch)
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
    if stopped is not None:
        num_left = sum(len(each.turns) for each in conversations) - len(found.records) - traffic.num_unasked
        found.stopped = msgspec.structs.replace(stopped, num_unasked=num_left - stopped.num_broken_off)
    found.readings = probe.readings
    found.metrics_refusal = probe.refusal
    found.lags_s = list(monitor.lags_s)
    found.num_unasked = traffic.num_unasked
    found.records.sort(key=lambda record: record.intended_s)
    began_s = min((record.intended_s for record in found.records), default=0.0)
    last_s = max((record.ended_s for record in found.records), default=ended_s - found.origin_s)
    is_whole = found.is_complete and found.stopped is None
    found.duration_s = (last_s if is_whole else ended_s - found.origin_s) - began_s
    return found


async def _ask(
    traffic: Traffic, conversations: Sequence[Conversation], seed: int, watch: SaturationWatch | None
) -> Stopped | None:
    """Ask all, or stop once the watch finds the server over-saturated: then what is in flight is hung up on.

    Returns:
        how it was stopped, `num_unasked` still open; None if all was asked.
    """
    if watch is None:
        await traffic.run(conversations, seed)
        return None
    asking, watching = asyncio.create_task(traffic.run(conversations, seed)), asyncio.create_task(watch.wait())
    try:
        await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            asking.result()
            return None
        return Stopped(traffic.now_s(), traffic.num_in_flight + traffic.num_waiting, 0, watching.result())
    finally:
        asking.cancel()
        watching.cancel()
        await asyncio.wait({asking, watching})


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
