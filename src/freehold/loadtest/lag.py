"""Whether the load tester itself keeps up."""

import asyncio
from collections import deque
from time import perf_counter

PERIOD_S = 0.01
_MOST = 100_000  # a quarter of an hour, and then the latest


class LagMonitor:
    """Notes how late the event loop is: by as much, timestamps may be late.

    Attributes:
        lags_s: one for each `PERIOD_S`, the time that the loop was late included.
    """

    def __init__(self) -> None:
        self.lags_s: deque[float] = deque(maxlen=_MOST)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            due_s = perf_counter() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            late_s = perf_counter() - due_s
            # A loop that stood still for a second missed a hundred looks, each of them later than the next.
            for _ in range(min(int(late_s / PERIOD_S), _MOST) + 1):
                self.lags_s.append(max(late_s, 0.0))
                late_s -= PERIOD_S
