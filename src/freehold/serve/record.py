"""What a request's life leaves behind: a line in the access log, and a line in the ledger of usage."""

import time

from starlette.types import Scope

RECORD_KEY = "freehold.record"
"""Where a request's scope has its record."""

CLIENT_LEFT = 499
"""Status in the log of a request whose client left, as nginx writes it."""


class Record:
    """One request's line in the access log, filled in as it is served.

    Attributes:
        started_s: when it arrived; seconds of the monotonic clock, as `first_s`.
        first_s: when the first token of any answer came.
        refusal: code and field of an error that the client can put right.
        key_id: whose it is; empty while no key exists.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.started_s = time.monotonic()
        self.first_s: float | None = None
        self.status = 0
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self.num_cached_tokens = 0
        self.num_reasoning_tokens = 0
        self.outcome = ""
        self.refusal = ""
        self.key_id = ""

    def note_left(self) -> None:
        """The client left before the reply was complete."""
        self.status, self.outcome = CLIENT_LEFT, "cancelled"

    def note_refusal(self, status: int, code: str | None, field: str | None) -> None:
        """It ends in an error. What the server is to blame for is logged where it happened."""
        if status < 500:
            self.refusal = f"{code} field={ascii(field[:60])[1:-1]}" if field else f"{code}"


def record_of(scope: Scope) -> Record:
    """The record that the guard made for a request."""
    record: Record = scope[RECORD_KEY]
    return record
