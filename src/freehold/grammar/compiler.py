"""The server's side: constraints are checked and compiled in worker processes, and what came of it is kept."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from queue import LifoQueue

import msgspec

from freehold.errors import RequestError
from freehold.grammar.constraint import Constraint, Lark, weakened
from freehold.grammar.messages import CompileLimits, Setup, Verdict
from freehold.protocol import Grammar, TokenTexts, Trigger
from freehold.workers.process import Worker, WorkerEndedError

WORKER = "freehold.grammar.worker"
NUM_WORKERS = 2
"""One goes on while a constraint that takes too much holds up the other."""

MAX_KEPT = 1024
MAX_KEPT_BYTES = 32 << 20
"""Verdicts that are kept, and what they and their constraints may take together."""

_encoder = msgspec.msgpack.Encoder()
_verdicts = msgspec.msgpack.Decoder(Verdict)


class GrammarCompiler:
    """Turns constraints into grammars. Thread-safe.

    Workers start when they are first needed. What they think of a constraint is kept, refusals too.
    """

    def __init__(
        self,
        token_texts: Callable[[], TokenTexts],
        teach: Callable[[TokenTexts], None],
        limits: CompileLimits | None = None,
    ) -> None:
        """
        Args:
            token_texts: what the vocabulary's tokens write; asked for when it is needed.
            teach: tells the engine what the tokens write; called before the first grammar is returned.
        """
        self._token_texts = token_texts
        self._teach = teach
        self._limits = limits or CompileLimits()
        self._lock = threading.Lock()
        self._setup: bytes | None = None
        self._kept: OrderedDict[bytes, Verdict] = OrderedDict()
        self._kept_bytes = 0
        self._idle: LifoQueue[Worker] = LifoQueue()  # so that the second one starts only if both are needed
        for _ in range(NUM_WORKERS):
            self._idle.put(Worker(WORKER, self._first_frame, wall_s=self._limits.wall_s, task="compiles grammars"))

    def compile(
        self,
        constraint: Constraint,
        *,
        param: str,
        after_id: int | None = None,
        max_free: int | None = None,
        trigger: Trigger | None = None,
    ) -> Grammar:
        """The grammar of a constraint. Blocks while it is checked and compiled; an event loop calls it in a thread.

        Args:
            param: the request's field that the constraint came from, for errors.
            after_id, max_free, trigger: as in `Grammar`.

        Raises:
            RequestError: the constraint is malformed, asks for what can't be enforced, or takes too much.
            ResourceError: no worker can be started.
        """
        verdict = self._verdict(constraint)
        if not verdict.source and isinstance(constraint, Lark) and any(rule.is_lenient for rule in constraint.rules):
            verdict = self._verdict(weakened(constraint, lambda _: False))
        if not verdict.source:
            at = f"{verdict.param or param}{verdict.place}"[:500]
            raise RequestError(f"{at}: {verdict.message}", param=at, code=verdict.code)
        return Grammar(source=verdict.source, after_id=after_id, max_free=max_free, trigger=trigger)

    def close(self) -> None:
        """End the workers, once they are idle. A later constraint starts another."""
        workers = [self._idle.get() for _ in range(NUM_WORKERS)]
        for worker in workers:
            worker.close()
            self._idle.put(worker)

    def _verdict(self, constraint: Constraint) -> Verdict:
        try:
            encoded = _encoder.encode(constraint)
        except (RecursionError, TypeError, ValueError, OverflowError) as error:
            message = f"holds what isn't JSON, an integer beyond 64 bits, or is nested too deep: {error}"
            return Verdict(message=message, code="unsupported_schema")
        return self._find(encoded) or self._judge(encoded)

    def _find(self, encoded: bytes) -> Verdict | None:
        with self._lock:
            if encoded in self._kept:
                self._kept.move_to_end(encoded)
            return self._kept.get(encoded)

    def _judge(self, encoded: bytes) -> Verdict:
        worker = self._idle.get()
        try:
            verdict = _verdicts.decode(worker.ask(encoded))
        except WorkerEndedError:
            verdict = Verdict(
                message=f"takes more than {self._limits.cpu_s} s of processor time to compile, or more memory than it "
                "may; simplify it",
                code="grammar_budget",
            )
        finally:
            self._idle.put(worker)
        with self._lock:
            self._keep(encoded, verdict)
        return verdict

    def _keep(self, encoded: bytes, verdict: Verdict) -> None:
        if encoded not in self._kept:
            self._kept[encoded] = verdict
            self._kept_bytes += len(encoded) + len(verdict.source)
        while len(self._kept) > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            oldest, forgotten = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest) + len(forgotten.source)

    def _first_frame(self) -> bytes:
        """What a worker is set up with. The engine is told the same at the first time."""
        with self._lock:
            if self._setup is None:
                texts = self._token_texts()
                self._teach(texts)
                self._setup = _encoder.encode(Setup(texts, self._limits))
            return self._setup
