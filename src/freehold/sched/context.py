"""A request's ids in memory that a backend reads as they are."""

from array import array
from collections.abc import Sequence

INT32 = "i"


class ContextIds:
    """int32 ids in one buffer that the backend may read while they grow: ids are only ever added, and if the buffer is
    full they move to a new one."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._buffer = array(INT32, ids)
        self._length = len(ids)

    @property
    def buffer(self) -> "array[int]":
        """The ids; entries beyond them mean nothing."""
        return self._buffer

    def append(self, token_id: int) -> None:
        """Add an id at the end."""
        if self._length == len(self._buffer):
            # An array that is being read can't grow.
            self._buffer = self._buffer + array(INT32, bytes(4 * max(16, self._length // 2)))
        self._buffer[self._length] = token_id
        self._length += 1
