"""What the server counts from its start on, for the metrics. Changed by the event loop's thread alone."""

from collections import Counter
from dataclasses import dataclass, field

from freehold.access.keys import KeyId
from freehold.access.usage import Outcome, Usage
from freehold.serve.entrance.record import Record
from freehold.serve.operation.timings import Timings

REJECTIONS = frozenset({
    "queue_full", "rate_limit_exceeded", "insufficient_quota", "draining", "engine_busy", "engine_died",
    "engine_restarting", "engine_stalled", "engine_stopped", "engine_stopping", "invalid_api_key",
})  # fmt: skip
"""Codes of errors that mean that nothing was begun, and that another time or place may do."""


@dataclass(slots=True)
class Counts:
    """Counters. Keys of each are from fixed sets, or ids of keys that exist: what clients make up never becomes one.

    Attributes:
        used: by key and outcome, of requests that are in the ledger of usage.
        rejected: requests by code, of `REJECTIONS`.
        timings: of answers.
    """

    timings: Timings
    used: dict[tuple[KeyId, Outcome], Usage] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)

    def add(self, key_id: KeyId, outcome: Outcome, used: Usage, record: Record) -> None:
        """A request has ended."""
        self.used.setdefault((key_id, outcome), Usage()).add(used)
        if used.prompt_tokens:
            self.timings.saw_used(record.prompt_lengths)

    def add_refusal(self, record: Record) -> None:
        """A request has been refused, perhaps."""
        if record.code in REJECTIONS and record.status >= 400:
            self.rejected[record.code] += 1

    def total(self) -> Usage:
        """Of all keys."""
        total = Usage()
        for used in self.used.values():
            total.add(used)
        return total
