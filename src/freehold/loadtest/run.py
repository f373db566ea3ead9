"""A whole run: its points one after the other, each repeated, warmed up, measured and saved."""

import asyncio
import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from freehold import __version__
from freehold.errors import ResourceError
from freehold.loadtest.asking import Asker, CountTokens
from freehold.loadtest.client.http_client import HttpClient
from freehold.loadtest.client.refusals import remedy
from freehold.loadtest.client.target import Target
from freehold.loadtest.dialogue import BodyOptions
from freehold.loadtest.knee import knee, operating_point
from freehold.loadtest.measurement import Means, Measurement, measure
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load, PointResult, RunFacts, RunResult
from freehold.loadtest.server_facts import ServerFacts
from freehold.loadtest.server_metrics import ServerProbe
from freehold.loadtest.store import RunStore
from freehold.loadtest.summary import Wanted, summarize
from freehold.loadtest.traffic import Traffic
from freehold.loadtest.workloads.base import Conversation, Workload

_PROBING_S = 10.0


class InterruptedRunError(ResourceError):
    """A run was cancelled before there was anything to report."""


class Watcher(Protocol):
    """Sees a run as it goes on."""

    def begin(self, load: Load, repeat: int, num_requests: int) -> None:
        """A measurement begins."""

    def record(self, record: RequestRecord) -> None:
        """A request ended."""

    def point(self, result: PointResult) -> None:
        """All repeats of a point are measured."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a run works with.

    Attributes:
        count: tokens of a text, if a tokenizer was named.
    """

    target: Target
    workload: Workload
    store: RunStore
    watcher: Watcher
    count: CountTokens | None = None


async def run(options: BenchOptions, facts: ServerFacts, tools: Tools) -> RunResult:
    """Measure whatever the store doesn't have yet. Cancelling it ends it early with what there is.

    Raises:
        InterruptedRunError: cancelled before any request ended.
        ResourceError: no server answers as it should.
    """
    return await _Run(options, facts, tools).run()


def saved_run(store: RunStore) -> RunResult:
    """The result of a run whose measurements are all in the store; no server is asked.

    Raises:
        StateError: the file can't be read or is damaged.
    """
    options, facts = store.options, store.facts()
    assert facts is not None, "they are noted before anything is measured"
    points = []
    for index in range(len(options.loads)):
        repeats = (store.measurement(index, repeat) for repeat in range(options.repeats))
        measurements = [each for each in repeats if each is not None]
        if any(each.records for each in measurements):
            expects_hits = any(each.expects_hits for each in measurements)
            points.append(summarize(measurements, _wanted(options, expects_hits=expects_hits)))
    return RunResult(facts, tuple(points), knee(points), operating_point(points))


def seed_of(options: BenchOptions, point: int, repeat: int, num_cut: int = 0) -> int:
    """The seed of a measurement: another one for each, unless the cache is meant to be warm.

    Args:
        num_cut: attempts at it that were interrupted. The server may have their prompts cached.
    """
    return _seed(options.seed, "warm" if options.warm_cache else _place(point, repeat, num_cut))


class _Run:
    def __init__(self, options: BenchOptions, facts: ServerFacts, tools: Tools) -> None:
        self._options = options
        self._tools = tools
        self._store = tools.store
        self._http = HttpClient(tools.target, options.timeout_s)
        self._probe_http = HttpClient(tools.target, min(options.timeout_s, _PROBING_S))
        body = BodyOptions(
            surface="chat" if options.backend == "openai-chat" else "completions",
            model=facts.model,
            is_stream=options.is_stream,
            ignores_eos=options.ignore_eos,
            fields=options.fields,
        )
        self._asker = Asker(self._http, options.endpoint, body, tools.count)
        probe = ServerProbe(self._probe_http, options.metrics_path)
        self._means = Means(self._asker, probe, detects_saturation=options.detect_saturation)
        self._listed = facts.listed
        self._facts = self._store.facts() or self._new_facts(facts)
        self._is_warm = False
        self._is_interrupted = False
        self._wanted = _wanted(options, expects_hits=options.warm_cache or tools.workload.shares_prefixes)

    async def run(self) -> RunResult:
        self._store.put_facts(self._facts)
        points: list[PointResult] = []
        try:
            for index, load in enumerate(self._options.loads):
                measurements = await self._point(index, load)
                if any(each.records for each in measurements):
                    points.append(summarize(measurements, self._wanted))
                    self._tools.watcher.point(points[-1])
                if self._is_interrupted:
                    break
        finally:
            await self._http.close()
            await self._probe_http.close()
        if not self._is_interrupted:
            self._store.finish_run()
        if not points:
            raise InterruptedRunError("interrupted before any request ended: there is nothing to report")
        return RunResult(self._facts, tuple(points), knee(points), operating_point(points))

    async def _point(self, index: int, load: Load) -> list[Measurement]:
        """All repeats; fewer if they are interrupted, or the server is over-saturated."""
        measurements: list[Measurement] = []
        for repeat in range(self._options.repeats):
            found = self._store.measurement(index, repeat)
            if found is None:
                try:
                    found = await self._measure(index, repeat, load)
                except asyncio.CancelledError:  # while warming up
                    self._is_interrupted = True
                    break
                self._is_interrupted = not found.is_complete
            measurements.append(found)
            if self._is_interrupted or found.stopped:
                break
        return measurements

    async def _measure(self, index: int, repeat: int, load: Load) -> Measurement:
        num_cut = self._store.num_attempts(index, repeat)
        seed = seed_of(self._options, index, repeat, num_cut)
        conversations = self._tools.workload.conversations(self._options.prompts_of(load), seed)
        await self._warm_up(_place(index, repeat, num_cut), load, conversations)
        self._store.begin(index, repeat)
        self._tools.watcher.begin(load, repeat, sum(len(each.turns) for each in conversations))

        def on_record(record: RequestRecord) -> None:
            self._store.put(index, repeat, record)
            self._tools.watcher.record(record)

        prefix = f"bench-{self._options.seed}-{index}-{repeat}"
        found = await measure(load, seed, conversations, self._means, on_record, prefix)
        found.num_cut = num_cut
        found.expects_hits = self._wanted.expects_hits
        if found.is_complete:
            self._store.finish(index, repeat, found)
        return found

    async def _warm_up(self, place: str, load: Load, own: Sequence[Conversation]) -> None:
        """Ask what doesn't count: the prompts themselves if the cache is to be warm, else some of their own kind.

        Args:
            place: of the measurement.

        Raises:
            ResourceError: none of it was answered.
        """
        if self._options.warm_cache and not self._is_warm:
            conversations = own
            self._is_warm = True
        elif self._options.num_warmups:
            seed = _seed(self._options.seed, f"warm-up of {place}")
            conversations = self._tools.workload.conversations(self._options.num_warmups, seed)
        else:
            return
        records: list[RequestRecord] = []
        concurrency = min(load.concurrency or load.max_concurrency or 1, len(conversations))
        traffic = Traffic(
            Load(kind="closed", concurrency=concurrency),
            self._asker,
            records.append,
            f"warm-up-{place.replace(', ', '-')}",
        )
        await traffic.run(conversations, 0)
        if not any(each.succeeded for each in records):
            first = records[0]
            todo = remedy(first.status, self._facts.model_id, self._listed, has_fields=bool(self._options.fields))
            raise ResourceError(f"no warm-up request succeeded: {first.message}{todo}")

    def _new_facts(self, facts: ServerFacts) -> RunFacts:
        options = self._options
        return RunFacts(
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            version=__version__,
            backend=options.backend,
            base_url=options.base_url,
            endpoint=options.endpoint,
            model_id=facts.model,
            tokenizer_id=options.tokenizer or facts.model,
            label=options.label,
            dataset=self._tools.workload.name,
            num_prompts=options.prompts_of(options.loads[-1]),
            seed=options.seed,
            arguments=msgspec.to_builtins(options),
            server=facts.told,
            metadata=options.metadata,
        )


def _wanted(options: BenchOptions, *, expects_hits: bool) -> Wanted:
    return Wanted(
        percents=tuple(options.percents),
        limits_ms=options.limits_ms,
        expects_hits=expects_hits,
        num_warmups=options.num_warmups,
    )


def _place(point: int, repeat: int, num_cut: int) -> str:
    """A measurement, apart from its earlier attempts."""
    return f"{point}, {repeat}" + (f", {num_cut}" if num_cut else "")


def _seed(seed: int, purpose: str) -> int:
    """A seed of 63 bits that depends on both."""
    return int.from_bytes(hashlib.blake2b(f"{seed}: {purpose}".encode(), digest_size=8).digest()) >> 1
