"""Files and batches for coroutines: the stores, and the one thread that they live in."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from freehold.errors import EngineError
from freehold.serve.batches.batch_store import BatchStore
from freehold.serve.batches.database import Database
from freehold.serve.batches.file_store import FileStore

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class BatchState:
    """An open folder of files and batches.

    Attributes:
        files, batches: their methods are called through `run`.
    """

    def __init__(self, thread: ThreadPoolExecutor, database: Database, max_stored_bytes: int) -> None:
        """See `open`."""
        self._thread = thread
        self._database = database
        self._is_closed = False
        self.files = FileStore(database, max_total_bytes=max_stored_bytes)
        self.batches = BatchStore(database, self.files)

    @classmethod
    async def open(cls, folder: Path, max_stored_bytes: int) -> "BatchState":
        """Open a folder, making it if there is none, and clear away what a crash has left half-written.

        Raises:
            StateBusyError, StateError: see `Database`.
        """
        thread = ThreadPoolExecutor(1, "batches")
        try:
            database = await asyncio.get_running_loop().run_in_executor(thread, Database, folder)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        state = cls(thread, database, max_stored_bytes)
        await state.run(state.files.remove_partial)
        await state.run(state.files.sweep)
        return state

    async def run(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Do something in the stores' thread.

        Raises:
            EngineError: the server is shutting down; and what the work raises.
        """
        if self._is_closed:
            raise EngineError("the server is shutting down", code="draining")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def close(self) -> None:
        """Let what has begun end, and let go of the folder."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
            self._thread.shutdown(wait=False)
