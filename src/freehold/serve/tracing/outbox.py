"""What is to be sent, on its way to a thread that sends it. Whoever puts something in never waits."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Room:
    """How much there may be."""

    max_items: int
    max_bytes: int

    def has(self, num_items: int, num_bytes: int) -> bool:
        """Whether so much may be."""
        return num_items <= self.max_items and num_bytes <= self.max_bytes


class Outbox(Generic[T]):
    """A bounded queue with a thread at its end. What it has no room for is given up, and counted."""

    def __init__(self, send: Callable[[Sequence[T]], int], *, room: Room, batch: Room, linger_s: float) -> None:
        """
        Args:
            send: called in the thread, with some of what waits; returns how many of these items were lost. It may
                block, and must not raise.
            room: what may wait.
            batch: what one call of `send` may get; but one item always.
            linger_s: so long the first item waits for others.
        """
        self._send = send
        self._room, self._batch, self._linger_s = room, batch, linger_s
        self._changed = threading.Condition()
        self._waiting: deque[tuple[T, int]] = deque()
        self._num_bytes = 0
        self._is_closing = False
        self._num_lost = 0
        self._num_in_hand = 0
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def num_lost(self) -> int:
        """Items that had no room, that couldn't be sent, or that were left at the end."""
        return self._num_lost

    def put(self, item: T, num_bytes: int) -> None:
        """Let it be sent, if there is room.

        Args:
            num_bytes: about what it takes in memory, beyond a few hundred.
        """
        with self._changed:
            if self._is_closing or not self._room.has(len(self._waiting) + 1, self._num_bytes + num_bytes):
                self._num_lost += 1
                return
            self._waiting.append((item, num_bytes))
            self._num_bytes += num_bytes
            if len(self._waiting) == 1 or self._is_batch_full:  # the thread waits for these alone
                self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Send what waits, for so long. What is left then is lost."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        with self._changed:
            self._is_abandoned = True  # what is in hand is counted now, and not when it comes back
            self._num_lost += len(self._waiting) + self._num_in_hand
            self._waiting.clear()

    def _run(self) -> None:
        while batch := self._next():
            num_lost = self._send(batch)
            with self._changed:
                self._num_in_hand = 0
                if not self._is_abandoned:
                    self._num_lost += num_lost

    def _next(self) -> list[T]:
        """What to send now; nothing if it is closed and empty."""
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            until_s = time.monotonic() + self._linger_s
            while not self._is_batch_full and not self._is_closing:
                if not self._changed.wait(until_s - time.monotonic()):
                    break
            taken: list[T] = []
            num_bytes = 0
            while self._waiting and (not taken or self._batch.has(len(taken) + 1, num_bytes + self._waiting[0][1])):
                item, item_bytes = self._waiting.popleft()
                taken.append(item)
                num_bytes += item_bytes
            self._num_bytes -= num_bytes
            self._num_in_hand = len(taken)
            return taken

    @property
    def _is_batch_full(self) -> bool:
        return not self._batch.has(len(self._waiting) + 1, self._num_bytes)
