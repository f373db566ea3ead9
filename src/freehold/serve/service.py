"""What every surface of the server shares: the engine, the model's text side, the limits, and who may enter."""

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from freehold.access.gatekeeper import Gatekeeper
from freehold.config import ServeConfig
from freehold.engine.aio import AsyncEngine
from freehold.engine.places import Places
from freehold.errors import EngineError, RequestError
from freehold.files.vocabulary import TextAssets
from freehold.grammar.compiler import GrammarCompiler
from freehold.protocol import EngineInfo
from freehold.serve.batches.lane import BatchLane
from freehold.serve.chat.dialect import Dialect
from freehold.serve.entrance.caller import Caller
from freehold.serve.failure import HttpError
from freehold.serve.lanes import TextLanes
from freehold.serve.live.board import Board
from freehold.serve.operation.counts import Counts
from freehold.serve.operation.profiler import Profiler
from freehold.serve.recording import FlightRecorder
from freehold.serve.tracing.tracing import Tracing
from freehold.text.params import check_may_fit

MAX_ANSWERS = 128
"""Answers that one request may ask for: prompts times `n`."""


@dataclass(slots=True)
class Load:
    """How much is going on. Changed by the event loop's thread alone.

    Attributes:
        num_answers: answers that were let in and have not ended.
        is_draining: no more are let in; the server is on its way down.
        why_cold: tells what is still to be done before the server calls itself ready, in words; empty if nothing is.
            Requests are answered all the same.
    """

    num_answers: int = 0
    is_draining: bool = False
    why_cold: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class Service:
    """One served model.

    Attributes:
        grammars: turns constraints on answers into grammars.
        dialect: how the model writes reasoning and calls of tools.
        profiler: None if steps aren't profiled.
        batches: None if nothing is kept on disk.
        tracing: None if requests aren't traced.
        recording: the flight recorder; None if it has no folder.
        created: when the server started, in Unix seconds.
        gatekeeper: who may enter.
        board: what the server sees of itself.
    """

    engine: AsyncEngine
    text: TextAssets
    config: ServeConfig
    grammars: GrammarCompiler
    dialect: Dialect
    gatekeeper: Gatekeeper
    counts: Counts
    board: Board
    profiler: Profiler | None = None
    batches: BatchLane | None = None
    tracing: Tracing | None = None
    recording: FlightRecorder | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    load: Load = field(default_factory=Load)
    lanes: TextLanes = field(default_factory=TextLanes)

    @property
    def info(self) -> EngineInfo:
        """What the engine decided at start-up."""
        return self.engine.engine.info

    @property
    def batch_lane(self) -> BatchLane:
        """Where files and batches are.

        Raises:
            HttpError: 404, the server has none.
        """
        if self.batches is None:
            raise HttpError(404, "this server keeps no files; it needs a --state-dir", code="no_state_dir")
        return self.batches

    @property
    def max_answers(self) -> int | None:
        """Answers that may be in the engine at once, running and waiting; None: as many as come."""
        max_queued = self.engine.engine.max_num_queued_reqs
        return None if max_queued is None else self.info.max_num_seqs + max_queued

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names of the served model, the one that answers bear first."""
        return (self.config.served_model_name, *self.config.model_aliases)

    def check_model(self, name: str | None, caller: Caller) -> None:
        """Refuse a name that isn't the served model's, and a key that isn't for it; without a name it is meant.

        Raises:
            HttpError: 404 with the name that is served; 403.
        """
        names = self.model_names
        if name is not None and name not in names:
            raise HttpError(
                404,
                f"there is no model {name[:200]!r} here; {' and '.join(map(repr, names))} is served",
                code="model_not_found",
                param="model",
            )
        wanted = names if name is None else (name,)
        if not any(map(caller.scope.allows_model, wanted)):
            raise HttpError(403, f"this key isn't for the model {wanted[0]!r}", code="model_not_allowed", param="model")

    def check_may_fit(self, text: str, param: str, *, least_room: int = 1) -> None:
        """Refuse a text that can't fit into the context, before any work is put into it.

        Args:
            least_room: tokens that an answer must be able to have.

        Raises:
            RequestError: it is too long however it is tokenized.
        """
        max_model_len = self.info.max_model_len
        if 4 * len(text) >= max_model_len:  # else it fits; the bound takes a moment to work out, when first asked for
            min_tokens = self.text.tokenizer.min_tokens(text)
            check_may_fit(min_tokens, max_model_len, param=param, least_room=least_room)

    def not_ready(self) -> EngineError | None:
        """Why answers can't be generated now; None if they can. Never waits."""
        if self.load.is_draining:
            return EngineError("the server is shutting down", code="draining")
        health = self.engine.engine.health()
        return None if health.ok else EngineError(health.reason, code=health.code)

    def enter(self, num_answers: int, held: ExitStack[None]) -> Places:
        """Let a request in until `held` is left.

        Returns:
            Places for its answers in the engine's queue, to be filled when their prompts are known.

        Raises:
            RequestError: it asks for more answers than ever find room, so that coming again can't help.
            EngineError: the server is shutting down, the engine can't generate, or its queue is full.
        """
        if self.max_answers is not None and num_answers > self.max_answers:
            raise RequestError(
                f"the request asks for {num_answers} answers; this server holds {self.max_answers} at once "
                "(--max-num-seqs and --max-num-queued-reqs): ask for fewer",
                param="n",
            )
        if reason := self.not_ready():
            raise reason
        places = held.enter_context(self.engine.engine.reserve(num_answers))
        self.load.num_answers += num_answers
        held.callback(self._leave, num_answers)
        return places

    def _leave(self, num_answers: int) -> None:
        self.load.num_answers -= num_answers


def fresh_seed() -> int:
    """A seed for a request that brings none. Below 2**53, so that every JSON reader keeps it whole."""
    return secrets.randbits(53)
