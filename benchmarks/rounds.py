"""What rounds of several steps save: one answer grows, with one step a round, two, and so on, in turns.

    python benchmarks/rounds.py MODEL.gguf [--pairs 5] [--threads 2] [--output 129]

Prints, for each length of a round, the processor time that the engine's loop takes for a step, which other work on the
machine hardly changes, and tokens a second, which it does. Medians with lowest and highest.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from engine_freehold import Freehold
from offline_rows import Row
from pairs import Spread, in_turns

from freehold.engine.rounds import MOST_STEPS


class TimedLoop:
    """An engine whose loop's processor time is measured, answer by answer."""

    def __init__(self, model: Path, threads: int) -> None:
        self._freehold = Freehold(model, threads, "int8", "1g")
        self._clock = time.pthread_getcpuclockid(self._freehold._engine._thread.ident or 0)
        self._rounds = self._freehold._engine._core._rounds
        self.tokens_per_s: dict[int, list[float]] = {}
        self.vocab_size = self._freehold.describe()["vocab_size"]

    def step_us(self, num_steps: int, row: Row) -> float:
        """Microseconds of the loop for a step, with rounds of so many."""
        self._rounds._num_affordable = lambda: num_steps  # type: ignore[method-assign]
        prompts = row.prompts(0, self.vocab_size)
        begun_s = time.clock_gettime(self._clock)
        measured = self._freehold.run(prompts, row.num_output)
        taken_s = time.clock_gettime(self._clock) - begun_s
        self.tokens_per_s.setdefault(num_steps, []).append(row.rate(measured))
        return 1e6 * taken_s / row.num_output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=int, default=129)
    arguments = parser.parse_args()
    loop = TimedLoop(arguments.model, arguments.threads)
    row = Row("rounds", 128, arguments.output, 1, "decode")

    def measure(num_steps: int) -> Callable[[int], float]:
        return lambda _turn: loop.step_us(num_steps, row)

    found = in_turns({str(n): measure(n) for n in range(1, MOST_STEPS + 1)}, arguments.pairs)
    for name, step_us in found.items():
        loops, rates = Spread.of(step_us), Spread.of(loop.tokens_per_s[int(name)][1:])
        print(
            f"{name} steps a round: {loops.median:.0f} µs of the loop for a step ({loops.lowest:.0f} to "
            f"{loops.highest:.0f}), {rates.median:.0f} tok/s ({rates.lowest:.0f} to {rates.highest:.0f})"
        )


if __name__ == "__main__":
    main()
