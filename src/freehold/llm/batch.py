"""One batch: answers from a source, less those that its journal holds, with a progress bar."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

from freehold.engine.handle import EngineHandle
from freehold.llm.completion import Answer, Completion
from freehold.llm.flight import Flight
from freehold.llm.journal import Journal
from freehold.llm.progress import progress_bar

STEPS_AHEAD = 2
"""Twice as many answers run as a step holds: the next ones stand ready when some end."""


@dataclass(frozen=True, slots=True)
class Batch:
    """How a batch is run.

    Attributes:
        journal: open; closed when the batch has ended.
        total: completions to come, None if nobody knows.
        shows_progress: on a terminal.
    """

    journal: Journal | None
    total: int | None
    shows_progress: bool
    in_order: bool

    def run(self, engine: EngineHandle, source: Iterator[Answer | Completion]) -> Iterator[Completion]:
        """All completions. Leaving the iteration early ends what runs.

        Raises:
            JournalError, EngineError; and what the source raises.
        """
        with ExitStack() as held:
            if self.journal is not None:
                held.callback(self.journal.close)
            advance = held.enter_context(progress_bar(self.total, wanted=self.shows_progress))
            flight = Flight(
                engine,
                map(self._find, source),
                most=STEPS_AHEAD * engine.info.max_num_seqs,
                in_order=self.in_order,
                on_end=self._record,
            )
            for completion in held.enter_context(closing(flight.completions())):
                advance(completion)
                yield completion

    def _find(self, answer: Answer | Completion) -> Answer | Completion:
        """What the journal holds in an answer's place."""
        if self.journal is None or isinstance(answer, Completion):
            return answer
        return self.journal.find(answer) or answer

    def _record(self, answer: Answer, completion: Completion) -> None:
        if self.journal is not None:
            self.journal.add(answer, completion)
