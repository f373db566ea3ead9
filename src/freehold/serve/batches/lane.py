"""The lane of batches: all that have not ended, side by side, with a bounded number of requests between them."""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from freehold.config import ServeConfig
from freehold.errors import StateError
from freehold.serve.batches.database import StateBusyError
from freehold.serve.batches.run import BatchRun, Means
from freehold.serve.batches.state import BatchState
from freehold.serve.failure import HttpError

SWEEP_S = 3600.0
"""Between two looks for files that have expired."""
BUSY_S = 0.5
"""Between two tries to open the folder while another server has it."""
RESUME_S = 30.0
"""Before a batch is taken up again that a fault of ours has stopped."""

_log = logging.getLogger(__name__)


class BatchLane:
    """Opens the folder when the server has started, takes up what an earlier one has left, and runs what comes."""

    def __init__(self, folder: Path, config: ServeConfig) -> None:
        self._folder = folder
        self._config = config
        self._state: BatchState | None = None
        self._why_not = "files and batches are still being opened"
        self._runs: dict[str, BatchRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._means: Means | None = None

    @property
    def state(self) -> BatchState:
        """The open folder.

        Raises:
            HttpError: 503, it isn't.
        """
        if self._state is None:
            raise HttpError(503, self._why_not, code="batches_unavailable")
        return self._state

    def start(self, app: ASGIApp) -> None:
        """Begin.

        Args:
            app: answers the lines: the gate and what is behind it.
        """
        self._spawn(self._open(app))

    async def stop(self) -> None:
        """End what runs, to be taken up by the next server. A second call does nothing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._state is not None:
            await self._state.close()

    def launch(self, owner: str, batch_id: str) -> None:
        """Run a batch that has been accepted."""
        self._spawn(self._run(owner, batch_id))

    def cancel(self, batch_id: str) -> None:
        """A batch has become ``cancelling``."""
        if (run := self._runs.get(batch_id)) is not None:
            run.cancel()

    async def _open(self, app: ASGIApp) -> None:
        while self._state is None:
            try:
                state = await BatchState.open(self._folder, self._config.max_stored_bytes)
                left = await state.run(state.batches.live)  # before clients can add to them
                self._state = state
            except StateBusyError as error:
                if self._why_not != str(error):
                    self._why_not = str(error)
                    _log.warning("no files and batches: %s", error)
                await asyncio.sleep(BUSY_S)
            except StateError as error:
                self._why_not = str(error)
                _log.error("no files and batches: %s", error)
                return
        places = asyncio.Semaphore(self._config.max_num_batch_reqs)
        self._means = Means(self._state, app, places, self._config.max_body_bytes)
        for batch_id, owner in left:
            self.launch(owner, batch_id)
        while True:
            await asyncio.sleep(SWEEP_S)
            await self._means.keep(self._state.files.sweep)

    async def _run(self, owner: str, batch_id: str) -> None:
        assert self._means is not None
        while True:
            run = self._runs[batch_id] = BatchRun(self._means, owner, batch_id)
            try:
                await run.run()
            except Exception:
                _log.exception("%s stopped by a fault; it is taken up again in %g s", batch_id, RESUME_S)
                await asyncio.sleep(RESUME_S)
            else:
                break
            finally:
                del self._runs[batch_id]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
