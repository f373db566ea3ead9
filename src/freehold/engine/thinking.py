"""The matcher that ends a model's reasoning when it has taken enough tokens."""

from collections.abc import Sequence
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from freehold.protocol import ThinkingLimit

_ALL = np.uint32(0xFFFFFFFF)


class _State(Enum):
    BEFORE = auto()
    THINKING = auto()
    AFTER = auto()


class ThinkingMatcher:
    """Allows everything but more reasoning than the limit says: then the id that ends it is the only one."""

    def __init__(self, limit: ThinkingLimit) -> None:
        self._limit = limit
        self._state = _State.THINKING if limit.begin_id is None else _State.BEFORE
        self._num_left = limit.max_tokens

    def fill(self, masks: NDArray[np.uint32], drafts: Sequence[int]) -> None:
        """See `freehold.engine.masks.Matcher`."""
        now = self._state, self._num_left
        for index, mask in enumerate(masks):
            if self._state is _State.THINKING and self._num_left == 0:
                mask[self._limit.end_id // 32] = np.uint32(1 << self._limit.end_id % 32)
            else:
                mask[:] = _ALL
            if index < len(drafts):
                self.accept(drafts[index])
        self._state, self._num_left = now

    def accept(self, token_id: int) -> None:
        """This id came next."""
        if self._state is _State.BEFORE and token_id == self._limit.begin_id:
            self._state = _State.THINKING
        elif self._state is _State.THINKING:
            if token_id == self._limit.end_id:
                self._state = _State.AFTER
            else:
                self._num_left = max(0, self._num_left - 1)
