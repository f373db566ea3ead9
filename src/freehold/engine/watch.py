"""What the supervisor knows of the engine's process, and of itself: who is silent or still, since when, and where."""

import time

from freehold.engine.ipc import Beat
from freehold.engine.place import LOADING

SILENT_S = 3.0
"""So long without a word from the process, or without a turn of the supervisor, and the engine isn't healthy."""
DEAD_S = 10.0
"""So long without a word, and the process is ended and started again."""
LONGEST_TICK_S = 0.5
"""A turn of the supervisor that took longer counts as this: the machine was suspended, and nobody is to blame."""

_UNKNOWN = Beat(0.0, False, "start")


class Watch:
    """Over one process, from its start to its end. Written by the supervisor, read by anyone.

    Args:
        stall_timeout_s: so long may the process not get on before it is ended.
    """

    def __init__(self, stall_timeout_s: float) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._silent_s = 0.0
        self._lost_s = 0.0
        self._beat = _UNKNOWN
        self._turned_s = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """The process says that it has nothing to do."""
        return self._beat.place == "idle"

    def turn(self, waited_s: float, *, has_heard: bool, num_live: int) -> None:
        """The supervisor has waited for messages once more. Silence is counted in its own turns.

        Args:
            num_live: requests that have not ended.
        """
        waited_s = min(waited_s, LONGEST_TICK_S)
        self._turned_s = time.monotonic()
        self._silent_s = 0.0 if has_heard else self._silent_s + waited_s
        self._lost_s = self._lost_s + waited_s if self.is_idle and num_live else 0.0

    def heard(self, beat: Beat) -> None:
        """A heartbeat came."""
        self._beat = beat

    def got_events(self) -> None:
        """Events of requests came, so none can be said to be lost."""
        self._lost_s = 0.0

    def why_not_healthy(self) -> str:
        """What hangs, in words; empty if nothing does. Any thread may ask."""
        unturned_s = time.monotonic() - self._turned_s
        if unturned_s >= SILENT_S:
            return f"the engine's supervisor has been held up for {unturned_s:.0f} s"
        if self._silent_s >= SILENT_S:
            return f"the engine's process has said nothing for {self._silent_s:.0f} s"
        if self._beat.is_starved or self._beat.still_s > self._stall_timeout_s:
            return _still(self._beat)
        if self._lost_s >= SILENT_S:
            return f"the engine's process is idle, but for {self._lost_s:.0f} s requests have not reached it"
        return ""

    def why_to_end_it(self, *, is_loading: bool) -> str:
        """Why the process must be ended, in words; empty if it may go on."""
        if self._silent_s >= (max(DEAD_S, self._stall_timeout_s) if is_loading else DEAD_S):
            return f"the engine's process said nothing for {self._silent_s:.0f} s and was ended"
        if self._beat.still_s > self._stall_timeout_s:
            return f"{_still(self._beat)} and was ended"
        if self._lost_s > self._stall_timeout_s:
            return f"requests did not reach the engine's process for {self._lost_s:.0f} s and it was ended"
        return ""

    @property
    def hangs(self) -> bool:
        """The process is silent, or says that it hangs."""
        return self._silent_s >= SILENT_S or self._beat.is_starved


def _still(beat: Beat) -> str:
    if beat.place in LOADING:
        return f"the engine has not moved for {beat.still_s:.0f} s while it loads (at: {beat.place})"
    return f"the engine is busy but has finished no step for {beat.still_s:.0f} s (at: {beat.place})"
