"""What a request's life leaves behind: a line in the access log, and a line in the ledger of usage."""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from starlette.types import Scope

from freehold.protocol import Finish, FinishReason, RequestId, ServiceClass, Stages
from freehold.serve.recording import Flight
from freehold.text.stream import AnswerEnd, TextResult

if TYPE_CHECKING:
    from freehold.serve.tracing.notes import RequestNotes

RECORD_KEY = "freehold.record"
"""Where a request's scope has its record."""

UNREAD_KEY = "freehold.unread"
"""Where the scope of one that came over a connection has a function that tells how many bytes its client has no room
for."""

WRITE_KEY = "freehold.write"
"""Where the scope of such a request has a function that writes a part of the answer's body, unless it must wait for the
client; it tells whether it did."""

_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_NAME_LENGTH = 60
_NUM_NAMES = 20

CLIENT_LEFT = 499
"""Status in the log of a request whose client left, as nginx writes it."""


@dataclass(slots=True)
class AnswerProgress:
    """One of a request's answers.

    Attributes:
        first_s, last_s: when its first and its newest tokens came; seconds of the monotonic clock. They mean nothing
            while `num_tokens` is 0.
        ended_s: when it was complete.
        end: why it ended by itself; empty before, and if it didn't.
        engine_end: how it ended in the engine; empty before.
    """

    first_s: float = 0.0
    last_s: float = 0.0
    num_tokens: int = 0
    ended_s: float | None = None
    end: AnswerEnd | Literal[""] = ""
    engine_end: FinishReason | Literal[""] = ""


class Watcher:
    """Who wants to know of a request while it runs. What isn't overridden is nothing to him."""

    def saw_tokens(self, record: "Record", answer: AnswerProgress, num_tokens: int, gap_s: float | None) -> None:
        """New tokens of an answer have come, so many seconds after the ones before; None: they are the first."""

    def saw_result(self, record: "Record", answer: AnswerProgress) -> None:
        """An answer has ended by itself."""

    def saw_finish(self, record: "Record", answer: AnswerProgress, finish: Finish) -> None:
        """An answer has ended in the engine; perhaps after the request."""

    def saw_over(self, record: "Record") -> None:
        """None of the answers gets a result any more."""


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
        compiling_s, compiled_s: when compiling of what its answers must be began, and when that was handed on to the
            engine.
        queued_s: when it went into the engine.
        engine_ids: what its answers are called there, by index.
        begun_s: when the engine began to compute any of its answers; known once its first token came.
        held_s: seconds before that in which this answer waited in the engine until its grammar was compiled.
        last_s: when its newest token came.
        stages: of each answer that has ended in the engine.
        ended_s: when its reply was complete or broken off.
        unread_s: how long its client had no room for what was there.
        num_unread_bytes: what there was that its client had no room for, when somebody last looked.
        num_answers: that it asked for.
        count_unread: how many bytes its client has no room for now.
        flight: in the flight recorder; None if it isn't recorded there.
        watchers: are told of what happens to the answers.
        answers: those that the engine took on, by index, from their first token or their end on.
        is_over: none of them gets a result any more.
        prompt_lengths: tokens of each of its prompts.
    """

    def __init__(self, request_id: str, count_unread: Callable[[], int] = no_bytes) -> None:
        self.request_id = request_id
        self.started_s = time.monotonic()
        self.first_s: float | None = None
        self.tokenized_s: float | None = None
        self.compiling_s: float | None = None
        self.compiled_s: float | None = None
        self.queued_s: float | None = None
        self.engine_ids: Sequence[RequestId] = ()
        self.begun_s: float | None = None
        self.held_s = 0.0
        self.last_s: float | None = None
        self.ended_s: float | None = None
        self.stages: list[Stages] = []
        self.unread_s = 0.0
        self.num_unread_bytes = 0
        self.num_answers = 0
        self.is_stream = False
        self.service: ServiceClass = "interactive"
        self.count_unread = count_unread
        self.watchers: tuple[Watcher, ...] = ()
        self.answers: dict[int, AnswerProgress] = {}
        self.is_over = False
        self.status = 0
        self.num_prompt_tokens = 0
        self.prompt_lengths: list[int] = []
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

    def note_tokens(self, index: int, num_tokens: int) -> None:
        """New tokens of one of the answers have come."""
        now_s = time.monotonic()
        answer = self._answer(index)
        gap_s = now_s - answer.last_s if answer.num_tokens else None
        if gap_s is None:
            answer.first_s = now_s
            self.first_s = now_s if self.first_s is None else self.first_s
        answer.last_s = self.last_s = now_s
        answer.num_tokens += num_tokens
        self.num_output_tokens += num_tokens
        for watcher in self.watchers:
            watcher.saw_tokens(self, answer, num_tokens, gap_s)

    def note_result(self, index: int, result: TextResult) -> None:
        """One of the answers has ended by itself."""
        answer = self._answer(index)
        answer.ended_s, answer.end = time.monotonic(), result.finish_reason
        self.finished[answer.end] += 1
        if self.notes is not None:
            self.notes.note_result(index, result)
        for watcher in self.watchers:
            watcher.saw_result(self, answer)

    def note_finish(self, index: int, finish: Finish) -> None:
        """One of the answers has ended in the engine, perhaps after the request: its client may have left."""
        answer = self._answer(index)
        answer.engine_end = finish.reason
        if finish.stages is not None:
            self.stages.append(finish.stages)
        if self.notes is not None:
            self.notes.note_finish(index, finish)
        for watcher in self.watchers:
            watcher.saw_finish(self, answer, finish)

    def note_over(self) -> None:
        """None of the answers gets a result any more."""
        self.is_over = True
        for watcher in self.watchers:
            watcher.saw_over(self)

    def _answer(self, index: int) -> AnswerProgress:
        answer = self.answers.get(index)
        if answer is None:
            answer = self.answers[index] = AnswerProgress()
        return answer

    def note_queued(self, engine_ids: Sequence[RequestId]) -> None:
        """The engine gets its answers."""
        self.queued_s, self.engine_ids = time.monotonic(), engine_ids

    def note_begun(self, begun_s: float, held_s: float) -> None:
        """The engine has begun with one of the answers at that time, which had been held back for its grammar."""
        if self.begun_s is None or begun_s < self.begun_s:
            self.begun_s, self.held_s = begun_s, held_s

    @property
    def is_compiling(self) -> bool:
        """What its answers must be is being compiled on this side of the engine."""
        return self.compiling_s is not None and self.compiled_s is None

    @property
    def compile_s(self) -> float | None:
        """For how long its answers have waited for what they must be, here and in the engine as far as that is known;
        None if they may be anything."""
        if self.compiling_s is None:
            return None
        return (time.monotonic() if self.compiled_s is None else self.compiled_s) - self.compiling_s + self.held_s

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
