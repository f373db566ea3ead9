"""What clients saw of each request, and whether that can be: the checker of a nemesis run."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from traffic import FAILING, NAN, Job

from freehold.engine.ledger import Ledger
from freehold.protocol import Event, Finish, Generate, RequestId, Tokens


@dataclass
class Record:
    """One request as its client saw it.

    Attributes:
        refusal: the code it was refused with; empty if it was accepted.
        is_cancelled: its client asked for its end.
        num_late: events after the end.
    """

    job: Job
    refusal: str = ""
    is_cancelled: bool = False
    token_ids: list[int] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    num_logprobs: int = 0
    finish: Finish | None = None
    num_late: int = 0

    def take(self, event: Event) -> None:
        """The next event."""
        self.num_late += self.finish is not None
        if isinstance(event, Tokens):
            self.token_ids += event.token_ids
            self.digests += event.digests
            self.num_logprobs += len(event.logprobs)
        elif isinstance(event, Finish):
            self.finish = event


@dataclass(frozen=True)
class Truth:
    """What requests answer in a run without faults.

    Attributes:
        digests: by request; empty where ids alone are compared.
        allowed: codes of failures that may strike any request of the run.
    """

    ids: Callable[[Generate], Sequence[int]]
    digests: Mapping[RequestId, Sequence[int]] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()


def problems(history: Sequence[Record], truth: Truth, ledger: Ledger) -> list[str]:
    """What can't be, in words; empty if all is well."""
    found = [f"{record.job.generate.request_id}: {what}" for record in history if (what := _problem(record, truth))]
    return found + _unbalanced(history, ledger) + _uncancelled(history)


def summary(history: Sequence[Record]) -> str:
    """How the requests ended, and in which states the cancelled ones were."""
    ends = Counter(_end(record) for record in history)
    struck = Counter(record.job.cancel for record in history if record.is_cancelled)
    states = Counter(_state(record) for record in history if record.is_cancelled)
    return f"{len(history)} requests: {dict(ends)}; cancelled by moment {dict(struck)}, by state {dict(states)}"


def num_cancelled(history: Sequence[Record]) -> int:
    """Requests whose clients asked for their end."""
    return sum(record.is_cancelled for record in history)


def _end(record: Record) -> str:
    if record.refusal:
        return f"refused ({record.refusal})"
    assert record.finish is not None
    return record.finish.code or record.finish.reason


def _state(record: Record) -> str:
    """How far it had come when it was cancelled, as far as its client can tell."""
    if record.finish is None or record.finish.reason != "cancelled":
        return "ended before"
    return "no id yet" if not record.token_ids else "answering"


def _problem(record: Record, truth: Truth) -> str:
    if record.refusal:
        return f"events of a refused request: {record.token_ids}" if record.token_ids or record.finish else ""
    finish, generate = record.finish, record.job.generate
    if finish is None:
        return "never ended"
    if record.num_late:
        return f"{record.num_late} events after its end"
    if finish.num_output_tokens != len(record.token_ids):
        return f"claims {finish.num_output_tokens} ids, {len(record.token_ids)} came"
    if finish.num_prompt_tokens != len(generate.prompt_ids):
        return f"claims {finish.num_prompt_tokens} prompt tokens of {len(generate.prompt_ids)}"
    return _wrong_ids(record, truth) or _wrong_end(record, finish, truth)


def _wrong_ids(record: Record, truth: Truth) -> str:
    generate, num_ids = record.job.generate, len(record.token_ids)
    wanted = list(truth.ids(generate))
    if record.token_ids != wanted[:num_ids]:
        return f"ids {record.token_ids}, not {wanted[:num_ids]}"
    if len(record.digests) != num_ids:
        return f"{len(record.digests)} digests of {num_ids} ids"
    digests = truth.digests.get(generate.request_id)
    if digests is not None and record.digests != list(digests[:num_ids]):
        return "the ids are right, the logits behind them differ"
    if record.num_logprobs != (0 if generate.sampling.num_logprobs is None else num_ids):
        return f"{record.num_logprobs} log probabilities of {num_ids} ids"
    return ""


def _wrong_end(record: Record, finish: Finish, truth: Truth) -> str:
    generate, first_id = record.job.generate, record.job.generate.prompt_ids[0]
    if finish.reason in {"stop", "length"}:
        return "" if finish.num_output_tokens == generate.sampling.max_tokens else "ended before its time"
    if finish.reason == "cancelled":
        return "" if record.is_cancelled else "cancelled by nobody"
    allowed = set(truth.allowed)
    allowed |= {"numeric_error"} if first_id == NAN else {"step_failed"} if first_id == FAILING else set()
    allowed |= {"deadline_exceeded"} if generate.deadline_s is not None else set()
    return "" if finish.code in allowed else f"failed with {finish.code}: {finish.message}"


def _uncancelled(history: Sequence[Record]) -> list[str]:
    """A cancellation right after the request overtakes all but very short answers, or the odd one if the client was
    held up in between."""
    overtaken = [
        record.finish.reason == "length"
        for record in history
        if record.job.cancel == "at once"
        and record.job.generate.sampling.max_tokens >= 20
        and record.finish is not None
        and record.finish.reason in {"length", "cancelled"}
    ]
    if sum(overtaken) > max(1, 0.2 * len(overtaken)):
        return [f"{sum(overtaken)} of {len(overtaken)} requests went on after they were cancelled"]
    return []


def _unbalanced(history: Sequence[Record], ledger: Ledger) -> list[str]:
    """The engine's ledger against what the clients saw."""
    ends = Counter(record.finish.reason for record in history if record.finish is not None)
    num_ids = sum(len(record.token_ids) for record in history)
    num_refused = sum(bool(record.refusal) for record in history)
    seen = Ledger(
        received=len(history),
        refused=num_refused,
        accepted=len(history) - num_refused,
        finished=ends["stop"] + ends["length"],
        cancelled=ends["cancelled"],
        failed=ends["failed"],
        published_ids=num_ids,
        ended_ids=num_ids,
    )
    return [] if seen == ledger else [f"the ledger is {ledger}, clients saw {seen}"]
