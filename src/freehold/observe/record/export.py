"""Recordings for other tools: JSON lines, and Mooncake's format of traces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from freehold.observe.record.reader import RecordedRequest

ToText = Callable[[Sequence[int]], str]


def as_json(recorded: RecordedRequest, to_text: ToText | None = None) -> dict[str, Any]:
    """One request, as ``freehold record export`` writes it. Times are Unix seconds.

    Args:
        to_text: adds prompt and answer as text, of requests that were recorded in full.
    """
    header, begun, ended = recorded.header, recorded.begun, recorded.ended
    line: dict[str, Any] = {
        "id": recorded.record_id,
        "request_id": begun.request_id,
        "http_id": begun.http_id,
        "key_id": begun.key_id,
        "model": header.model_name,
        "fingerprint": header.info.fingerprint,
        "began": recorded.began_unix_s,
        "detail": begun.detail,
        "num_prompt_tokens": begun.num_prompt_tokens,
        "traits": msgspec.to_builtins(begun.traits),
        "outcome": recorded.outcome,
    }
    if begun.generate is not None:
        line["generate"] = msgspec.to_builtins(begun.generate)
    if ended is not None:
        line |= msgspec.to_builtins(ended) | {"ended": header.unix_time(ended.at_s)}
        line["digests"] = [f"{digest:016x}" for digest in ended.digests]
        line["stages"] = stage_times(recorded)
        for name in ("type", "number", "at_s", "first_token_s"):
            line.pop(name, None)
    if to_text is not None and begun.generate is not None:
        line["prompt"] = to_text(begun.generate.prompt_ids)
        line["answer"] = to_text(ended.token_ids if ended is not None else ())
    return line


def stage_times(recorded: RecordedRequest) -> dict[str, float | int | None]:
    """When a request went from one stage to the next, in Unix seconds, and how often its blocks were taken away."""
    ended = recorded.ended
    if ended is None or ended.stages is None:
        return {}
    stages, unix_time = ended.stages, recorded.header.unix_time
    return {
        "arrived": unix_time(stages.arrived_s),
        "started": None if stages.started_s is None else unix_time(stages.started_s),
        "first_token": None if stages.first_token_s is None else unix_time(stages.first_token_s),
        "ended": unix_time(stages.ended_s),
        "num_preemptions": stages.num_preemptions,
    }


def mooncake(requests: Iterable[RecordedRequest]) -> Iterator[dict[str, Any]]:
    """Requests as Mooncake's traces have them: ``timestamp`` in milliseconds after the first, lengths, and a number for
    each 512 tokens of the prompt, equal where prompts begin alike. Those that never got a token are left out."""
    numbers: dict[tuple[int, int], int] = {}
    first_s: float | None = None
    for recorded in requests:
        if not recorded.num_output_tokens:
            continue
        if first_s is None:
            first_s = recorded.began_unix_s
        run = recorded.header.run
        yield {
            "timestamp": max(0, round((recorded.began_unix_s - first_s) * 1000)),
            "input_length": recorded.begun.num_prompt_tokens,
            "output_length": recorded.num_output_tokens,
            "hash_ids": [numbers.setdefault((run, block), len(numbers)) for block in recorded.begun.hash_ids],
        }
