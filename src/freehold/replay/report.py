"""What a replay found: counts, the differences with their causes, and how it reads."""

import time
from collections.abc import Iterable, Iterator

import msgspec

from freehold.amounts import amount
from freehold.observe.record.format import Header
from freehold.observe.record.reader import RecordedRequest, Recording
from freehold.protocol import EngineInfo
from freehold.replay.again import again
from freehold.replay.cause import NONDETERMINISM, Change, changes, likely_cause
from freehold.replay.compare import Answer, Difference, Side, compare

MAX_LISTED = 100
"""Differences that a report names. All are counted."""


class Differing(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose answer is another now.

    Attributes:
        failure: why there is no answer now, in words; empty if there is one.
    """

    record_id: str
    request_id: str
    cause: str
    difference: Difference | None = None
    failure: str = ""

    @property
    def is_unexplained(self) -> bool:
        """Nothing that fixes tokens is another now."""
        return self.cause == NONDETERMINISM

    def __str__(self) -> str:
        head = f"request {self.record_id} ({self.request_id})"
        if self.difference is None:
            return f"{head}: {self.failure}"
        found = self.difference
        where = "position" if found.in_prompt else "token"
        sides = f"recorded {_side(found.recorded, found)}, now {_side(found.repeated, found)}"
        return f"{head}: first difference at {where} {found.position}: {sides}; {_order(found)}"


class RunReport(msgspec.Struct, frozen=True):
    """One run of the recorded server, and what isn't as it was."""

    run: int
    fingerprint: str
    changes: list[Change]


class Report(msgspec.Struct, kw_only=True):
    """A replay's result, as ``--report`` writes it.

    Attributes:
        num_compared: requests; of those, `num_same` had the same ids, and every digest and log probability that was
            recorded; `num_partial` had been broken off and were compared up to there.
        num_tokens: ids compared.
        failed: of the recorded requests, those that had failed, by code.
        skipped: requests that couldn't be compared, by why.
        num_cached_recorded, num_cached_now: tokens of prompts that were reused.
        num_preemptions_recorded, num_preemptions_now: times that blocks were taken away.
    """

    recording: str
    fingerprint: str
    runs: list[RunReport]
    num_requests: int = 0
    num_compared: int = 0
    num_same: int = 0
    num_partial: int = 0
    num_tokens: int = 0
    num_differing: int = 0
    num_cached_recorded: int = 0
    num_cached_now: int = 0
    num_preemptions_recorded: int = 0
    num_preemptions_now: int = 0
    failed: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    differing: list[Differing] = msgspec.field(default_factory=list)
    bisections: list[str] = msgspec.field(default_factory=list)
    duration_s: float = 0.0


class Comparison:
    """Compares answers with what was recorded, as they come.

    Args:
        tokenizer: hash of what the tokens of the engine's model write.
    """

    def __init__(self, recording: Recording, info: EngineInfo, tokenizer: str) -> None:
        self._info = info
        self._tokenizer = tokenizer
        self._began_s = time.monotonic()
        self.report = Report(
            recording=str(recording.path),
            fingerprint=info.fingerprint,
            runs=[RunReport(each.run, each.info.fingerprint, self._changes(each)) for each in recording.headers],
        )

    def counted(self, requests: Iterable[RecordedRequest]) -> Iterator[RecordedRequest]:
        """The same requests; counts them, and those that can't be compared."""
        for recorded in requests:
            self.report.num_requests += 1
            if recorded.ended is not None and recorded.outcome == "failed":
                _count(self.report.failed, recorded.ended.code or "unknown")
            generate = again(recorded)
            if isinstance(generate, str):
                _count(self.report.skipped, generate)
            yield recorded

    def take(self, recorded: RecordedRequest, answer: Answer | str) -> None:
        """A request was answered, or why it wasn't."""
        report, ended = self.report, recorded.ended
        assert ended is not None
        report.num_compared += 1
        report.num_partial += ended.outcome != "finished"
        report.num_tokens += len(ended.token_ids)
        report.num_cached_recorded += ended.num_cached_tokens
        report.num_preemptions_recorded += ended.stages.num_preemptions if ended.stages else 0
        difference = None if isinstance(answer, str) else compare(ended, answer)
        if isinstance(answer, Answer) and answer.finish is not None:
            report.num_cached_now += answer.finish.num_cached_tokens
            report.num_preemptions_now += answer.finish.stages.num_preemptions if answer.finish.stages else 0
        if difference is None and not isinstance(answer, str):
            report.num_same += 1
            return
        report.num_differing += 1
        if len(report.differing) < MAX_LISTED:
            report.differing.append(
                Differing(
                    record_id=recorded.record_id,
                    request_id=recorded.begun.request_id,
                    cause=self.cause(recorded),
                    difference=difference,
                    failure=answer if isinstance(answer, str) else "",
                )
            )

    def cause(self, recorded: RecordedRequest) -> str:
        """Why a request's answer may be another now."""
        generate = recorded.begun.generate
        has_grammar = generate is not None and generate.grammar is not None
        return likely_cause(self._changes(recorded.header), has_grammar=has_grammar)

    def close(self) -> Report:
        """The report, once all is compared."""
        self.report.duration_s = time.monotonic() - self._began_s
        self.report.differing.sort(key=lambda each: [int(part) for part in each.record_id.split("-")])
        return self.report

    def _changes(self, header: Header) -> list[Change]:
        return changes(header, self._info.identity, self._tokenizer)


def lines(report: Report) -> Iterator[str]:
    """The report for people."""
    for run in report.runs:
        what = "; ".join(map(str, run.changes)) or "all as now"
        yield f"run {run.run}: recorded with {run.fingerprint}, replayed with {report.fingerprint}: {what}"
    partial = ""
    if report.num_partial:
        were = "it was" if report.num_partial == 1 else "they were"
        partial = f", {amount(report.num_partial, 'request')} up to where {were} broken off"
    yield (
        f"{amount(report.num_requests, 'request')}: {report.num_compared} compared "
        f"({amount(report.num_tokens, 'token')}{partial}) in {report.duration_s:.1f} s"
    )
    if report.skipped:
        yield f"not compared: {_counts(report.skipped)}"
    if report.failed:
        yield f"had failed when recorded: {_counts(report.failed)}"
    yield (
        f"reused prompt tokens {report.num_cached_recorded} then, {report.num_cached_now} now; preemptions "
        f"{report.num_preemptions_recorded} then, {report.num_preemptions_now} now"
    )
    if not report.num_differing:
        yield "no differences: every id, log probability and digest of logits is the same"
        return
    first = report.differing[0]
    differ = "1 request differs" if report.num_differing == 1 else f"{report.num_differing} requests differ"
    yield f"{differ}; the first: {first}"
    yield f"likely cause: {first.cause}"
    for differing in report.differing[1:10]:
        yield f"also {differing}"
    yield from report.bisections


def _order(found: Difference) -> str:
    if found.in_prompt:
        return "log probabilities of the prompt differ"
    if found.id_at is None:
        return "all ids are the same, and the logits behind them are not"
    if found.logits_at is None:
        return f"ids differ at {found.id_at}, and no logits were recorded or differ: what was sampled from them does"
    if found.logits_at < found.id_at:
        return f"the logits differ from token {found.logits_at} on, ids from token {found.id_at} on"
    if found.logits_at > found.id_at:
        return f"the same logits gave other ids at token {found.id_at}"
    return f"logits and ids differ from token {found.id_at} on"


def _side(side: Side, found: Difference) -> str:
    score = "" if side.logprob is None else f"log probability {side.logprob!r}"
    if found.in_prompt:
        return score or "none"
    what = "its end" if side.token_id is None else f"id {side.token_id}"
    return f"{what} ({score})" if score else what


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
