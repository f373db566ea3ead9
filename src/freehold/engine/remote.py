"""An engine whose core runs in a process of its own: started, fed, watched, started again, and ended from here.

One thread does all of it (`ProcessEngine._supervise`). When the process dies, every request that it had ends with the
code ``engine_died``, and the next process starts at once; requests that come meanwhile are refused with
``engine_restarting``. See docs/decisions/two-processes.md.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Self

from freehold import errors
from freehold.amounts import amount
from freehold.config import EngineConfig
from freehold.engine.child import Child, default_program
from freehold.engine.door import Door
from freehold.engine.handle import EngineHandle, Health
from freehold.engine.ipc import Beat, Ended, Events, FrameError, NotLoaded, Ready, Start
from freehold.engine.watch import Watch
from freehold.errors import EngineError, FreeholdError, ResourceError, UserError
from freehold.logs import LogFormat
from freehold.observe.profile import NotProfiled, Profiled, StartProfile, StopProfile
from freehold.observe.state import EngineState, continued, without_load
from freehold.protocol import Abort, Drain, Generate, StepRows, TokenTexts

TICK_S = 0.25
GRACE_S = 5.0
"""So long past a shutdown's deadline may the process take to end by itself."""
MAX_DEATHS = 5
USEFUL_S = 10.0
"""So many processes in a row that lived shorter than this and finished no request, and the engine gives up."""
MAX_PENDING_BYTES = 16 << 20
"""Requests are refused while so much waits for the process to take it."""

_log = logging.getLogger(__name__)


class ProcessEngine(EngineHandle):
    """An engine in a process of its own.

    It is made in three steps, so that the process can start while its configuration is still being worked out: the
    constructor starts it, `begin` tells it what to load, `wait` returns when it has loaded.

    Args:
        program: the command that runs the process; gets the descriptor as its last argument.
    """

    def __init__(self, *, program: Sequence[str] | None = None) -> None:
        super().__init__()
        self._program = tuple(program or default_program())
        self._start: Start | None = None
        self._child: Child | None = None  # the one that requests go to; None while none is ready
        self._cause = ""  # why there is none, or why the last one ended
        self._fault = ""
        self._refused_start: FreeholdError | None = None
        self._num_deaths = 0  # in a row, of processes that were of no use
        self._ready_at: tuple[float, int] | None = None  # when this process was, and requests finished by then
        self._died_s = 0.0
        self._watch: Watch | None = None  # over the newest process, once it was told what to load
        self._state: EngineState | None = None
        self._past: EngineState | None = None  # what processes that have ended had counted
        self._is_closing = False
        self._is_abandoned = False  # told to shut down, and didn't
        self._wake = threading.Event()  # begin, or shutdown: no reason to sleep on
        self._loaded = threading.Event()  # or failed to
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="engine-supervisor", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, config: EngineConfig, *, log_level: str = "warning", program: Sequence[str] | None = None) -> Self:
        """Start a process and load the model; returns when requests can be answered.

        Raises:
            UserError: as from `wait`.
        """
        self = cls(program=program)
        self.begin(config, log_level)
        self.wait()
        return self

    def begin(self, config: EngineConfig, log_level: str, log_format: LogFormat = "pretty") -> None:
        """Let the process load, without waiting for it. To be called once."""
        self._start = Start(config, log_level, log_format)
        self._wake.set()

    def wait(self) -> None:
        """Wait until the model is loaded.

        Raises:
            UserError: the model can't be found, read or run, or doesn't fit; as if it had been loaded here.
            EngineError: the engine has a fault, or was shut down meanwhile.
        """
        self._loaded.wait()
        if self._refused_start is not None:
            self._closed.wait()
            raise self._refused_start

    @property
    def fault(self) -> str:
        return self._fault

    @property
    def pid(self) -> int | None:
        """Of the process that requests go to, if one is ready."""
        child = self._child
        return child.process.pid if child else None

    def health(self) -> Health:
        # Without the lock, which is held for ever if something hangs: this must be able to say so.
        if refusal := self._refusal():
            return Health(False, str(refusal), refusal.code)
        watch = self._watch
        reason = watch.why_not_healthy() if watch else ""
        return Health(not reason, reason, "engine_stalled")

    def state(self) -> EngineState | None:
        return self._state

    def shutdown(self, deadline_s: float = 0.0) -> None:
        if self.is_forked:
            return
        with self._lock:
            self._is_closing = True
            try:
                self._send(Drain(deadline_s))
            except Exception:
                _log.exception("the engine's process can't be told to drain, and is ended")
                self._is_abandoned = True
        self._wake.set()
        try:
            is_closed = self._closed.wait(deadline_s + GRACE_S)
        except KeyboardInterrupt:
            self.shutdown(0.0)
            raise
        if not is_closed:
            self._is_abandoned = True
            self._closed.wait()

    def _refusal(self) -> EngineError | None:
        if self._fault or self._closed.is_set():
            return EngineError(self._fault or "the engine has stopped", code="engine_stopped")
        if self._is_closing:
            return EngineError("the engine is shutting down and takes no new requests", code="engine_stopping")
        child = self._child
        if child is None:
            return EngineError(self._unready(), code="engine_restarting")
        if child.channel.pending_bytes > MAX_PENDING_BYTES:
            return EngineError("the engine takes no more requests for the moment", code="engine_busy")
        return None

    def _send(self, message: Generate | Abort | Drain | TokenTexts | StartProfile | StopProfile) -> None:
        if self._child is not None:
            self._child.channel.send(message)

    def _unready(self) -> str:
        what = f"{self._cause}; it is being started again" if self._cause else "the model is being loaded"
        hang = self._watch.why_not_healthy() if self._watch else ""
        return f"{what}; {hang}" if hang else what

    # ------------------------------------------------------------------ the supervisor's thread

    def _supervise(self) -> None:
        """From the first process to the end of the last."""
        try:
            while not self._is_closing and not self._fault:
                self._live_and_die()
                if self._refused_start is not None:
                    break
                self._back_off()
        except Exception as error:
            _log.exception("the engine's supervisor failed")
            self._fault = f"the engine's supervisor failed: {type(error).__name__}: {error}"
        finally:
            self._is_closing = True
            self._end_rest("failed", "engine_stopped", self._fault or "the engine has stopped")
            self._loaded_or(
                EngineError(self._fault or "the engine was shut down while it loaded", code="engine_stopped")
            )
            self._closed.set()

    def _live_and_die(self) -> None:
        """One process, from its start to its end."""
        self._ready_at = None
        try:
            child = Child(self._program)
        except OSError as error:
            cause = f"the engine's process can't be started ({error.strerror}; see `ulimit -a`)"
            self._died(cause, ResourceError(cause))
            return
        cause, ended = "", None
        try:
            ended = self._serve(child)
        except EOFError:
            pass  # how it ended tells why
        except FrameError as error:
            cause = f"the engine's process sent what can't be read: {error}"
        except _UnresponsiveError as error:
            cause = str(error)
        except Exception as error:
            _log.exception("the engine's supervisor failed")
            cause = f"the engine's supervisor failed: {type(error).__name__}: {error}"
        watch, self._watch = self._watch, None
        if self._state is not None:
            self._state = self._past = without_load(self._state, time.monotonic())
        with self._lock:
            self._child = None
            self._cause = cause or "the engine's process has ended"
        if cause:
            child.kill()
        end = child.end()
        cause = cause or f"the engine's process {end}"
        if isinstance(ended, NotLoaded):
            self._not_loaded(ended)
        elif isinstance(ended, Ended) and ended.fault:
            self._died(ended.fault, EngineError(ended.fault, code="engine_failed"))
        elif self._is_closing:
            self._end_closed(ended, cause, is_hung=watch is not None and watch.hangs)
        else:
            self._died(cause, child.why_unloaded(cause))

    def _wait_for_begin(self) -> Start:
        """Wait until it is known what to load.

        Raises:
            _UnresponsiveError: nothing will be.
        """
        while self._start is None and not self._is_closing:
            self._wake.wait()
            self._wake.clear()
        if self._start is None:
            raise _UnresponsiveError("the engine was shut down before it loaded")
        return self._start

    def _serve(self, child: Child) -> NotLoaded | Ended:
        """Take what the process sends, up to its last message.

        Raises:
            EOFError, FrameError, _UnresponsiveError: it ended, or must be ended, without one.
            InvariantError: its accounts and ours contradict each other.
        """
        start = self._wait_for_begin()
        child.channel.send(start)
        watch = self._watch = Watch(start.config.stall_timeout_s)
        while True:
            waiting_s = time.monotonic()
            messages = child.channel.receive(TICK_S)
            watch.turn(time.monotonic() - waiting_s, has_heard=bool(messages), num_live=self.num_live)
            for message in messages:
                match message:
                    case Events(events):
                        watch.got_events()
                        self._publish(events)
                    case StepRows():
                        self._step_done(message)
                    case Profiled() | NotProfiled():
                        self._profile_ended(message)
                    case Beat():
                        watch.heard(message)
                        self._take_state(message.state)
                    case Ready():
                        self._ready(child, message)
                    case NotLoaded() | Ended():
                        return message
            if watch.is_idle:
                self.ledger()  # and with it the lock: if someone holds it for ever, the next turn is late
            self._check_alive(watch)

    def _take_state(self, state: EngineState | None) -> None:
        """A heartbeat told how the engine is."""
        if state is not None:
            self._state = state if self._past is None else continued(self._past, state)

    def _check_alive(self, watch: Watch) -> None:
        """
        Raises:
            _UnresponsiveError: the process must be ended.
        """
        is_loading = self._child is None
        if cause := watch.why_to_end_it(is_loading=is_loading):
            raise _UnresponsiveError(cause)
        if self._is_closing and is_loading:
            raise _UnresponsiveError("the engine was shut down while it loaded")
        if self._is_abandoned:
            raise _UnresponsiveError("the engine took too long to shut down and was ended")

    def _ready(self, child: Child, ready: Ready) -> None:
        """Let requests in.

        Raises:
            FrameError: it isn't the same engine as before.
            _UnresponsiveError: nothing is to be let in any more.
        """
        with self._lock:
            if self._is_closing:
                raise _UnresponsiveError("the engine was shut down while it loaded")
            if not self._loaded.is_set():
                assert self._start is not None
                self.info, self._limits = ready.info, ready.limits
                self._door = Door(self._start.config, ready.info)
            elif ready.info.fingerprint != self.info.fingerprint:
                self._fault = (
                    f"the model's files changed while it was served: the fingerprint was {self.info.fingerprint} and "
                    f"is {ready.info.fingerprint}; start the server again"
                )
                raise FrameError(self._fault)
            else:
                self.num_starts += 1
                _log.warning("the engine runs again, %.1f s after it ended", time.monotonic() - self._died_s)
            self._child = child
            self._is_taught = False
            self._ready_at = (time.monotonic(), self._ledger.finished)
        self._loaded.set()

    def _loaded_or(self, error: FreeholdError) -> None:
        """Whoever waits for the first load gets an error, unless it has succeeded or has one already."""
        if not self._loaded.is_set():
            self._refused_start = self._refused_start or error
            self._loaded.set()

    def _not_loaded(self, refused: NotLoaded) -> None:
        kinds = {kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type)}
        kind = kinds.get(refused.kind)
        if self._loaded.is_set():
            cause = f"the engine can't be loaded again: {refused.message}"
            self._died(cause, EngineError(cause, code="engine_died"))
        elif kind is not None and issubclass(kind, UserError):
            self._refused_start = kind(refused.message)
        else:
            message = f"the engine failed while it loaded the model: {refused.message}"
            self._refused_start = EngineError(message, code="engine_failed")

    def _end_closed(self, ended: Ended | None, cause: str, *, is_hung: bool) -> None:
        """What is left at the end of a shutdown."""
        if ended is not None or (self._is_abandoned and not is_hung):
            self._end_rest("cancelled", None, None)
            return
        if self.num_live:
            _log.error("%s; %s with an error", cause, amount(self.num_live, "request ends", "requests end"))
        if self._is_abandoned:
            self._end_rest("failed", "engine_stalled", "the engine hangs and was abandoned at shutdown")
        else:
            self._end_rest("failed", "engine_died", "the engine ended while it worked on this request")

    def _died(self, cause: str, error: FreeholdError) -> None:
        """The process ended without being asked to: end its requests, and decide whether to go on.

        Args:
            error: for those who wait for the first load.
        """
        with self._lock:
            self._died_s = time.monotonic()
            ready_s, num_finished = self._ready_at or (self._died_s, self._ledger.finished)
            was_useful = self._died_s - ready_s > USEFUL_S or self._ledger.finished > num_finished
            self._num_deaths = 0 if was_useful else self._num_deaths + 1
            self._cause = cause
            if self._num_deaths >= MAX_DEATHS and not self._fault:
                self._fault = (
                    f"the engine ended {self._num_deaths} times in a row soon after its start, and isn't started "
                    f"again; the last time: {cause}"
                )
        if not self._loaded.is_set():
            self._refused_start = error
            return
        requests = amount(self.num_live, "request ends", "requests end")
        _log.error("%s; %s with an error", self._fault or cause, requests)
        code = error.code if isinstance(error, EngineError) else "engine_died"
        self._end_rest("failed", code, "the engine ended while it worked on this request; try again")

    def _back_off(self) -> None:
        """The first restart comes at once, more in a row wait, longer each time."""
        if self._num_deaths > 1 and not self._fault:
            end_s = time.monotonic() + 0.25 * 2**self._num_deaths
            while not self._is_closing and (rest_s := end_s - time.monotonic()) > 0:
                self._wake.wait(rest_s)
                self._wake.clear()


class _UnresponsiveError(Exception):
    """The process lives and is of no use."""
