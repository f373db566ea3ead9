"""What every engine is to those who use it, wherever its core runs: admission, receivers, the ledger."""

import itertools
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from freehold.engine.door import Door
from freehold.engine.ledger import Ledger
from freehold.engine.places import Places
from freehold.errors import EngineError, RequestError
from freehold.kv.check import InvariantError
from freehold.observe.profile import Profiled, ProfileEnd, ProfileId, StartProfile, StepProfile, StopProfile
from freehold.observe.state import EngineState
from freehold.protocol import (
    Abort,
    EngineInfo,
    Event,
    Finish,
    FinishReason,
    Generate,
    RequestId,
    StepRows,
    Tokens,
    TokenTexts,
)
from freehold.sched.admission import Limits, check

OnEvent = Callable[[Event], None]
OnStep = Callable[[StepRows], None]
OnProfileEnd = Callable[[StepProfile | EngineError], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the engine can generate now, and if not, why: for people, and as the code of an `EngineError`."""

    ok: bool
    reason: str = ""
    code: str = "engine_stopped"


@dataclass(slots=True)
class _Live:
    """An accepted request that has not ended."""

    num_prompt: int
    on_event: OnEvent
    num_output: int = 0


@dataclass(frozen=True, slots=True)
class _AwaitedProfile:
    """A profile that has not ended."""

    profile_id: ProfileId
    on_end: OnProfileEnd


class EngineHandle(ABC):
    """One model, served by one core. All methods may be called from any thread.

    Attributes:
        info: what the engine decided at start-up.
        num_starts: how often it has become ready; with each, all that was cached is gone.
        on_step: gets what is told of steps because of `Generate.steps`. Called in a thread of the engine's: it must
            return quickly.
    """

    info: EngineInfo
    num_starts: int
    _limits: Limits
    _door: Door

    def __init__(self) -> None:
        self.on_step: OnStep = lambda _rows: None
        self.num_starts = 1
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._live: dict[RequestId, _Live] = {}
        self._ledger = Ledger()
        self._texts: TokenTexts | None = None
        self._is_taught = False  # the core has them
        self._profile: _AwaitedProfile | None = None
        self._profile_numbers = itertools.count()

    @property
    @abstractmethod
    def fault(self) -> str:
        """Why the engine has ended for good, in words; empty unless it failed beyond repair."""

    @abstractmethod
    def health(self) -> Health:
        """Whether requests can be answered now. Never waits."""

    @abstractmethod
    def state(self) -> EngineState | None:
        """The newest snapshot that the engine gave, a heartbeat or a step old; None before the first. Never waits.

        Totals never fall: where one engine took another's place they go on, without what that one did after its last
        heartbeat."""

    @abstractmethod
    def shutdown(self, deadline_s: float = 0.0) -> None:
        """Refuse new requests, let accepted ones finish for `deadline_s` seconds, cancel the rest, stop.

        Returns when every request has had its `Finish`. A second call, with a shorter deadline, overrules the first,
        and so does Ctrl-C: it cancels at once, and is raised again when the core has ended.
        """

    @abstractmethod
    def _refusal(self) -> EngineError | None:
        """Why nothing can be accepted now. Called with the lock held."""

    @abstractmethod
    def _send(self, message: Generate | Abort | TokenTexts | StartProfile | StopProfile) -> None:
        """Pass a message on to the core. Called with the lock held; never blocks."""

    @property
    def is_forked(self) -> bool:
        """This is a copy that `os.fork` made: none of the engine's threads came along, and locks may be held forever.
        Nothing may be asked of it."""
        return os.getpid() != self._owner_pid

    def check_process(self) -> None:
        """Refuse to work in a fork's child.

        Raises:
            EngineError: ``forked``.
        """
        if self.is_forked:
            raise EngineError(
                f"the model was loaded by process {self._owner_pid}, and this is a fork of it, process {os.getpid()}, "
                "where it can't run; load it after the fork, or start processes with the method 'spawn'",
                code="forked",
            )

    def check(self, generate: Generate) -> None:
        """Refuse what can never be served, without submitting it.

        Raises:
            RequestError: as from `submit`.
        """
        check(generate, self._limits)

    def submit(self, generate: Generate, on_event: OnEvent) -> None:
        """Accept a request, or refuse it at once.

        Args:
            on_event: gets the request's `Tokens` and, last and exactly once, its `Finish`. Called in a thread of the
                engine's: it must return quickly. If it raises, the request is aborted.

        Raises:
            RequestError: the request can never be served; nothing will be called.
            EngineError: the engine takes no requests now: it is shutting down (``engine_stopping``), has ended
                (``engine_stopped``), is starting again after a crash (``engine_restarting``), takes no more for the
                moment (``engine_busy``, ``queue_full``), or is another process's (``forked``).
        """
        self.check_process()
        with self._lock:
            self._ledger.received += 1
            try:
                self._admit(generate)
                self._enter(generate)
            except Exception:
                self._ledger.refused += 1
                raise
            self._ledger.accepted += 1
            self._live[generate.request_id] = _Live(len(generate.prompt_ids), on_event)

    def teach(self, texts: TokenTexts) -> None:
        """Say what the tokens write. To be called before the first request with a grammar is submitted; once is enough,
        whatever becomes of the core."""
        with self._lock:
            self._texts = self._texts or texts

    def reserve(self, num_requests: int) -> Places:
        """Keep places for requests that belong together and are still being prepared, so that all of them get in, or
        none.

        Raises:
            EngineError: as from `submit`.
        """
        self.check_process()
        with self._refusing(num_requests):
            if refusal := self._refusal():
                raise refusal
            self._door.keep(num_requests)
        return Places(self._door, num_requests, self._refusing)

    def abort(self, request_id: RequestId) -> None:
        """End a request early, in whatever state it is; its `Finish` still comes. Unknown and ended ids are ignored.

        In a fork's child it does nothing, and neither does `shutdown`: both run there when the interpreter ends.
        """
        if self.is_forked:
            return
        with self._lock:
            if request_id in self._live:
                self._send(Abort(request_id))

    def start_profile(self, max_steps: int, max_spans: int, on_end: OnProfileEnd) -> ProfileId:
        """Profile the next steps, one profile at a time.

        Args:
            max_steps, max_spans: as in `StartProfile`.
            on_end: gets the profile when it has ended, or why there is none, exactly once. Called in a thread of the
                engine's: it must return quickly.

        Raises:
            EngineError: one runs already (``profile_running``), or as from `submit`.
        """
        self.check_process()
        with self._lock:
            if refusal := self._refusal():
                raise refusal
            if self._profile is not None:
                raise EngineError("a profile is being taken; try again when it has ended", code="profile_running")
            profile_id = ProfileId(next(self._profile_numbers))
            self._send(StartProfile(profile_id, max_steps, max_spans))
            self._profile = _AwaitedProfile(profile_id, on_end)
        return profile_id

    def stop_profile(self, profile_id: ProfileId) -> None:
        """Let a profile end now, with the steps that it has. One that has ended is left alone."""
        if self.is_forked:
            return
        with self._lock:
            if self._profile is not None and self._profile.profile_id == profile_id:
                self._send(StopProfile(profile_id))

    def ledger(self) -> Ledger:
        """A copy of the counts, after checking that they balance.

        Raises:
            InvariantError: they don't.
        """
        with self._lock:
            self._ledger.check(len(self._live), sum(live.num_output for live in self._live.values()))
            return replace(self._ledger)

    @property
    def max_num_queued_reqs(self) -> int | None:
        """Requests that may wait beyond those that run in one step; None: any number."""
        return self._door.limits.max_reqs

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens that one step may compute."""
        return self._limits.max_num_batched_tokens

    @property
    def num_live(self) -> int:
        """Accepted requests that have not ended."""
        return len(self._live)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _profile_ended(self, end: ProfileEnd) -> None:
        """Pass a profile on."""
        what = end.profile if isinstance(end, Profiled) else EngineError(end.message, code=end.code)
        self._settle_profile(what, end.profile_id)

    def _settle_profile(self, what: StepProfile | EngineError, profile_id: ProfileId | None = None) -> None:
        """End the profile that runs, whichever it is if no id is given."""
        with self._lock:
            awaited = self._profile
            if awaited is None or profile_id not in {None, awaited.profile_id}:
                return
            self._profile = None
        try:
            awaited.on_end(what)
        except Exception:
            _log.exception("the receiver of a profile failed")

    def _step_done(self, rows: StepRows) -> None:
        """Pass on what is told of a step."""
        try:
            self.on_step(rows)
        except Exception:
            _log.exception("the receiver of steps failed")

    def _enter(self, generate: Generate) -> None:
        self._door.submit(generate)
        try:
            if generate.grammar is not None and self._texts is not None and not self._is_taught:
                self._send(self._texts)
                self._is_taught = True
            self._send(generate)
        except Exception:
            self._door.turn_back(generate)
            raise

    @contextmanager
    def _refusing(self, num_requests: int) -> Iterator[None]:
        """Hold the lock, and count requests that are refused before they are submitted."""
        with self._lock:
            try:
                yield
            except EngineError:
                self._ledger.received += num_requests
                self._ledger.refused += num_requests
                raise

    def _admit(self, generate: Generate) -> None:
        if refusal := self._refusal():
            raise refusal
        if generate.request_id in self._live:
            raise RequestError(f"a request with id {generate.request_id!r} is running", code="duplicate_request_id")
        if generate.grammar is not None and self._texts is None:
            raise RequestError("a grammar needs the tokens' texts, and `teach` hasn't been called", param="grammar")
        self.check(generate)

    def _end_rest(self, reason: FinishReason, code: str | None, message: str | None) -> None:
        """End what the core can no longer end. `_refusal` must have a reason by now, or more may come in meanwhile."""
        with self._lock:
            rest = [
                Finish(
                    request_id=request_id,
                    reason=reason,
                    num_prompt_tokens=live.num_prompt,
                    num_output_tokens=live.num_output,
                    code=code,
                    message=message,
                )
                for request_id, live in self._live.items()
            ]
        self._publish(rest)
        self._settle_profile(EngineError(message or "the engine has stopped", code=code or "engine_stopped"))

    def _publish(self, events: Sequence[Event]) -> None:
        """Pass events on. The first `Finish` of a request is its last event, whoever sends it.

        Raises:
            InvariantError: a request claims to have had more or fewer ids than were passed on. All was passed on.
        """
        calls: list[tuple[OnEvent, Event]] = []
        lost = ""
        with self._lock:
            for event in events:
                live = self._live.get(event.request_id)
                if live is None:
                    continue
                self._door.take(event)
                if isinstance(event, Finish):
                    del self._live[event.request_id]
                    self._ledger.count_end(event.reason, live.num_output)
                    if event.num_output_tokens != live.num_output:
                        lost = f"of {event.num_output_tokens} ids of request {event.request_id} {live.num_output} came"
                elif isinstance(event, Tokens):
                    live.num_output += len(event.token_ids)
                    self._ledger.published_ids += len(event.token_ids)
                calls.append((live.on_event, event))
        for on_event, event in calls:
            try:
                on_event(event)
            except Exception:
                _log.exception("the receiver of request %s failed; the request is aborted", event.request_id)
                self.abort(event.request_id)
        if lost:
            raise InvariantError(lost)
