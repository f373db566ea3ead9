"""The JSON that results are saved as.

A file has the keys of vLLM's ``bench serve`` at its top, and whatever vLLM has no key for under ``freehold``. A run of
several points has those of the operating point (or else of the last point) at the top, and all points, each with the
same keys, under ``freehold.points``.
"""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from freehold.errors import ConfigError, shown
from freehold.foreign_json import NOT_JSON
from freehold.loadtest.results import Distribution, PointResult, RunFacts, RunResult, ServerFigures

FORMAT = 1
NAMESPACE = "freehold"

_METRICS = ("ttft", "tpot", "itl", "e2el")


def as_json(result: RunResult) -> dict[str, Any]:
    """A run as its file has it."""
    flat = _flat_point(result.facts, result.top)
    if len(result.points) > 1:
        flat[NAMESPACE]["points"] = [_flat_point(result.facts, point) for point in result.points]
    flat[NAMESPACE] |= {
        "format": FORMAT,
        "facts": msgspec.to_builtins(result.facts),
        "knee": result.knee,
        "operating_point": result.operating_point,
        "notes": list(result.notes),
    }
    return flat


def of_json(data: Any) -> RunResult:
    """A run as `as_json` made it.

    Raises:
        ConfigError: it is none, or one of a format that this version doesn't know.
    """
    try:
        ours = data[NAMESPACE]
        if ours["format"] != FORMAT:
            raise ConfigError(f"the result has format {shown(ours['format'])}; this version reads format {FORMAT}")
        points = tuple(_point_of(each) for each in ours.get("points", [data]))
        facts = msgspec.convert(ours["facts"], RunFacts)
        return RunResult(facts, points, ours["knee"], ours["operating_point"], tuple(ours["notes"]))
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise ConfigError(f"that is no result of `freehold bench`: {error!r}") from None


def write_result(result: RunResult, path: Path, *, is_detailed: bool) -> None:
    """Save a run.

    Args:
        is_detailed: with its single requests.

    Raises:
        ConfigError: the file can't be written.
    """
    if not is_detailed:
        points = tuple(msgspec.structs.replace(point, detail=None) for point in result.points)
        result = dataclasses.replace(result, points=points)
    text = msgspec.json.format(msgspec.json.encode(as_json(result)), indent=1)
    try:
        path.write_bytes(text + b"\n")
    except OSError as error:
        raise ConfigError(f"can't write the result {path}: {error.strerror}") from None


def read_result(path: Path) -> RunResult:
    """A saved run.

    Raises:
        ConfigError: the file can't be read, or holds none.
    """
    try:
        data = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"can't read the result {path}: {error.strerror}") from None
    except NOT_JSON as error:
        raise ConfigError(f"{path} is no result of `freehold bench`: {error}") from None
    return of_json(data)


_DETAILED = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors")


def _flat_point(facts: RunFacts, point: PointResult) -> dict[str, Any]:
    """A point under vLLM's keys, with our figures under `NAMESPACE`."""
    load = point.load
    flat: dict[str, Any] = {
        "date": facts.date,
        "backend": facts.backend,
        "endpoint_type": facts.backend,
        "label": facts.label,
        "model_id": facts.model_id,
        "tokenizer_id": facts.tokenizer_id,
        "num_prompts": facts.num_prompts,
        "request_rate": "inf" if load.request_rate is None else load.request_rate,
        "burstiness": load.burstiness,
        "max_concurrency": load.concurrency or load.max_concurrency,
    }
    if load.ramp_up_strategy:
        flat |= {name: getattr(load, name) for name in ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")}
    for name in (
        "duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput",
        "output_throughput", "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
    ):  # fmt: skip
        flat[name] = getattr(point, name)
    flat["request_goodput"] = point.goodput.requests_per_s if point.goodput else None
    for metric in _METRICS:
        if metric in point.latencies:
            flat |= _keyed(point.latencies[metric], metric)
    if point.client_queue:
        queue = _keyed(point.client_queue, "client_queue_time")
        flat |= {key: queue[key] for key in (f"{name}_client_queue_time_ms" for name in ("mean", "median", "p99"))}
    if "e2el" in point.from_intended:
        flat["p99_e2el_including_client_queue_ms"] = point.from_intended["e2el"].percentiles["99"]
    flat |= _speculation(point.server)
    ours = flat[NAMESPACE] = msgspec.to_builtins(point)
    if point.detail:
        flat |= {name: ours["detail"].pop(name) for name in _DETAILED}
    return flat


def _point_of(data: dict[str, Any]) -> PointResult:
    ours = dict(data[NAMESPACE])
    if ours["detail"] is not None:
        ours["detail"] = ours["detail"] | {name: data[name] for name in _DETAILED}
    return msgspec.convert(ours, PointResult)


def _keyed(found: Distribution, metric: str) -> dict[str, float]:
    keyed = {f"{name}_{metric}_ms": getattr(found, name) for name in ("mean", "median", "std")}
    return keyed | {f"p{percent}_{metric}_ms": value for percent, value in found.percentiles.items()}


def _speculation(server: ServerFigures) -> dict[str, Any]:
    """vLLM's figures of speculative decoding, if the server counted any drafts."""
    drafts, guessed, accepted = server.num_drafts, server.draft_tokens, server.accepted_tokens
    if not drafts or not guessed or accepted is None:
        return {}
    return {
        "spec_decode_acceptance_rate": accepted / guessed * 100,
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": int(drafts),
        "spec_decode_draft_tokens": int(guessed),
        "spec_decode_accepted_tokens": int(accepted),
        "spec_decode_per_position_acceptance_rates": [each / drafts for each in server.accepted_per_position],
    }
