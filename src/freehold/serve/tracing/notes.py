"""What is noted of a traced request while it is served: moments and numbers, and texts only if the owner wants them.

Written in the event loop at the price of a few assignments. Once the request has ended, another thread makes spans of
it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from freehold.protocol import Finish
from freehold.serve.schema import Message
from freehold.serve.toolcalls.schema import Tool
from freehold.text.jobs import Job
from freehold.text.parts import Message as Said
from freehold.text.stream import TextResult

Attributes = dict[str, Any]
"""Of a span, by the names in `freehold.observe.genai`: texts, numbers, and lists of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks for.

    Attributes:
        attributes: its parameters.
        user, session, conversation: whom it is for and what it belongs to, if it says so; empty if not.
        tags: as clients of Langfuse send them.
        messages, tools: what the model is told. None unless content is wanted.
        is_system_apart: its surface has the first message, if that is the system's, apart from the others.
        num_bytes: of its body.
        understood_s: when its body was read and checked. From then on, its text is made into ids.
    """

    attributes: Attributes
    user: str = ""
    session: str = ""
    conversation: str = ""
    tags: tuple[str, ...] = ()
    messages: Sequence[Message] | None = None
    tools: Sequence[Tool] | None = None
    is_system_apart: bool = False
    num_bytes: int = 0
    understood_s: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class AnswerNotes:
    """One answer.

    Attributes:
        finish: how it ended in the engine, and when it went from stage to stage; None as long as that isn't known.
        reason: why it ended, as the client is told; empty if it wasn't completed.
        num_pinned: tokens of its prompt that were asked to stay cached.
        said: what it says; None unless content is wanted.
    """

    finish: Finish | None = None
    reason: str = ""
    num_calls: int = 0
    num_pinned: int = 0
    said: Said | None = None


@dataclass(slots=True, kw_only=True)
class RequestNotes:
    """One request. Moments are seconds of the monotonic clock.

    Attributes:
        place: whatever the tracer knows of where it stands.
        operation: what is done, by the conventions' name.
        unix_s: what makes a moment Unix time.
        asked: None if that was never understood.
        answers: by index, once the engine has been given them.
        ended_s: when its last byte was sent, or it was known that nobody reads on.
        on_complete: called once all is known that the engine tells of its answers, if that is after the request's end.
    """

    place: Any
    trace_id: str
    operation: str
    with_content: bool
    began_s: float
    unix_s: float
    asked: Asked | None = None
    response_id: str = ""
    answers: list[AnswerNotes] = field(default_factory=list)
    ended_s: float | None = None
    on_complete: Callable[[], None] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the engine has told of all answers."""
        return all(answer.finish is not None for answer in self.answers)

    def note_jobs(self, jobs: Sequence[Job]) -> None:
        """The engine gets these."""
        self.answers = [AnswerNotes(num_pinned=_num_pinned(job)) for job in jobs]

    def note_finish(self, index: int, finish: Finish) -> None:
        """An answer has ended in the engine."""
        self.answers[index].finish = finish
        if self.on_complete is not None and self.is_complete:
            self.on_complete()

    def note_result(self, index: int, result: TextResult) -> None:
        """An answer is complete."""
        answer = self.answers[index]
        answer.reason, answer.num_calls = result.finish_reason, len(result.message.calls)
        if self.with_content:
            answer.said = result.message


def _num_pinned(job: Job) -> int:
    pin = job.generate.pin
    if pin is None:
        return 0
    return len(job.generate.prompt_ids) if pin.num_tokens is None else pin.num_tokens
