"""What a request's life leaves behind: a line in the access log, and a line in the ledger of usage."""

import re
import time
from collections import Counter

from starlette.types import Scope

RECORD_KEY = "freehold.record"
"""Where a request's scope has its record."""

_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_NAME_LENGTH = 60
_NUM_NAMES = 20

CLIENT_LEFT = 499
"""Status in the log of a request whose client left, as nginx writes it."""


class Record:
    """One request's line in the access log, filled in as it is served.

    Attributes:
        started_s: when it arrived; seconds of the monotonic clock, as `first_s`.
        first_s: when the first token of any answer came.
        finished: answers by the reason that they ended for.
        failure: code of an error after the answer had begun.
        code: of an error that the request was answered with.
        ignored_fields: of the body, as clients spelled them; what was asked for there is not done.
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
        self.finished: Counter[str] = Counter()
        self.failure = ""
        self.has_left = False
        self.code = ""
        self.refusal = ""
        self.key_id = ""
        self.ignored_fields: list[str] = []

    @property
    def outcome(self) -> str:
        """How it ended, in a word or two: ``stop,length``, ``cancelled``, ``failed:numeric_error``."""
        if self.has_left:
            return "cancelled"
        return f"failed:{self.failure}" if self.failure else ",".join(self.finished)

    @property
    def ignored(self) -> str:
        """Names of ignored fields as they may stand in a header: some, and nothing that is no name."""
        names = sorted({_NO_NAME.sub("?", name[:_NAME_LENGTH]) for name in self.ignored_fields})
        return ", ".join(names[:_NUM_NAMES]) + (", ..." if len(names) > _NUM_NAMES else "")

    def note_left(self) -> None:
        """The client left before the reply was complete."""
        self.status, self.has_left = CLIENT_LEFT, True

    def note_refusal(self, status: int, code: str | None, field: str | None) -> None:
        """It ends in an error. What the server is to blame for is logged where it happened."""
        self.code = code or ""
        if status < 500:
            self.refusal = f"{code} field={ascii(field[:60])[1:-1]}" if field else f"{code}"


def record_of(scope: Scope) -> Record:
    """The record that the guard made for a request."""
    record: Record = scope[RECORD_KEY]
    return record
