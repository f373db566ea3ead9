"""Requests by the moment at which they must have ended."""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from freehold.sched.request import Request, Status


class _Entry(NamedTuple):
    at_s: float
    number: int  # makes entries differ
    request: Request


class Deadlines:
    """A heap. Requests that end in time stay in it for a while, but never make up more than half of it."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._num_added = 0
        self._num_ended = 0

    def __len__(self) -> int:
        """Requests that have a deadline and have not ended."""
        return len(self._heap) - self._num_ended

    @property
    def num_entries(self) -> int:
        """Entries of the heap, those of ended requests included."""
        return len(self._heap)

    def add(self, request: Request, at_s: float) -> None:
        """Watch a request."""
        heappush(self._heap, _Entry(at_s, self._num_added, request))
        self._num_added += 1

    def ended(self) -> None:
        """One of the watched requests has ended."""
        self._num_ended += 1
        if 2 * self._num_ended > len(self._heap):
            self._heap = [entry for entry in self._heap if entry.request.status is not Status.ENDED]
            heapify(self._heap)
            self._num_ended = 0

    def overdue(self, now_s: float) -> Request | None:
        """A request whose time is up and that has not ended; None if there is none. It must be ended before the next
        call."""
        while self._heap and self._heap[0].at_s <= now_s:
            request = self._heap[0].request
            if request.status is not Status.ENDED:
                return request
            heappop(self._heap)
            self._num_ended -= 1
        return None
