"""Whether the engine in this process moves: told from its progress, and from what the process uses of the machine."""

import resource
import time

from freehold.engine.core import Core
from freehold.engine.ipc import Beat
from freehold.engine.place import Place

STARVED_S = 3.0
"""So long may a busy engine finish no step and use no processor time until it says that it hangs."""

_STARVED_SHARE = 0.02
_SHORTEST_S = 0.5  # a shorter time tells nothing


class Pulse:
    """Makes the heartbeats, at a fixed interval.

    Attributes:
        stage: of loading; written by whoever loads.
        core: None while it is being loaded.
    """

    def __init__(self) -> None:
        self.stage: Place = "start"
        self.core: Core | None = None
        self._still_s = 0.0
        self._cpu_s = 0.0  # of the process, when it last moved
        self._stage_s = time.monotonic()  # when loading last moved
        self._num_read = 0

    def take(self) -> Beat:
        """The engine's state now."""
        return self._loading() if self.core is None else self._running(self.core)

    def _running(self, core: Core) -> Beat:
        place, is_busy, still_s = core.progress.place, core.progress.is_busy, core.still_s()
        if still_s < self._still_s or still_s == 0.0:
            self._cpu_s = time.process_time()
        self._still_s = still_s
        if still_s == 0.0 and not is_busy:
            return Beat(0.0, False, "idle", core.state())
        return Beat(still_s, still_s > STARVED_S and self._is_unused(still_s), place, core.state())

    def _loading(self) -> Beat:
        """Loading has no steps; it moves as long as it uses the processor, or reads."""
        now_s, usage = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
        num_read = usage.ru_majflt + usage.ru_inblock
        still_s = now_s - self._stage_s
        if num_read != self._num_read or not self._is_unused(max(still_s, _SHORTEST_S)):
            self._stage_s, self._cpu_s, self._num_read = now_s, time.process_time(), num_read
            still_s = 0.0
        return Beat(still_s, still_s > STARVED_S, self.stage)

    def _is_unused(self, during_s: float) -> bool:
        return time.process_time() - self._cpu_s < _STARVED_SHARE * during_s
