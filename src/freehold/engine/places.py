"""Places that an engine keeps for requests that belong together."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from freehold.engine.door import Door
from freehold.protocol import Generate, RequestId


class Places:
    """Places kept until the context is left and the requests have ended. Made by `EngineHandle.reserve`.

    Args:
        num_places: that the door keeps already.
        refusing: holds the engine's lock; counts so many requests as refused if they are.
    """

    def __init__(self, door: Door, num_places: int, refusing: Callable[[int], AbstractContextManager[None]]) -> None:
        self._door = door
        self._num_kept = num_places
        self._refusing = refusing
        self._let_in: list[RequestId] = []

    def fill(self, generates: Sequence[Generate]) -> None:
        """Let the requests in, as many as there are places: from here on `EngineHandle.submit` finds no queue full.

        Raises:
            EngineError: ``queue_full``; none of them is in, and no place is kept any more.
        """
        with self._refusing(len(generates)):
            self._door.give_up(self._num_kept)
            self._num_kept = 0
            self._door.let_in(generates)
            self._let_in = [generate.request_id for generate in generates]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._refusing(0):
            self._door.give_up(self._num_kept)
            self._num_kept = 0
            self._door.leave(self._let_in)
            self._let_in = []
