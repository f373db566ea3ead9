"""Conversations that are made when they are asked for: a point of a hundred thousand prompts is never in memory."""

from collections.abc import Callable, Sequence
from typing import overload

from freehold.loadtest.workloads.base import Conversation


class OnDemand(Sequence[Conversation]):
    """A sequence whose items are made anew each time."""

    def __init__(self, num: int, make: Callable[[int], Conversation]) -> None:
        """
        Args:
            make: gives a conversation by its index, the same one each time.
        """
        self._num = num
        self._make = make

    def __len__(self) -> int:
        return self._num

    @overload
    def __getitem__(self, index: int) -> Conversation: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Conversation]: ...

    def __getitem__(self, index: int | slice) -> Conversation | Sequence[Conversation]:
        chosen = range(self._num)[index]
        if isinstance(chosen, int):
            return self._make(chosen)
        return OnDemand(len(chosen), lambda number: self._make(chosen[number]))
