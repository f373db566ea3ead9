"""An engine in a process of its own: one request a line on stdin, one answer a line on stdout, both JSON.

Runs in any interpreter and imports nothing but the standard library, so that engines with other dependencies can be
compared. The first line that a worker writes describes it.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self


class MeasuredEngine(Protocol):
    """What a worker runs."""

    def describe(self) -> dict[str, Any]:
        """Version and what else belongs into results."""
        ...

    def run(self, prompts: list[list[int]], num_output: int) -> dict[str, float]:
        """Answer all prompts at once, greedily, with exactly `num_output` tokens each.

        Prompts that equal those of the run before needn't be computed again.

        Returns:
            ``prefill_s``: until every answer has its first token. ``decode_s``, ``num_decoded``: from then until the
            first answer is complete, and the tokens that came meanwhile, while all answers grew.
        """
        ...


def serve(engine: MeasuredEngine) -> None:
    """Answer requests until stdin ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what else is printed is no answer
    print(json.dumps(engine.describe()), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(engine.run(**json.loads(line))), file=answers, flush=True)


class Worker:
    """A process that runs `serve`.

    Attributes:
        description: what the engine says about itself.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.description = self._answer()

    def run(self, prompts: list[list[int]], num_output: int) -> dict[str, float]:
        """See `MeasuredEngine.run`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "num_output": num_output}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, value, trace)  # closes the pipes, which ends the worker, and waits
