"""Recorded requests for people: one a line, or one with its stages, steps and neighbours."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from freehold.observe.record.export import ToText
from freehold.observe.record.format import Stepped
from freehold.observe.record.reader import RecordedRequest

COLUMNS = (
    "ID", "BEGAN (UTC)", "KEY", "DETAIL", "PROMPT", "CACHED", "OUTPUT", "WAIT ms", "FIRST ms", "TOTAL ms", "PREEMPTED",
    "OUTCOME",
)  # fmt: skip
MAX_STEPS = 40
"""Steps of one request that are shown."""


def row(recorded: RecordedRequest) -> tuple[str, ...]:
    """One request, by `COLUMNS`. Times count from when the engine was asked."""
    begun, ended = recorded.begun, recorded.ended
    stages = None if ended is None else ended.stages
    started_s = None if stages is None else stages.started_s
    first_token_s, ended_s = (None, None) if ended is None else (ended.first_token_s, ended.at_s)
    return (
        recorded.record_id,
        moment(recorded.began_unix_s),
        begun.key_id or "-",
        begun.detail,
        str(begun.num_prompt_tokens),
        "-" if ended is None else str(ended.num_cached_tokens),
        "-" if ended is None else str(ended.num_output_tokens),
        _ms(begun.at_s, started_s),
        _ms(begun.at_s, first_token_s),
        _ms(begun.at_s, ended_s),
        "-" if stages is None else str(stages.num_preemptions),
        outcome(recorded),
    )


def outcome(recorded: RecordedRequest) -> str:
    """How it ended, in a word or two."""
    if recorded.ended is None:
        return "not ended"
    code = recorded.ended.code
    return f"{recorded.ended.outcome}:{code}" if code else recorded.ended.outcome


def details(recorded: RecordedRequest, steps: Sequence[Stepped], to_text: ToText | None = None) -> Iterator[str]:
    """All that is known of one request, line by line.

    Args:
        steps: those in which it had a row.
    """
    begun, ended, header = recorded.begun, recorded.ended, recorded.header
    yield f"request {begun.request_id} of {begun.http_id}, key {begun.key_id or 'none'}, recorded in {begun.detail}"
    yield f"model {header.model_name}, fingerprint {header.info.fingerprint}, version {header.info.identity.version}"
    yield f"began {moment(recorded.began_unix_s)} UTC, {outcome(recorded)}"
    if to_text is not None and begun.generate is not None:
        yield f"prompt: {to_text(begun.generate.prompt_ids)!r}"
        yield f"answer: {to_text(ended.token_ids if ended else ())!r}"
    traits = begun.traits
    shown = {name: getattr(traits, name) for name in traits.__struct_fields__}
    yield "parameters " + ", ".join(f"{name} {value}" for name, value in shown.items() if value not in (None, False, 0))
    if begun.generate is not None:
        yield f"seed {begun.generate.sampling.seed}, stop ids {sorted(begun.generate.sampling.stop_ids)}"
    if ended is not None:
        yield (
            f"tokens: prompt {begun.num_prompt_tokens}, reused {ended.num_cached_tokens}, output "
            f"{ended.num_output_tokens}"
        )
        if ended.message:
            yield f"message: {ended.message}"
        yield from _stages(recorded)
    yield from _steps(recorded, steps)


def moment(unix_s: float) -> str:
    """A time of day, to the millisecond."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _stages(recorded: RecordedRequest) -> Iterator[str]:
    assert recorded.ended is not None
    stages = recorded.ended.stages
    if stages is None:
        return
    waited = _ms(stages.arrived_s, stages.started_s)
    prefilled = "-" if stages.started_s is None else _ms(stages.started_s, stages.first_token_s)
    decoded = "-" if stages.first_token_s is None else _ms(stages.first_token_s, stages.ended_s)
    yield (
        f"stages: to the engine {_ms(recorded.begun.at_s, stages.arrived_s)} ms, waited {waited} ms, prompt "
        f"{prefilled} ms, answer {decoded} ms; preempted {stages.num_preemptions} times"
    )


def _steps(recorded: RecordedRequest, steps: Sequence[Stepped]) -> Iterator[str]:
    if not steps:
        yield "steps: not known"
        return
    number = recorded.begun.number
    yield f"steps: {len(steps)}; each with what it computed of this request, and beside it"
    for step in steps[:MAX_STEPS]:
        own = step.num_inputs[step.numbers.index(number)]
        others = [
            f"{f'{recorded.header.run}-{other}' if other else 'unrecorded'}:{num_inputs}"
            for other, num_inputs in zip(step.numbers, step.num_inputs, strict=True)
            if other != number
        ]
        beside = f"; beside {' '.join(others)}" if others else ""
        yield f"  step {step.step_id} ended at {_ms(recorded.begun.at_s, step.ended_s)} ms: {own} tokens{beside}"
    if len(steps) > MAX_STEPS:
        yield f"  and {len(steps) - MAX_STEPS} more"


def _ms(from_s: float, to_s: float | None) -> str:
    return "-" if to_s is None else f"{(to_s - from_s) * 1000:.1f}"
