"""An engine in this process, whose every token is timed and counted."""

import random
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import Any

from freehold import resolve
from freehold.engine.client import Engine
from freehold.errors import EngineError
from freehold.loadtest.experiments.base import Setting
from freehold.observe.state import EngineState
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, Tokens

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine computed.

    Attributes:
        prefill: tokens of prompts computed.
        decode: tokens of answers computed, to find the ones after them.
        published: ids that it gave, from its ledger.
    """

    prefill: int
    decode: int
    published: int


@dataclass(slots=True)
class Request:
    """A request under way, or done.

    Attributes:
        sent_s: on the clock of `perf_counter`, as all times.
        times_s: when each id came.
        ids: the answer.
        num_cached: tokens of the prompt that were reused.
    """

    sent_s: float
    times_s: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    num_cached: int = 0
    failure: str = ""
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def ttft_s(self) -> float:
        """Seconds until the first id."""
        return self.times_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Seconds that each id after the first took."""
        return [after - before for before, after in zip(self.times_s, self.times_s[1:], strict=False)]

    def wait(self) -> "Request":
        """Until it has ended.

        Raises:
            EngineError: it failed, or takes longer than any experiment should.
        """
        if not self.done.wait(TIMEOUT_S):
            raise EngineError(f"a request took more than {TIMEOUT_S:.0f} s", code="engine_stalled")
        if self.failure:
            raise EngineError(self.failure, code="failed")
        return self

    def see(self, event: Event) -> None:
        """Take in what the engine says of it."""
        now_s = perf_counter()
        if isinstance(event, Tokens):
            self.ids += event.token_ids
            self.times_s += [now_s] * len(event.token_ids)
        elif isinstance(event, Finish):
            self.num_cached = event.num_cached_tokens
            if event.reason in {"failed", "cancelled"}:
                self.failure = event.message or event.reason
            self.done.set()


class MeasuredEngine(AbstractContextManager["MeasuredEngine"]):
    """An engine with settings of its own."""

    def __init__(self, setting: Setting, **settings: Any) -> None:
        """
        Args:
            settings: as of ``freehold serve``, such as ``enable_prefix_caching=False``.

        Raises:
            UserError: no such model or setting, or it doesn't fit.
        """
        config = resolve.engine_config(model=setting.model, threads=setting.threads, **settings)
        self._engine = Engine.start(config)
        self.info = self._engine.info
        self._num_submitted = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.shutdown()

    def prompt(self, num_tokens: int, seed: str) -> tuple[int, ...]:
        """Random ids, so many; of one seed the same."""
        return tuple(random.Random(seed).choices(range(self.info.vocab_size), k=num_tokens))

    def submit(self, prompt: tuple[int, ...], num_output: int) -> Request:
        """Have an answer of exactly so many ids, greedily."""
        self._num_submitted += 1
        request = Request(perf_counter())
        sampling = Sampling(temperature=0.0, max_tokens=num_output)
        generate = Generate(
            request_id=RequestId(f"experiment-{self._num_submitted}"), prompt_ids=prompt, sampling=sampling
        )
        self._engine.submit(generate, request.see)
        return request

    def ask(self, prompt: tuple[int, ...], num_output: int) -> Request:
        """Have an answer, and wait for it.

        Raises:
            EngineError: see `Request.wait`.
        """
        return self.submit(prompt, num_output).wait()

    def state(self) -> EngineState:
        """What the engine tells of itself now."""
        return self._engine.state()

    def work(self) -> Work:
        """All that it has computed. Each request's first id comes of its prompt, every other one of the id before."""
        published, computed = self._engine.ledger().published_ids, self.state().computed_total
        decode = published - self._num_submitted
        return Work(computed - decode, decode, published)
