"""What a request's life leaves behind: a line in the access log, and a line in the ledger of usage."""

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from starlette.types import Scope

from freehold.protocol import Finish, ServiceClass, Stages
from freehold.serve.recording import Flight

if TYPE_CHECKING:
    from freehold.serve.tracing.notes import RequestNotes

RECORD_KEY = "freehold.record"
"""Where a request's scope has its record."""

UNREAD_KEY = "freehold.unread"
"""Where the scope of one that came over a connection has a function that tells how many bytes its client has no room
for."""

_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_NAME_LENGTH = 60
_NUM_NAMES = 20

CLIENT_LEFT = 499
"""Status in the log of a request whose client left, as nginx writes it."""


class Watcher(Protocol):
    """Who wants to know of a request while it runs."""

    def saw_first_token(self, record: "Record") -> None:
        """The first token of any of its answers has come."""
        ...

    def saw_tokens(self, num_tokens: int, gap_s: float | None) -> None:
        """New tokens of an answer have come, so many seconds after the ones before; None: they are the first."""
        ...


class Unwatched:
    """Nobody."""

    def saw_first_token(self, record: "Record") -> None:
        """Nothing follows from it."""

    def saw_tokens(self, num_tokens: int, gap_s: float | None) -> None:
        """Nothing follows from it."""


UNWATCHED = Unwatched()


def no_bytes() -> int:
    """What a client leaves unread that is none: requests from within."""
    return 0


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
        notes: for its trace; None if it isn't traced.
        tokenized_s: when its prompt was known; seconds of the monotonic clock, as all that follow.
        queued_s: when it went into the engine.
        last_s: when its newest token came.
        stages: of each answer that has ended in the engine.
        ended_s: when its reply was complete or broken off.
        unread_s: how long its client had no room for what was there.
        num_unread_bytes: what there was that its client had no room for, when somebody last looked.
        num_answers: that it asked for.
        count_unread: how many bytes its client has no room for now.
        watcher: is told of tokens as they come.
        flight: in the flight recorder; None if it isn't recorded there.
    """

    def __init__(self, request_id: str, count_unread: Callable[[], int] = no_bytes) -> None:
        self.request_id = request_id
        self.started_s = time.monotonic()
        self.first_s: float | None = None
        self.tokenized_s: float | None = None
        self.queued_s: float | None = None
        self.last_s: float | None = None
        self.ended_s: float | None = None
        self.stages: list[Stages] = []
        self.unread_s = 0.0
        self.num_unread_bytes = 0
        self.num_answers = 0
        self.is_stream = False
        self.service: ServiceClass = "interactive"
        self.count_unread = count_unread
        self.watcher: Watcher = UNWATCHED
        self._last_s: dict[int, float] = {}  # by answer
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
        self.flight: Flight | None = None
        self.ignored_fields: list[str] = []
        self.notes: RequestNotes | None = None

    def note_finish(self, index: int, finish: Finish) -> None:
        """One of the answers has ended in the engine, perhaps after the request: its client may have left."""
        if finish.stages is not None:
            self.stages.append(finish.stages)
        if self.notes is not None:
            self.notes.note_finish(index, finish)

    def note_tokens(self, index: int, num_tokens: int) -> None:
        """New tokens of one of the answers have come."""
        now_s = time.monotonic()
        before_s = self._last_s.get(index)
        self._last_s[index] = self.last_s = now_s
        self.num_output_tokens += num_tokens
        if self.first_s is None:
            self.first_s = now_s
            self.watcher.saw_first_token(self)
        self.watcher.saw_tokens(num_tokens, None if before_s is None else now_s - before_s)

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
