"""Threads for work on text: short texts never wait behind long ones, and long ones take turns."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from freehold.grammar.compiler import NUM_WORKERS

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LONG_BYTES = 64 << 10
"""From here on a text is long: some 50 ms of tokenizing."""
INSTANT_BYTES = 256
"""Up to here a text is tokenized sooner than another thread has taken it up."""
_NUM_SHORT_THREADS = 8


class TextLanes:
    """Two lanes for texts; the one for long texts has a single thread, so that they take one core at most. And one for
    what is compiled in other processes, where threads only wait."""

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(_NUM_SHORT_THREADS, "text")
        self._long = ThreadPoolExecutor(1, "long-text")
        self._compiling = ThreadPoolExecutor(NUM_WORKERS, "compile")

    async def run(self, num_bytes: int, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Do the work in the lane for so many bytes. Cancelled before its turn, it isn't done at all."""
        lane = self._long if num_bytes >= LONG_BYTES else self._short
        return await asyncio.get_running_loop().run_in_executor(lane, work, *arguments)

    async def compile(self, work: Callable[[], T]) -> T:
        """Wait for a compiler. Cancelled before its turn, it isn't asked at all."""
        return await asyncio.get_running_loop().run_in_executor(self._compiling, work)

    def close(self) -> None:
        """Drop what waits."""
        for lane in (self._short, self._long, self._compiling):
            lane.shutdown(wait=False, cancel_futures=True)
