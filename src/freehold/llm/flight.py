"""Many answers side by side, a bounded number at a time."""

import queue
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

from freehold.engine.handle import EngineHandle
from freehold.errors import EngineError
from freehold.llm.completion import Answer, Completion
from freehold.protocol import Event, RequestId

LOOK_AHEAD = 4
"""In order, so many times what may run may be taken from the source ahead of the answer that is due."""
RETRY_S = 0.05
_PASSING = frozenset({"engine_busy", "engine_restarting", "queue_full"})
"""Codes of refusals that a little patience overcomes."""

OnEnd = Callable[[Answer, Completion], None]


class Flight:
    """Takes answers from a source as there is room, runs them, and yields what they become.

    What the source has as completions already is passed on. Nothing runs ahead of whoever reads: the source is asked,
    and events are taken in, only while the next completion is waited for.
    """

    def __init__(
        self,
        engine: EngineHandle,
        source: Iterator[Answer | Completion],
        *,
        most: int,
        in_order: bool,
        on_end: OnEnd,
    ) -> None:
        """
        Args:
            most: answers that may run at the same time.
            in_order: give completions in the source's order; else as they end.
            on_end: called with each completion that was computed, before it is given out.
        """
        self._engine = engine
        self._source = source
        self._most = most
        self._in_order = in_order
        self._on_end = on_end
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._running: dict[RequestId, tuple[int, Answer]] = {}
        self._ended: dict[int, Completion] = {}  # by place in the source, to be given out
        self._num_taken = 0
        self._num_given = 0
        self._is_exhausted = False
        self._refused: Answer | None = None  # taken, and to be offered to the engine again

    def completions(self) -> Generator[Completion, None, None]:
        """All completions. Leaving the iteration early ends what runs.

        Raises:
            EngineError: the engine takes no more requests.
        """
        try:
            while True:
                # What has arrived goes first, since the source may take its time; but only that, or a fast engine would
                # keep us from filling it.
                for _ in range(self._events.qsize()):
                    self._take(self._events.get_nowait())
                while (completion := self._next_ended()) is not None:
                    self._num_given += 1
                    yield completion
                if self._has_room():
                    self._start_one()
                elif self._running or self._refused is not None:
                    self._wait()
                else:
                    return
        finally:
            for request_id in self._running:
                self._engine.abort(request_id)

    def _next_ended(self) -> Completion | None:
        if not self._in_order:
            return self._ended.pop(next(iter(self._ended)), None) if self._ended else None
        return self._ended.pop(self._num_given, None)

    def _wait(self) -> None:
        """Take in the next event, or offer the engine again what it refused."""
        self._engine.check_process()  # may have been forked between two steps
        with suppress(queue.Empty):
            self._take(self._events.get(timeout=None if self._refused is None else RETRY_S))
        if self._refused is not None:
            self._submit(self._refused)

    def _has_room(self) -> bool:
        num_ahead = self._num_taken - self._num_given
        return (
            not self._is_exhausted
            and self._refused is None
            and len(self._running) < self._most
            and num_ahead < LOOK_AHEAD * self._most
        )

    def _start_one(self) -> None:
        answer = next(self._source, None)
        if answer is None:
            self._is_exhausted = True
            return
        self._num_taken += 1
        if isinstance(answer, Completion):
            self._ended[self._num_taken - 1] = answer
        else:
            self._submit(answer)

    def _submit(self, answer: Answer) -> None:
        """Start the answer that was taken last, unless the engine has no room either."""
        self._refused = None
        try:
            self._engine.submit(answer.job.generate, self._events.put)
        except EngineError as error:
            if error.code not in _PASSING:
                raise
            self._refused = answer
        else:
            self._running[answer.job.generate.request_id] = self._num_taken - 1, answer

    def _take(self, event: Event) -> None:
        place, answer = self._running[event.request_id]
        completion = answer.take(event).completion
        if completion is not None:
            del self._running[event.request_id]
            self._on_end(answer, completion)
            self._ended[place] = completion
        elif answer.job.text.stopped:
            self._engine.abort(event.request_id)
