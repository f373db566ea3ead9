"""The shape of results. Latencies whose names end in ``_ms`` are milliseconds, all other times seconds."""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Metric = Literal["ttft", "ttfot", "tpot", "itl", "e2el"]
"""Time to the first token of any kind, to the first one that isn't reasoning, per output token after the first (one
value a request), between chunks (pooled), and to the end."""


Interval = tuple[float, float]
"""Lower and upper bound."""

HitRateSource = Literal["metrics", "usage"]


class Distribution(msgspec.Struct, frozen=True):
    """Latencies in ms.

    Attributes:
        num: values behind it.
        percentiles: by percent as text, such as ``"99"`` or ``"99.9"``.
    """

    num: int
    mean: float
    median: float
    std: float
    percentiles: dict[str, float]


class Goodput(msgspec.Struct, frozen=True):
    """Requests that succeeded within every limit.

    Attributes:
        limits_ms: by metric.
        num_good: requests that met them all.
        fraction: of all requests, failed ones included.
        requests_per_s: good ones.
        missed: by metric, requests that missed its limit.
    """

    limits_ms: dict[str, float]
    num_good: int
    fraction: float
    requests_per_s: float
    missed: dict[str, int]


class ServerSample(msgspec.Struct, frozen=True):
    """What the server's metrics said at one moment; None for what it doesn't tell.

    Attributes:
        at_s: from the point's beginning.
        kv_usage: 0 to 1.
    """

    at_s: float
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    generation_tokens: float | None = None


class ServerFigures(msgspec.Struct, frozen=True):
    """What the server's metrics counted during the point; None for what it doesn't tell.

    Attributes:
        prefix_queries, prefix_hits: prompt tokens looked up in the prefix cache, and found.
        prompt_tokens, generation_tokens: that it counted, other clients' included.
        timeline: samples, in order.
    """

    prefix_queries: float | None = None
    prefix_hits: float | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    num_drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: list[float] = []
    timeline: list[ServerSample] = []


class ClientFigures(msgspec.Struct, frozen=True):
    """How well the load tester itself kept up.

    Attributes:
        lag_p99_ms, lag_max_ms: how late its event loop was.
        schedule_delay_ms: median time from a request's intended start until the client took it up.
        achieved_rate: achieved rate of starts by the intended one; None without a rate.
        cpu_fraction: of one core.
    """

    lag_p99_ms: float
    lag_max_ms: float
    schedule_delay_ms: float
    achieved_rate: float | None
    cpu_fraction: float


class Finding(msgspec.Struct, frozen=True):
    """Something that a reader of the result must know, as a stable code and as a sentence."""

    code: str
    text: str


class RepeatFigures(msgspec.Struct, frozen=True):
    """One repeat of a point by itself.

    Attributes:
        median_ms: latencies from send, by metric.
    """

    seed: int
    duration: float
    completed: int
    failed: int
    request_throughput: float
    output_throughput: float
    median_ms: dict[str, float]


SaturationSign = Literal["queue", "refusals"]
"""What tells that a server is over-saturated: its queue keeps growing, or it keeps refusing requests."""


class Stopped(msgspec.Struct, frozen=True):
    """A measurement that was stopped before its end, as the server was over-saturated.

    Attributes:
        after_s: from its beginning.
        num_broken_off: requests that were in flight; they have no figures.
        num_unasked: requests that weren't sent.
        sign: what told that the server was over-saturated.
    """

    after_s: float
    num_broken_off: int
    num_unasked: int
    sign: SaturationSign = "queue"


class Load(msgspec.Struct, frozen=True):
    """How requests came.

    Attributes:
        kind: ``closed`` (so many at a time), ``open`` (at a rate), ``trace`` (at the workload's own times).
        concurrency: of a closed loop.
        request_rate: a second, ``inf`` for all at once.
        max_concurrency: of an open loop or a trace; None for no limit.
    """

    kind: Literal["closed", "open", "trace"]
    concurrency: int | None = None
    request_rate: float | Literal["inf"] | None = None
    burstiness: float | Literal["inf"] = 1.0
    max_concurrency: int | None = None
    ramp_up_strategy: Literal["linear", "exponential"] | None = None
    ramp_up_start_rps: float | None = None
    ramp_up_end_rps: float | None = None

    @property
    def label(self) -> str:
        """Short text for tables."""
        if self.kind == "closed":
            return f"{self.concurrency} at a time"
        if self.kind == "trace":
            return "trace"
        if self.ramp_up_strategy:
            return f"{self.ramp_up_start_rps:g} to {self.ramp_up_end_rps:g} req/s"
        return "all at once" if self.request_rate == "inf" else f"{self.request_rate:g} req/s"


class Detail(msgspec.Struct, frozen=True):
    """Every request that ended, in order of its intended start; seconds.

    Attributes:
        ttfts: 0 for failed ones, as vLLM has it.
        itls: gaps between chunks.
        latencies: from send to the end.
        start_times: from the point's beginning.
        queue_times: from the intended start until the request was sent.
        errors: "" for those that succeeded.
        repeats: which repeat of the point the request belongs to.
    """

    input_lens: list[int]
    output_lens: list[int]
    ttfts: list[float]
    ttfots: list[float | None]
    itls: list[list[float]]
    latencies: list[float]
    start_times: list[float]
    queue_times: list[float]
    errors: list[str]
    cached_lens: list[int]
    repeats: list[int]
    request_ids: list[str]


class PointResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of one point. What vLLM has a key for has its name.

    Attributes:
        latencies: from send, by metric; metrics that no request gives are left out.
        from_intended: the same from the intended start: what users feel. Only ``ttft``, ``ttfot`` and ``e2el``.
        client_queue: from the intended start until the request was sent.
        intervals: 95 % confidence intervals by key, such as ``p99_ttft_ms``.
        too_few: keys of percentiles that stand on too few requests.
        token_sources: requests by where their token count is from: ``usage``, ``ids``, ``tokenizer``, ``unknown``.
        hit_rate: of the server's prefix cache in this point; None if it doesn't tell.
        hit_rate_source: ``metrics`` or ``usage``.
        invalid: why the figures mustn't be trusted; empty for a valid point.
        warnings: what a reader should know.
        binding_limit: what limited the server, from its metrics.
        is_complete: False if it was interrupted.
        stopped: how it was stopped early (``--detect-saturation``); None if it ran to its end.
    """

    load: Load
    seed: int
    num_warmups: int
    duration: float
    completed: int
    failed: int
    total_input_tokens: int
    total_output_tokens: int
    total_cached_tokens: int
    request_throughput: float
    output_throughput: float
    total_token_throughput: float
    max_output_tokens_per_s: float
    max_concurrent_requests: int
    tokens_per_chunk: float | None
    latencies: dict[str, Distribution]
    from_intended: dict[str, Distribution]
    client_queue: Distribution | None
    goodput: Goodput | None
    intervals: dict[str, Interval]
    too_few: list[str]
    token_sources: dict[str, int]
    error_counts: dict[str, int]
    hit_rate: float | None
    hit_rate_source: HitRateSource | None
    server: ServerFigures
    client: ClientFigures
    repeats: list[RepeatFigures]
    binding_limit: Finding | None = None
    invalid: list[Finding] = []
    warnings: list[Finding] = []
    is_complete: bool = True
    stopped: Stopped | None = None
    detail: Detail | None = None

    @property
    def is_valid(self) -> bool:
        """The figures can be trusted."""
        return not self.invalid

    @property
    def marks(self) -> list[str]:
        """What a reader of one line of figures must know, in a word each."""
        return [*(["STOPPED"] if self.stopped else []), *([] if self.is_valid else ["INVALID"])]


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to every result of a run.

    Attributes:
        date: of its beginning, ISO 8601 in UTC.
        backend: vLLM's name for the kind of client, ``openai`` or ``openai-chat``.
        endpoint: path of the requests.
        arguments: of the run, by flag, as given or by default.
        server: what it says of itself: its name, version, fingerprint, models.
        metadata: the owner's, from ``--metadata``: price, GPU, flags of the server.
    """

    date: str
    version: str
    backend: Literal["openai", "openai-chat"]
    base_url: str
    endpoint: str
    model_id: str
    tokenizer_id: str
    label: str | None
    dataset: str
    num_prompts: int
    seed: int
    arguments: dict[str, Any] = {}
    server: dict[str, Any] = {}
    metadata: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class RunResult:
    """A load test.

    Attributes:
        points: in the order of the run.
        knee: index of the point where more concurrency stopped paying, if the points show one.
        operating_point: index of the point with the most goodput, if limits were given and some point is valid.
    """

    facts: RunFacts
    points: tuple[PointResult, ...]
    knee: int | None = None
    operating_point: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def top(self) -> PointResult:
        """The point whose figures stand at the top of the file."""
        return self.points[-1 if self.operating_point is None else self.operating_point]
