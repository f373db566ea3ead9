"""Profiles of what an `LLM` does inside a ``with`` block."""

import queue
from pathlib import Path
from types import TracebackType
from typing import Self

from freehold.engine.handle import EngineHandle
from freehold.errors import EngineError
from freehold.observe import render
from freehold.observe.profile import MAX_SPANS, MAX_STEPS, ProfileId, StepProfile
from freehold.observe.report import Report
from freehold.observe.tally import Tally
from freehold.observe.trace import chrome_trace

_PATIENCE_S = 60.0


class ProfileBlock:
    """Profiles the steps that run while its ``with`` block does; see `freehold.llm.LLM.profile`.

    Attributes:
        profile: when the block was left, the numbers.
    """

    profile: StepProfile

    def __init__(self, engine: EngineHandle, max_steps: int) -> None:
        if not 1 <= max_steps <= MAX_STEPS:
            raise ValueError(f"max_steps is {max_steps}; a profile holds 1 to {MAX_STEPS}")
        self._engine = engine
        self._max_steps = max_steps
        self._ended: queue.SimpleQueue[StepProfile | EngineError] = queue.SimpleQueue()
        self._profile_id: ProfileId | None = None

    def __enter__(self) -> Self:
        self._profile_id = self._engine.start_profile(self._max_steps, MAX_SPANS, self._ended.put)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._profile_id is not None
        self._engine.stop_profile(self._profile_id)
        try:
            end = self._ended.get(timeout=_PATIENCE_S)
        except queue.Empty:
            end = EngineError("the engine hangs and gives no profile", code="engine_stalled")
        if isinstance(end, StepProfile):
            self.profile = end
        elif value is None:
            raise end

    @property
    def report(self) -> Report:
        """Sums by kind of step and phase."""
        return Tally(self.profile).report()

    def table(self) -> str:
        """The report as text."""
        return render.text(self.report)

    def save_trace(self, path: str | Path) -> None:
        """Write a Chrome trace, for https://ui.perfetto.dev or chrome://tracing."""
        Path(path).write_bytes(chrome_trace(self.profile, self.report))
