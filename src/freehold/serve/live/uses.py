"""What keys used within the last minutes: requests that ended, and their tokens."""

from collections import Counter, deque
from typing import Literal

from freehold.access.keys import KeyId
from freehold.access.usage import Usage

Kind = Literal["requests", "prompt_tokens", "cached_tokens", "output_tokens"]
KINDS: tuple[Kind, ...] = ("requests", "prompt_tokens", "cached_tokens", "output_tokens")

NUM_SLOTS = 12


class SlidingUse:
    """Of the last `window_s` seconds; what is older is forgotten in `NUM_SLOTS` steps.

    Attributes:
        total: by key and kind; what isn't there is 0.
    """

    def __init__(self, window_s: int) -> None:
        self.total: Counter[tuple[KeyId, Kind]] = Counter()
        self._slot_s = window_s // NUM_SLOTS
        self._slots: deque[Counter[tuple[KeyId, Kind]]] = deque([Counter()])
        self._age_s = 0  # of the newest slot

    @property
    def keys(self) -> set[KeyId]:
        """Those that had requests."""
        return {key_id for key_id, _ in self.total}

    def add(self, key_id: KeyId, used: Usage) -> None:
        """A request of a key has ended."""
        use = {(key_id, kind): number for kind in KINDS if (number := getattr(used, kind))}
        self._slots[-1].update(use)
        self.total.update(use)

    def pass_second(self) -> None:
        """A second is over."""
        self._age_s += 1
        if self._age_s < self._slot_s:
            return
        self._age_s = 0
        self._slots.append(Counter())
        if len(self._slots) > NUM_SLOTS:
            self.total -= self._slots.popleft()  # and what is 0 then is gone
