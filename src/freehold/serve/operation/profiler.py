"""Profiles of a serving engine: one after the other all the time, and those that clients ask for in between."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from freehold.engine.aio import AsyncEngine, ProfileRun
from freehold.errors import EngineError
from freehold.observe.profile import StepProfile
from freehold.observe.tally import Tally
from freehold.serve.failure import HttpError

CHUNK_STEPS = 256
"""Steps of one of those that are taken all the time."""

_RETRY_S = 1.0
_PATIENCE_S = 60.0
"""So long may an engine take to end a profile: it finishes the step that runs."""
_LAST_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A profile of the next steps: at most so many, and those of so many seconds."""

    max_steps: int
    max_spans: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a client wants, and waits for. It has left if `answer` is cancelled."""

    wanted: Wanted
    answer: "asyncio.Future[StepProfile]"


class Profiler:
    """Takes the profiles of one engine. All of it runs in the event loop's thread."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._tally: Tally | None = None
        self._asked: _Asked | None = None
        self._is_closing = False
        self._changed = asyncio.Event()  # a client came or left, or the server is closing
        self._task: asyncio.Task[None] | None = None

    @property
    def tally(self) -> Tally | None:
        """All steps that were profiled; None before the first profile has ended."""
        return self._tally

    def start(self) -> None:
        """Profile from now on."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the profile that runs, and take no more. Who waits for it gets what it has."""
        self._is_closing = True
        self._changed.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_LAST_S)
            self._task.cancel()

    async def profile(self, wanted: Wanted) -> StepProfile:
        """Take a profile now. Cancelled, it ends early.

        Raises:
            HttpError: 409 if another client's is being taken.
            EngineError: the engine can't be profiled now, or the server is shutting down.
        """
        if self._is_closing:
            raise EngineError("the server is shutting down", code="draining")
        if self._asked is not None:
            raise HttpError(409, "a profile is being taken; try again when it has ended", code="profile_running")
        asked = self._asked = _Asked(wanted, asyncio.get_running_loop().create_future())
        self._changed.set()
        try:
            return await asked.answer
        finally:
            asked.answer.cancel()
            self._changed.set()

    async def _run(self) -> None:
        while not self._is_closing:
            asked = self._asked
            self._changed.clear()
            try:
                profile = await self._take(asked)
                await asyncio.to_thread(self._count, profile)
            except EngineError as error:
                self._settle(asked, error)
                if asked is None:
                    await self._pause()
            except Exception as error:
                _log.exception("a profile failed")
                self._settle(asked, error)
                await self._pause()
            else:
                self._settle(asked, profile)
        self._settle(self._asked, EngineError("the server is shutting down", code="draining"))

    async def _take(self, asked: _Asked | None) -> StepProfile:
        """One profile: what a client asked for, or the next steps until one does.

        Raises:
            EngineError: there is none.
        """
        if asked is None:
            run = self._engine.start_profile(CHUNK_STEPS, 0)
        else:
            run = self._engine.start_profile(asked.wanted.max_steps, asked.wanted.max_spans)
        try:
            await self._until_enough(run, asked)
        finally:
            run.stop()
        try:
            return await asyncio.wait_for(asyncio.shield(run.ended), _PATIENCE_S)
        except TimeoutError:
            raise EngineError("the engine hangs and gives no profile", code="engine_stalled") from None

    async def _until_enough(self, run: ProfileRun, asked: _Asked | None) -> None:
        """Wait until a profile has ended, or shall."""
        loop = asyncio.get_running_loop()
        end_s = None if asked is None else loop.time() + asked.wanted.seconds
        while not run.ended.done() and not self._is_closing:
            if self._asked is not asked or (asked is not None and asked.answer.done()):
                return
            rest_s = None if end_s is None else end_s - loop.time()
            if rest_s is not None and rest_s <= 0:
                return
            changed = asyncio.ensure_future(self._changed.wait())
            either: list[asyncio.Future[Any]] = [run.ended, changed]
            await asyncio.wait(either, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            self._changed.clear()

    async def _pause(self) -> None:
        """Before the next try."""
        try:
            await asyncio.wait_for(self._changed.wait(), _RETRY_S)
        except TimeoutError:
            return

    def _count(self, profile: StepProfile) -> None:
        if self._tally is None:
            self._tally = Tally(profile)
        else:
            self._tally.add(profile)

    def _settle(self, asked: _Asked | None, end: StepProfile | Exception) -> None:
        """Answer the client, if one asked and is still there."""
        if asked is None:
            return
        self._asked = None
        if asked.answer.done():
            return
        if isinstance(end, Exception):
            asked.answer.set_exception(end)
        else:
            asked.answer.set_result(end)
