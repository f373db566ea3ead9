"""Puts a load on a server: who starts when, and who waits for whom."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from freehold.errors import ConfigError
from freehold.loadtest.arrivals import start_times
from freehold.loadtest.asking import Asker, Place
from freehold.loadtest.dialogue import Dialogue
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load
from freehold.loadtest.workloads.base import Conversation, Turn

OnRecord = Callable[[RequestRecord], None]


class Traffic:
    """The conversations of one measurement.

    Intended starts don't depend on how fast the server answers, unless the load is a closed loop: there, a conversation
    is meant to start when its slot became free. Turns after the first are meant to start a pause after the one before.

    Attributes:
        num_in_flight: requests that are being asked.
        num_waiting: requests whose time has come and that wait for a slot.
        num_unasked: turns that will not be asked, since one before them failed.
    """

    def __init__(self, load: Load, asker: Asker, on_record: OnRecord, prefix: str) -> None:
        """
        Args:
            on_record: called with each request as it ends.
            prefix: of the ids of requests.
        """
        self.num_in_flight = 0
        self.num_waiting = 0
        self.num_unasked = 0
        self._load = load
        self._asker = asker
        self._on_record = on_record
        self._prefix = prefix
        self._slots = asyncio.Semaphore(load.max_concurrency or sys.maxsize)

    async def run(self, conversations: Sequence[Conversation], seed: int) -> None:
        """Ask all of them. If it is cancelled, what is in flight is hung up on.

        Args:
            seed: of the gaps between starts.

        Raises:
            ConfigError: the load is a trace, and a conversation has no start.
        """
        if self._load.kind == "closed":
            queue = iter(enumerate(conversations))
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(self._load.concurrency or 1, len(conversations))):
                    tasks.create_task(self._work(queue))
            return
        starts = sorted(enumerate(self._starts(conversations, seed)), key=lambda each: each[1])
        async with asyncio.TaskGroup() as tasks:
            for index, start_s in starts:
                await self._sleep_until(start_s)
                tasks.create_task(self._converse(index, conversations[index], start_s))

    def _starts(self, conversations: Sequence[Conversation], seed: int) -> list[float]:
        if self._load.kind == "open":
            return start_times(self._load, len(conversations), seed)
        starts = [each.start_s for each in conversations if each.start_s is not None]
        if len(starts) < len(conversations):
            raise ConfigError("this data set has no times of its own; give --request-rate or --max-concurrency")
        return starts

    async def _work(self, queue: Iterator[tuple[int, Conversation]]) -> None:
        """A slot of a closed loop."""
        free_s = 0.0
        for index, conversation in queue:
            free_s = await self._converse(index, conversation, free_s)

    async def _converse(self, index: int, conversation: Conversation, intended_s: float) -> float:
        """Ask the turns one after the other. Returns when the last one ended."""
        dialogue = self._asker.dialogue(conversation)
        for number, turn in enumerate(conversation.turns):
            intended_s += turn.pause_s
            await self._sleep_until(intended_s)
            place = Place(f"{self._prefix}-{index}-{number}", index, number, intended_s, self.now_s())
            record = await self._ask(dialogue, turn, place)
            self._on_record(record)
            intended_s = record.ended_s
            if not record.succeeded:
                self.num_unasked += len(conversation.turns) - number - 1
                break
        return intended_s

    async def _ask(self, dialogue: Dialogue, turn: Turn, place: Place) -> RequestRecord:
        """Ask a turn as soon as there is a slot."""
        self.num_waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.num_waiting -= 1
        self.num_in_flight += 1
        try:
            return await self._asker.ask(dialogue, turn, place)
        finally:
            self.num_in_flight -= 1
            self._slots.release()

    async def _sleep_until(self, moment_s: float) -> None:
        if (rest_s := moment_s - self.now_s()) > 0:
            await asyncio.sleep(rest_s)

    def now_s(self) -> float:
        """Seconds since the measurement began."""
        return perf_counter() - self._asker.origin_s
