"""The engine as others see it: start it, submit requests, receive events, ask how it is, shut it down.

`Engine` runs the core in a thread of this process; `freehold.engine.remote.ProcessEngine` runs it in a process of its
own. All that crosses are the messages of `freehold.protocol`.
"""

import logging
import threading
from typing import Self

from freehold.backends.script import Scripts
from freehold.config import EngineConfig
from freehold.engine.core import Core
from freehold.engine.door import Door
from freehold.engine.handle import EngineHandle, Health
from freehold.engine.start import load
from freehold.errors import EngineError
from freehold.observe.profile import StartProfile, StopProfile
from freehold.observe.state import EngineState
from freehold.protocol import Abort, Drain, FinishReason, Generate, TokenTexts

_log = logging.getLogger(__name__)


class Engine(EngineHandle):
    """An engine whose core runs in a thread of this process."""

    def __init__(self, config: EngineConfig, *, scripts: Scripts | None = None) -> None:
        """Load and start; see `start`."""
        super().__init__()
        self._stall_timeout_s = config.stall_timeout_s
        self._is_closing = False
        self._is_ended = False
        self._closed = threading.Event()  # waited for instead of the thread: CPython's join forgets a thread on Ctrl-C
        loaded = load(
            config, scripts=scripts, publish=self._publish, on_profile=self._profile_ended, on_step=self._step_done
        )
        self.info = loaded.info
        self._limits = loaded.limits
        self._door = Door(config, loaded.info)
        self._core: Core = loaded.core
        self._thread = threading.Thread(target=self._run, name="engine-core", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, config: EngineConfig, *, scripts: Scripts | None = None) -> Self:
        """Load the model and start the core; returns when requests can be answered.

        Args:
            scripts: what the ``scripted`` backend answers; other backends ignore it.

        Raises:
            UserError: the model can't be found, read or run, or it doesn't fit; says which setting would help.
        """
        return cls(config, scripts=scripts)

    @property
    def fault(self) -> str:
        return self._core.progress.fault

    def health(self) -> Health:
        progress = self._core.progress
        if progress.fault:
            return Health(False, progress.fault)
        if self._is_ended:
            return Health(False, "the engine has stopped")
        if self._is_closing:
            return Health(False, "the engine is shutting down")
        if (still_s := self._core.still_s()) > self._stall_timeout_s:
            reason = f"the engine is busy but has finished no step for {still_s:.0f} s (at: {progress.place})"
            return Health(False, reason, "engine_stalled")
        return Health(True)

    def state(self) -> EngineState:
        return self._core.state()

    def shutdown(self, deadline_s: float = 0.0) -> None:
        if self.is_forked:
            return
        with self._lock:
            self._is_closing = True
            self._core.inbox.put(Drain(deadline_s))
        try:
            is_closed = self._closed.wait(deadline_s + self._stall_timeout_s)
        except KeyboardInterrupt:
            # Native code can't be broken off, and must not find the interpreter gone when it returns.
            self._core.inbox.put(Drain(0.0))
            self._closed.wait(self._stall_timeout_s)
            raise
        if not is_closed:
            self._end("failed", "engine_stalled", "the engine hangs and was abandoned at shutdown")

    def _refusal(self) -> EngineError | None:
        if self._is_ended:
            return EngineError(self._core.progress.fault or "the engine has stopped", code="engine_stopped")
        if self._is_closing:
            return EngineError("the engine is shutting down and takes no new requests", code="engine_stopping")
        return None

    def _send(self, message: Generate | Abort | TokenTexts | StartProfile | StopProfile) -> None:
        self._core.inbox.put(message)

    def _run(self) -> None:
        """The core's thread, from first to last. Whoever waits is told before the backend is closed, which may take
        long or fail where it is broken."""
        try:
            self._core.run()
        finally:
            if self._core.progress.fault:
                self._end("failed", "engine_failed", "the engine failed while it worked on this request")
            else:
                self._end("cancelled", None, None)
            try:
                self._core.close()
            except Exception:
                _log.exception("the backend failed to close")
            finally:
                self._closed.set()

    def _end(self, reason: FinishReason, code: str | None, message: str | None) -> None:
        """Accept no more, and end what is left."""
        with self._lock:
            self._is_ended = True
        self._end_rest(reason, code, message)
