"""What a server says of itself at ``/metrics``: names of several servers and versions, one meaning."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from time import perf_counter

from freehold.loadtest.client.failures import FailedRequestError
from freehold.loadtest.client.http_client import HttpClient
from freehold.loadtest.results import ServerFigures, ServerSample

SAMPLE_PERIOD_S = 0.5

# The first name is today's of vLLM and Freehold. Then older ones of vLLM, llama.cpp's, SGLang's. Without ``_total``.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "llamacpp:requests_processing", "sglang:num_running_reqs"),
    "waiting": ("vllm:num_requests_waiting", "llamacpp:requests_deferred", "sglang:num_queue_reqs"),
    "prefilling": ("freehold:num_requests_prefilling",),
    "kv_usage": (
        "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio", "sglang:token_usage",
    ),
    "prefix_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "prefix_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    "preemptions": ("vllm:num_preemptions",),
    "prompt_tokens": ("vllm:prompt_tokens", "llamacpp:prompt_tokens", "sglang:prompt_tokens"),
    "generation_tokens": ("vllm:generation_tokens", "llamacpp:tokens_predicted", "sglang:generation_tokens"),
    "num_drafts": ("vllm:spec_decode_num_drafts", "llamacpp:spec_decode_num_drafts"),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens", "llamacpp:spec_decode_num_draft_tokens"),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens", "llamacpp:spec_decode_num_accepted_tokens"),
    "prefill_sum_s": ("vllm:request_prefill_time_seconds_sum",),
    "prefill_count": ("vllm:request_prefill_time_seconds_count",),
}  # fmt: skip
_BY_LABEL: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "freehold:queue_reason": ("reason", {
        "rows": "waiting_rows", "blocks": "waiting_blocks", "grammar": "waiting_grammars",
    }),
    "freehold:step_seconds_sum": ("part", {"plan": "plan_s", "run": "run_s", "apply": "apply_s", "idle": "idle_s"}),
    "freehold:computed_tokens": ("kind", {"first": "computed", "again": "recomputed"}),
}  # fmt: skip
_IN_LABELS: Mapping[str, tuple[str, str]] = {"freehold:engine_info": ("max_num_seqs", "max_num_seqs")}
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
_MEANINGS = {name: meaning for meaning, names in _NAMES.items() for name in names}
_GAUGES = {
    "running", "waiting", "prefilling", "kv_usage", "waiting_rows", "waiting_blocks", "waiting_grammars",
    "max_num_seqs",
}  # fmt: skip
_KNOWN = {*_MEANINGS, *_BY_LABEL, *_IN_LABELS, _PER_POSITION}


@dataclass(frozen=True, slots=True)
class Reading:
    """Numbers at one moment, by what they mean. Those that the server doesn't tell are absent.

    Attributes:
        at_s: on the clock of `time.perf_counter`.
        per_position: accepted draft tokens by position.
    """

    at_s: float
    values: Mapping[str, float]
    per_position: Mapping[int, float]


def read_metrics(text: str, at_s: float) -> Reading:
    """Parse Prometheus' text format as far as known names go. Several series of a name (engines) are added up, but for
    the use of the KV cache, where the fullest counts."""
    values: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in text.splitlines():
        end = min((at for at in (line.find("{"), line.find(" ")) if at > 0), default=0)
        name = line[:end].removesuffix("_total")
        if name not in _KNOWN:
            continue
        labels, _, rest = line[end:].rpartition("}")
        try:
            value = float(rest.split()[0])
            if not isfinite(value):  # a summary of nothing
                continue
            if name == _PER_POSITION:
                position = int(_label(labels, "position"))
                positions[position] = positions.get(position, 0.0) + value
                continue
            meaning = _MEANINGS.get(name)
            if name in _BY_LABEL:
                label, meanings = _BY_LABEL[name]
                meaning = meanings.get(_label(labels, label))
            elif name in _IN_LABELS:
                label, meaning = _IN_LABELS[name]
                value = float(_label(labels, label))
        except (ValueError, IndexError):
            continue
        if meaning == "kv_usage":
            values[meaning] = max(values.get(meaning, 0.0), value)
        elif meaning is not None:
            values[meaning] = values.get(meaning, 0.0) + value
    return Reading(at_s, values, positions)


def _label(labels: str, name: str) -> str:
    return labels.partition(f'{name}="')[2].partition('"')[0]


class ServerProbe:
    """Reads a server's metrics before, during and after a measurement. A server without any gives empty figures.

    Attributes:
        refusal: the status with which the server refused them, if it did.
    """

    def __init__(self, http: HttpClient, path: str | None) -> None:
        """
        Args:
            path: of the metrics; None asks for none.
        """
        self._http = http
        self._path = path
        self.readings: list[Reading] = []
        self.refusal: int | None = None

    async def begin(self) -> None:
        """Take the first reading of a measurement."""
        self.readings = []
        await self.read()

    async def watch(self) -> None:
        """Take one every `SAMPLE_PERIOD_S` until cancelled."""
        while self._path is not None:
            await asyncio.sleep(SAMPLE_PERIOD_S)
            await self.read()

    async def read(self) -> None:
        """Take a reading, if the server gives one."""
        if self._path is None:
            return
        try:
            text = (await self._http.fetch(self._path)).body.decode(errors="replace")
        except FailedRequestError as error:
            if error.status is not None and not self.readings:
                self._path = None  # it answers, and has none, or none for this key
                self.refusal = error.status
            return
        self.readings.append(read_metrics(text, perf_counter()))


def has_restarted(readings: Sequence[Reading]) -> bool:
    """A counter fell between two readings, so that the server that counts isn't the one that counted."""
    latest: dict[str, float] = {}
    for reading in readings:
        if any(
            meaning not in _GAUGES and value < latest.get(meaning, value) for meaning, value in reading.values.items()
        ):
            return True
        latest.update(reading.values)
    return False


def figures_of(measurements: Sequence[tuple[float, list[Reading]]]) -> ServerFigures:
    """What was counted over the repeats of a point. If the server was restarted within one, no counts are known.

    Args:
        measurements: the readings of each, and when it began.
    """
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    timeline: list[ServerSample] = []
    offset_s = 0.0
    for origin_s, readings in measurements:
        if len(readings) < 2:
            continue
        first, last = readings[0], readings[-1]
        for meaning in _NAMES:
            if meaning in first.values and meaning in last.values:
                sums[meaning] = sums.get(meaning, 0.0) + last.values[meaning] - first.values[meaning]
        for position, value in last.per_position.items():
            positions[position] = positions.get(position, 0.0) + value - first.per_position.get(position, 0.0)
        timeline += [_sample(reading, offset_s - origin_s) for reading in readings]
        offset_s = timeline[-1].at_s
    if any(has_restarted(readings) for _, readings in measurements):
        return ServerFigures(timeline=timeline)
    counted = {meaning: value for meaning, value in sums.items() if meaning in ServerFigures.__struct_fields__}
    return ServerFigures(
        **counted, accepted_per_position=[positions[each] for each in sorted(positions)], timeline=timeline
    )


def _sample(reading: Reading, offset_s: float) -> ServerSample:
    values = reading.values
    return ServerSample(
        at_s=reading.at_s + offset_s,
        running=values.get("running"),
        waiting=values.get("waiting"),
        kv_usage=values.get("kv_usage"),
        generation_tokens=values.get("generation_tokens"),
    )
