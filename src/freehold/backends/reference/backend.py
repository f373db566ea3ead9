"""The step contract over the reference model: one worker thread, steps in order of submission."""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from freehold.arch.load import Weights
from freehold.arch.spec import ModelSpec
from freehold.backends.base import BackendOptions, NumericFormat, Row, RowResult, Step, StepError, StepId, StepResult
from freehold.backends.reference.cache import BlockCache
from freehold.backends.reference.model import Floats, ReferenceModel
from freehold.errors import ConfigError
from freehold.sample.digest import digest_logits
from freehold.sample.sampler import sample

KEPT_STEPS = 64
"""Steps whose sampled ids stay known for rows that are fed by them; more than any runner keeps in flight."""

Masks = Mapping[int, NDArray[np.uint32]]


def open_reference(spec: ModelSpec, weights: Weights, options: BackendOptions) -> "ReferenceBackend":
    """Load a model as float32. `num_threads` has no effect.

    Raises:
        ConfigError: int8 activations or an instruction set were asked for.
    """
    if options.activations != "float":
        raise ConfigError(f"the reference backend computes in float32; activations '{options.activations}' need 'cpu'")
    if options.isa is not None:
        raise ConfigError(f"the reference backend has no instruction sets; isa '{options.isa}' needs 'cpu'")
    return ReferenceBackend(spec, weights, options)


@dataclass(slots=True)
class _PendingStep:
    """A submitted step. `masks_came` is set when nothing is left to wait for."""

    step: Step
    deferred: frozenset[int]
    masks: Masks = field(default_factory=dict)
    masks_came: threading.Event = field(default_factory=threading.Event)
    result: "Future[StepResult] | None" = None


class ReferenceBackend:
    """Implements `freehold.backends.base.Backend`. Methods are called from one thread."""

    def __init__(self, spec: ModelSpec, weights: Weights, options: BackendOptions) -> None:
        self._options = options
        self._model = ReferenceModel(spec, weights)
        self._cache = BlockCache(
            spec, num_blocks=options.num_blocks, block_size=options.block_size, kv_dtype=options.kv_dtype
        )
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reference-backend")
        self._pending: dict[StepId, _PendingStep] = {}
        self._sampled: dict[StepId, list[int]] = {}  # last id of each row; touched by the worker only

    @property
    def numeric_format(self) -> NumericFormat:
        """Always float32; the KV type is the option's."""
        return NumericFormat(weights="f32", activations="f32", kv=self._options.kv_dtype, isa="numpy")

    @property
    def weight_bytes(self) -> int:
        """Bytes of the float32 weights."""
        return self._model.weight_bytes

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the logits of a largest step, which outweigh all other temporaries."""
        return 4 * self._options.max_tokens * self._model.spec.vocab_size

    def submit(self, step: Step) -> None:
        """Start a step. Raises ValueError if it is malformed."""
        self._check(step)
        deferred = frozenset(index for index, row in enumerate(step.rows) if row.deferred)
        pending = _PendingStep(step, deferred)
        if not deferred:
            pending.masks_came.set()
        self._pending[step.step_id] = pending
        pending.result = self._worker.submit(self._run, pending)

    def sample(self, step_id: StepId, masks: Masks) -> None:
        """Bring the masks of a step's deferred rows."""
        pending = self._pending[step_id]
        if set(masks) != pending.deferred:
            raise ValueError(f"step {step_id} has deferred rows {sorted(pending.deferred)}, not {sorted(masks)}")
        pending.masks = dict(masks)
        pending.masks_came.set()

    def collect(self, step_id: StepId) -> StepResult:
        """Wait for a step. Raises StepError if it failed, ValueError if it isn't the oldest or still lacks masks."""
        if step_id != next(iter(self._pending), None):
            raise ValueError(f"step {step_id} isn't the oldest submitted step")
        pending = self._pending[step_id]
        if not pending.masks_came.is_set():
            raise ValueError(f"step {step_id} still waits for the masks of rows {sorted(pending.deferred)}")
        del self._pending[step_id]
        assert pending.result is not None
        return pending.result.result()

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks after all submitted steps."""
        for pair in pairs:
            self._check_block_ids(np.array(pair))
        self._worker.submit(self._cache.copy, list(pairs))

    def read_block(self, block_id: int) -> bytes:
        """One block's contents after all submitted steps, none of which may still wait for masks."""
        self._check_block_ids(np.array([block_id]))
        self._check_no_masks_awaited()
        return self._worker.submit(self._cache.dump, block_id).result()

    def write_block(self, block_id: int, data: bytes) -> None:
        """Restore a block after all submitted steps, none of which may still wait for masks."""
        self._check_block_ids(np.array([block_id]))
        self._check_no_masks_awaited()
        self._worker.submit(self._cache.restore, block_id, data).result()

    def close(self) -> None:
        """Finish submitted steps and end the worker."""
        for pending in self._pending.values():
            pending.masks_came.set()
        self._worker.shutdown(wait=True)

    def _check_no_masks_awaited(self) -> None:
        waiting = [step_id for step_id, pending in self._pending.items() if not pending.masks_came.is_set()]
        if waiting:
            raise ValueError(f"steps {waiting} still wait for masks")

    def _check_block_ids(self, block_ids: NDArray[np.int_] | NDArray[np.int32]) -> None:
        if ((block_ids < 0) | (block_ids >= self._options.num_blocks)).any():
            raise ValueError(f"block ids {block_ids.tolist()} must lie in [0, {self._options.num_blocks})")

    def _check(self, step: Step) -> None:
        """Refuse what numpy would misread silently: negative indices count from the end."""
        if len(step.rows) > self._options.max_rows:
            raise ValueError(f"{len(step.rows)} rows exceed max_rows = {self._options.max_rows}")
        num_tokens = sum(_num_inputs(row) for row in step.rows)
        if num_tokens > self._options.max_tokens:
            raise ValueError(f"{num_tokens} tokens exceed max_tokens = {self._options.max_tokens}")
        for row in step.rows:
            end = row.start_pos + _num_inputs(row)
            if row.start_pos < 0 or end > len(row.block_ids) * self._options.block_size:
                raise ValueError(
                    f"positions [{row.start_pos}, {end}) lie outside the row's {len(row.block_ids)} blocks"
                )
            if not all(0 <= token_id < self._model.spec.vocab_size for token_id in row.token_ids):
                raise ValueError(f"token ids must lie in [0, {self._model.spec.vocab_size})")
            if not 0 <= row.num_sampled <= _num_inputs(row) or (row.sampling is None) != (row.num_sampled == 0):
                raise ValueError(f"num_sampled = {row.num_sampled} doesn't fit the row's inputs and sampling")
            self._check_block_ids(row.block_ids)

    def _run(self, pending: _PendingStep) -> StepResult:
        """On the worker: forward of all rows, then the masks if rows wait for some, then sampling."""
        step, started = pending.step, time.perf_counter()
        self._sampled[step.step_id] = [0] * len(step.rows)  # stands if the step fails or a row isn't finite
        self._sampled.pop(StepId(step.step_id - KEPT_STEPS), None)
        try:
            inputs = [self._inputs(row) for row in step.rows]
            logits = [self._forward(row, ids) for row, ids in zip(step.rows, inputs, strict=True)]
            run_s = time.perf_counter() - started
            pending.masks_came.wait()
            started = time.perf_counter()
            results = [
                _finish_row(row, ids, row_logits, pending.masks.get(index))
                for index, (row, ids, row_logits) in enumerate(zip(step.rows, inputs, logits, strict=True))
            ]
        except Exception as error:
            raise StepError(f"step {step.step_id} failed: {error}") from error
        self._sampled[step.step_id] = [result.token_ids[-1] if result.token_ids else 0 for result in results]
        return StepResult(step.step_id, results, run_s + time.perf_counter() - started)

    def _inputs(self, row: Row) -> list[int]:
        fed = [self._sampled[row.fed_by.step_id][row.fed_by.row]] if row.fed_by else []
        return fed + list(row.token_ids)

    def _forward(self, row: Row, token_ids: list[int]) -> Floats:
        """Logits after the inputs that need them, the last ones: (inputs or num_sampled, V)."""
        num_logits = len(token_ids) if row.want_logits else row.num_sampled
        logits = np.empty((num_logits, self._model.spec.vocab_size), dtype=np.float32)
        first = len(token_ids) - num_logits
        for index, token_id in enumerate(token_ids):
            hidden = self._model.forward(token_id, row.start_pos + index, self._cache, row.block_ids)
            if index >= first:
                logits[index - first] = self._model.logits(hidden)
        return logits


def _num_inputs(row: Row) -> int:
    return len(row.token_ids) + (row.fed_by is not None)


def _finish_row(row: Row, inputs: list[int], logits: Floats, mask: NDArray[np.uint32] | None) -> RowResult:
    """Sample after each of the last `num_sampled` inputs, until a draft turns out wrong."""
    kept_logits = logits if row.want_logits else None
    if not np.isfinite(logits).all():
        return RowResult(token_ids=(), logits=kept_logits, finite=False)
    token_ids: list[int] = []
    digests: list[int] = []
    for index in range(len(inputs) - row.num_sampled, len(inputs)):
        assert row.sampling is not None
        after = logits[index - len(inputs)]
        sampled = sample(after, row.sampling, pos=row.start_pos + index + 1, allowed=None if mask is None else mask[0])
        token_ids.append(sampled)
        if row.want_digests:
            digests.append(digest_logits(after))
        if index + 1 < len(inputs) and inputs[index + 1] != sampled:
            break
    return RowResult(token_ids=token_ids, digests=digests, logits=kept_logits)
