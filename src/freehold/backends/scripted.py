"""A backend without weights that answers by script, asynchronously, and referees the scheduler.

It keeps token ids where others keep keys and values, and works out every row's context from its blocks alone. So a
wrong token, position or block changes what it sees, and it raises `ContractError` instead of answering.
"""

import queue
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from freehold.arch.spec import ModelSpec
from freehold.backends.base import (
    BackendOptions,
    NumericFormat,
    Row,
    RowResult,
    Step,
    StepError,
    StepId,
    StepResult,
    steps_of_round,
)
from freehold.backends.referee import ContractError, StepReferee, TokenCells, expect, extend_chain
from freehold.backends.script import Break, Effect, FailStep, Gate, NotFinite, Pause, Scripts, made_up_logprobs
from freehold.protocol import Logprobs

KEPT_STEPS = 4  # steps whose sampled ids can still feed later rows


class ScriptedModel:
    """Runs steps one after the other, in the caller's thread and in no time. `ScriptedBackend` adds the rest."""

    def __init__(self, vocab_size: int, options: BackendOptions, scripts: Scripts) -> None:
        self.cells = TokenCells(options.num_blocks, options.block_size)
        self._vocab_size = vocab_size
        self._scripts = scripts
        self._sampled: dict[StepId, list[int | None]] = {}

    def run(self, step: Step, masks: Mapping[int, NDArray[np.uint32]]) -> tuple[StepResult, list[Effect]]:
        """Run a step. Returns its result, and what the scripts want to happen meanwhile.

        Raises:
            ContractError: a row doesn't fit what was computed before.
        """
        effects: list[Effect] = []
        results = [self._run_row(row, masks.get(i), effects) for i, row in enumerate(step.rows)]
        self._sampled[step.step_id] = [result.token_ids[-1] if result.token_ids else None for result in results]
        self._sampled.pop(StepId(step.step_id - KEPT_STEPS), None)
        return StepResult(step.step_id, results, run_s=0.0), effects

    def _run_row(self, row: Row, mask: NDArray[np.uint32] | None, effects: list[Effect]) -> RowResult:
        inputs = [*self._fed(row), *row.token_ids]
        end_pos = row.start_pos + len(inputs)
        cells = self.cells.cells(row.block_ids, end_pos)
        self.cells.check(cells[: row.start_pos])
        self._check_ids(row, cells, inputs)
        chains = self.cells.write(cells, row.start_pos, inputs)
        logits = self._logits(inputs) if row.want_logits else None
        scored = [
            made_up_logprobs(chain, token_id, row.num_scored, self._vocab_size)
            for chain, token_id in zip(chains, row.scored_ids, strict=False)
        ]
        if row.sampling is None:
            return RowResult((), logits=logits, scored=scored)

        context: list[int] = self.cells.token_ids[cells].tolist()
        num_prompt = row.sampling.num_prompt_tokens
        answer = self._scripts.answer(tuple(context[:num_prompt]))
        first = end_pos - row.num_sampled + 1  # position that the first sampled id takes
        given = context[num_prompt:first]
        wanted = [answer.id_at(i) for i in range(len(given))]
        expect(given == wanted or row.deferred, f"the row's context goes on with {given}, sampled was {wanted}")

        token_ids: list[int] = []
        is_finite = True
        for pos in range(first, end_pos + 1):
            if mask is not None and not mask[pos - first].any():
                break
            here = answer.effects.get(pos - num_prompt, [])
            is_finite = is_finite and not any(isinstance(effect, NotFinite) for effect in here)
            effects.extend(here)
            token_ids.append(_masked(answer.id_at(pos - num_prompt), mask, pos - first))
            if pos < end_pos and context[pos] != token_ids[-1]:
                break
        before = chains[first - 1 - row.start_pos :][: len(token_ids)]
        digests = [extend_chain(chain, t) for chain, t in zip(before, token_ids, strict=True)]
        num_top, logprobs = row.sampling.num_logprobs, list[Logprobs]()
        if num_top is not None:
            pairs = zip(before, token_ids, strict=True)
            logprobs = [made_up_logprobs(chain, t, num_top, self._vocab_size) for chain, t in pairs]
        return RowResult(token_ids, digests if row.want_digests else (), logits, is_finite, logprobs, scored)

    def _check_ids(self, row: Row, cells: NDArray[np.int64], inputs: Sequence[int]) -> None:
        """The ids that come with a row are those in its blocks, and those that it computes."""
        if row.context_ids is not None:
            written = self.cells.token_ids[cells[: row.start_pos]]
            expect(np.array_equal(row.context_ids, written), f"context is {row.context_ids}, written was {written}")
        followers = inputs[1 : 1 + len(row.scored_ids)]
        expect(list(row.scored_ids[: len(followers)]) == followers, f"{row.scored_ids} don't follow {inputs}")

    def _fed(self, row: Row) -> list[int]:
        if row.fed_by is None:
            return []
        expect(row.fed_by.step_id in self._sampled, f"step {row.fed_by.step_id} did not run, or too long ago")
        token_id = self._sampled[row.fed_by.step_id][row.fed_by.row]
        if token_id is None:
            raise ContractError(f"row {row.fed_by.row} of step {row.fed_by.step_id} sampled nothing")
        return [token_id]

    def _logits(self, inputs: Sequence[int]) -> NDArray[np.float32]:
        """1 at the id that follows in the row, at id 0 after the last; 0 elsewhere."""
        logits = np.zeros((len(inputs), self._vocab_size), np.float32)
        logits[np.arange(len(inputs)), [*inputs[1:], 0]] = 1
        return logits


def _masked(token_id: int, masks: NDArray[np.uint32] | None, index: int) -> int:
    """The id itself if the mask of the row's sample `index` allows it, else the lowest that it allows."""
    if masks is None:
        return token_id
    allowed = np.unpackbits(masks[index].view(np.uint8), bitorder="little")
    return token_id if allowed[token_id] else int(np.argmax(allowed))


class ScriptedBackend:
    """`freehold.backends.base.Backend` over a `ScriptedModel` and a worker thread."""

    def __init__(self, vocab_size: int, options: BackendOptions, scripts: Scripts | None = None) -> None:
        self._scripts = scripts or Scripts()
        self._model = ScriptedModel(vocab_size, options, self._scripts)
        self._referee = StepReferee(vocab_size, options)
        self._steps: queue.SimpleQueue[Step | list[tuple[int, int]] | None] = queue.SimpleQueue()
        self._num_copies = 0  # queued
        self._done: dict[StepId, StepResult | Exception] = {}
        self._masks: dict[StepId, Mapping[int, NDArray[np.uint32]]] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._worker = threading.Thread(target=self._work, name="scripted-backend", daemon=True)
        self._worker.start()

    @property
    def profiler(self) -> None:
        """Nobody needs to know where its time goes."""
        return None

    @property
    def numeric_format(self) -> NumericFormat:
        """Ids only, so nothing is rounded."""
        return NumericFormat(weights="script", activations="script", kv="ids", isa="python")

    @property
    def weight_bytes(self) -> int:
        """A script weighs nothing."""
        return 0

    @property
    def scratch_bytes(self) -> int:
        """Nothing is reserved."""
        return 0

    def submit(self, step: Step, num_steps: int = 1) -> None:
        """Queue a step or a round. Raises `ContractError` if one is malformed in itself or against the steps in
        flight."""
        for each in steps_of_round(step, num_steps):
            self._referee.submitted(each)
            self._steps.put(each)

    def sample(self, step_id: StepId, masks: Mapping[int, NDArray[np.uint32]]) -> None:
        """Bring the masks of a step's deferred rows. Raises `ContractError` if one is malformed."""
        self._referee.masked(step_id, masks)
        with self._changed:
            self._masks[step_id] = masks
            self._changed.notify_all()

    def wait(self, step_id: StepId) -> None:
        """Wait for a step."""
        with self._changed:
            self._changed.wait_for(lambda: step_id in self._done)

    def collect(self, step_id: StepId) -> StepResult:
        """Wait for a step. Raises what its script wants it to, or `ContractError`."""
        self._referee.collected(step_id)
        with self._changed:
            self._changed.wait_for(lambda: step_id in self._done)
            result = self._done.pop(step_id)
        if isinstance(result, Exception):
            raise result
        return result

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Queue copies of cells. Raises `ContractError` if a row in flight uses what they overwrite."""
        self._referee.copied(pairs)
        with self._changed:
            self._num_copies += 1
        self._steps.put(list(pairs))

    def read_block(self, block_id: int) -> bytes:
        """Ids and chains of one block."""
        self._drain()
        cells, size = self._model.cells, self._model.cells.block_size
        span = slice(block_id * size, (block_id + 1) * size)
        return cells.token_ids[span].tobytes() + cells.before[span].tobytes() + cells.after[span].tobytes()

    def write_block(self, block_id: int, data: bytes) -> None:
        """Restore ids and chains of one block."""
        self._drain()
        cells, size = self._model.cells, self._model.cells.block_size
        span = slice(block_id * size, (block_id + 1) * size)
        cells.token_ids[span] = np.frombuffer(data, np.int32, size)
        cells.before[span] = np.frombuffer(data, np.uint64, size, offset=4 * size)
        cells.after[span] = np.frombuffer(data, np.uint64, size, offset=12 * size)

    def close(self) -> None:
        """Cut pauses short, finish what was submitted, stop the worker."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._steps.put(None)
        self._worker.join()

    def _drain(self) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: not self._num_copies and all(step_id in self._done for step_id in self._referee.in_flight)
            )

    def _work(self) -> None:
        broken: Exception | None = None
        while (step := self._steps.get()) is not None:
            if isinstance(step, list):
                self._copy(step)
                continue
            started_s = time.monotonic()
            outcome: StepResult | Exception
            if broken:
                outcome = broken
            else:
                try:
                    result, effects = self._model.run(step, self._wait_for_masks(step))
                    self._perform(effects, sum(len(row.token_ids) + (row.fed_by is not None) for row in step.rows))
                    outcome = StepResult(result.step_id, result.rows, run_s=time.monotonic() - started_s)
                except StepError as error:
                    outcome = error
                except Exception as error:
                    outcome = broken = error
            with self._changed:
                self._done[step.step_id] = outcome
                self._changed.notify_all()

    def _copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._model.cells.copy(pairs)
        with self._changed:
            self._num_copies -= 1
            self._changed.notify_all()

    def _wait_for_masks(self, step: Step) -> Mapping[int, NDArray[np.uint32]]:
        deferred = {i for i, row in enumerate(step.rows) if row.deferred}
        if not deferred:
            return {}
        with self._changed:
            self._changed.wait_for(lambda: step.step_id in self._masks or self._closing.is_set())
            return self._masks.pop(step.step_id, {})

    def _perform(self, effects: Sequence[Effect], num_tokens: int) -> None:
        """Rows run side by side, so the longest pause counts, not their sum."""
        pause_s = max((e.seconds for e in effects if isinstance(e, Pause)), default=0.0)
        self._closing.wait(pause_s + num_tokens * self._scripts.token_s)
        for effect in effects:
            if isinstance(effect, Gate):
                while not effect.event.wait(0.02) and not self._closing.is_set():
                    pass
        for effect in effects:
            if isinstance(effect, FailStep):
                raise StepError(effect.message)
            if isinstance(effect, Break):
                raise RuntimeError(effect.message)


def open_scripted(spec: ModelSpec, weights: object, options: BackendOptions) -> ScriptedBackend:  # noqa: ARG001
    """Open the backend with the default script, for `freehold.backends.open_backend`. No weight is read."""
    return ScriptedBackend(spec.vocab_size, options)
