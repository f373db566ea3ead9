"""Traces as load: requests at the times and with the lengths of a trace, prompts that begin alike where its did."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from freehold.errors import ConfigError
from freehold.loadtest.workloads.base import Conversation, Turn
from freehold.loadtest.workloads.filler import Filler
from freehold.loadtest.workloads.on_demand import OnDemand
from freehold.loadtest.workloads.trace_files import Traced, TraceFile


@dataclass(frozen=True, slots=True)
class Fit:
    """How a trace is made to fit another server than the one it was taken from.

    Attributes:
        max_model_len: tokens of context, prompt and answer together; None if nobody knows.
        length_scale: lengths are multiplied by it. None: by 1, or by less if the longest request needs it.
        speed: time passes so many times as fast.
    """

    max_model_len: int | None = None
    length_scale: float | None = None
    speed: float = 1.0

    def __post_init__(self) -> None:
        if self.length_scale is not None and not 0 < self.length_scale < float("inf"):
            raise ConfigError(f"--trace-length-scale can't be {self.length_scale}; it is a number above 0")
        if not 0 < self.speed < float("inf"):
            raise ConfigError(
                f"--trace-speed can't be {self.speed}; it is a number above 0, such as 2 for twice as fast"
            )


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """The first requests of a trace.

    A block of the trace (see `Traced.blocks`) becomes the same words each time, so that whatever could be reused in the
    trace's prompts can be here. Another seed makes other words of it.

    Attributes:
        name: as in `Workload`.
        block_len: tokens of a block.
    """

    name: str
    file: TraceFile
    filler: Filler
    fit: Fit = Fit()
    block_len: int = 512

    @property
    def shares_prefixes(self) -> bool:
        """As in `Workload`: known only once the file was read, and traces are there for it."""
        return True

    def conversations(self, num: int, seed: int) -> Sequence[Conversation]:
        """As `Workload.conversations`."""
        chosen = list(itertools.islice(self.file.requests(), num))
        if not chosen:
            raise ConfigError(f"{self.file.path} has no requests")
        for before, after in itertools.pairwise(chosen):
            if after.start_s < before.start_s:
                raise ConfigError(
                    f"{self.file.path} must be sorted by time: {after.start_s} s comes after {before.start_s} s"
                )
        scale = self._scale(chosen)
        first_s = chosen[0].start_s
        return OnDemand(len(chosen), lambda index: self._conversation(chosen[index], first_s, scale, (seed, index)))

    def _scale(self, chosen: Sequence[Traced]) -> float:
        """What lengths are multiplied by. Blocks get a whole number of tokens by it.

        Raises:
            ConfigError: the longest request doesn't fit the context with the scale that was asked for.
        """
        most = self.fit.max_model_len
        longest = max(traced.input_len + traced.output_len for traced in chosen)
        scale = self.fit.length_scale
        if scale is None:
            scale = 1.0 if most is None else min(1.0, (most - self.filler.overhead - 1) / longest)
        elif most is not None and longest * scale > most:
            raise ConfigError(
                f"the longest request of {self.file.path} has {longest} tokens; times {scale:g} that is more than the "
                f"model's context of {most}: --trace-length-scale can be {most / longest:.2g} at most, or be left out"
            )
        if not any(traced.blocks for traced in chosen):
            return scale
        return max(int(self.block_len * scale), 1) / self.block_len

    def _conversation(self, traced: Traced, first_s: float, scale: float, place: tuple[int, int]) -> Conversation:
        """
        Args:
            place: seed and number of the request.
        """
        filler = self.filler
        seed, number = place
        if traced.blocks:
            drawn = self._blocks(traced, scale, seed)
        else:
            num_words = max(round(traced.input_len * scale) - filler.overhead, 1)
            drawn = filler.draw(num_words, random.Random(f"{seed} {number}"))
        turn = Turn(
            filler.prompt(drawn), max(round(traced.output_len * scale), 1), input_len=len(drawn) + filler.overhead
        )
        return Conversation((turn,), (traced.start_s - first_s) / self.fit.speed)

    def _blocks(self, traced: Traced, scale: float, seed: int) -> list[int]:
        """The words of a prompt's blocks. The last one gives what is left, less what the model puts around a prompt."""
        block_len = round(self.block_len * scale)
        num_last = max(round((traced.input_len - (len(traced.blocks) - 1) * self.block_len) * scale), 1)
        drawn: list[int] = []
        for name in traced.blocks:
            drawn += self.filler.draw(block_len, random.Random(f"{seed} block {name}"))
        num_words = len(drawn) - block_len + num_last - self.filler.overhead
        return drawn[: max(num_words, 1)]
