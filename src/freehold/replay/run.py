"""Ask an engine again for many recorded requests, some at a time, and hand on each answer."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from freehold.engine.handle import EngineHandle
from freehold.errors import EngineError, RequestError
from freehold.observe.record.reader import RecordedRequest
from freehold.protocol import Event, Finish, Generate, PromptLogprobs, Tokens
from freehold.replay.again import again
from freehold.replay.compare import Answer

Timing = Literal["fast", "recorded"]
TIMINGS: dict[str, Timing] = {name: name for name in get_args(Timing)}
OnAnswer = Callable[[RecordedRequest, "Answer | str"], None]
"""Takes the answer to a request, or why there is none. One call at a time, in any thread."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How requests follow one another.

    Attributes:
        timing: as fast as `concurrency` allows, or each as long after the first as it was recorded.
        concurrency: requests that run or wait in the engine at once; with recorded times, any number.
    """

    timing: Timing = "fast"
    concurrency: int = 64


class Repeater:
    """Repeats requests on one engine."""

    def __init__(self, engine: EngineHandle, pace: Pace) -> None:
        self._engine = engine
        self._pace = pace
        self._changed = threading.Condition()
        self._num_running = 0
        self._began_s = time.monotonic()
        self._first_unix_s: float | None = None

    def run(self, requests: Iterable[RecordedRequest], on_answer: OnAnswer) -> None:
        """Repeat the requests; returns when all have been answered. Those that can't be repeated are passed over.

        Raises:
            EngineError: the engine has ended.
        """
        try:
            for recorded in requests:
                generate = again(recorded)
                if isinstance(generate, str):
                    continue
                self._wait_for_turn(recorded)
                self._ask(recorded, generate, on_answer)
        finally:
            with self._changed:
                self._changed.wait_for(lambda: self._num_running == 0)

    def _wait_for_turn(self, recorded: RecordedRequest) -> None:
        if self._pace.timing == "recorded":
            if self._first_unix_s is None:
                self._first_unix_s = recorded.began_unix_s
            due_s = self._began_s + recorded.began_unix_s - self._first_unix_s
            time.sleep(max(0.0, due_s - time.monotonic()))
        with self._changed:
            if self._pace.timing == "fast":
                self._changed.wait_for(lambda: self._num_running < self._pace.concurrency)
            self._num_running += 1

    def _ask(self, recorded: RecordedRequest, generate: Generate, on_answer: OnAnswer) -> None:
        answer = Answer()

        def on_event(event: Event) -> None:
            match event:
                case Tokens():
                    answer.token_ids += event.token_ids
                    answer.digests += event.digests
                    answer.logprobs += event.logprobs
                case PromptLogprobs():
                    answer.prompt_logprobs += event.logprobs
                case Finish():
                    answer.finish = event
                    self._ended(recorded, answer, on_answer)

        try:
            self._engine.submit(generate, on_event)
        except RequestError as error:
            self._ended(recorded, f"it is refused now: {error}", on_answer)
        except EngineError as error:
            self._ended(recorded, f"the engine doesn't take it: {error}", on_answer)
            raise

    def _ended(self, recorded: RecordedRequest, answer: "Answer | str", on_answer: OnAnswer) -> None:
        if isinstance(answer, Answer) and answer.finish is not None and answer.finish.reason in {"failed", "cancelled"}:
            answer = f"it fails now: {answer.finish.message or answer.finish.reason}"
        with self._changed:
            try:
                on_answer(recorded, answer)
            finally:
                self._num_running -= 1
                self._changed.notify_all()
