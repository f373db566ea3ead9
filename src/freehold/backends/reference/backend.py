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
from freehold.backends.reference.cache import BlockCache
from freehold.backends.reference.model import Floats, ReferenceModel
from freehold.errors import ConfigError
from freehold.protocol import Logprobs
from freehold.sample.digest import digest_logits
from freehold.sample.logprobs import logprobs_of
from freehold.sample.sampler import NO_IDS, sample

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


@dataclass(slots=True)
class _Computed:
    """A row after its forward pass.

    Attributes:
        inputs: its input ids, the fed one included.
        logits: after the last inputs, those that are still needed.
    """

    inputs: list[int]
    logits: Floats
    scored: list[Logprobs] = field(default_factory=list)
    finite: bool = True


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
    def profiler(self) -> None:
        """Nobody needs to know where its time goes."""
        return None

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

    def submit(self, step: Step, num_steps: int = 1) -> None:
        """Start a step or a round. Raises ValueError if one is malformed."""
        for each in steps_of_round(step, num_steps):
            self._submit_one(each)

    def _submit_one(self, step: Step) -> None:
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

    def wait(self, step_id: StepId) -> None:
        """Wait for a step."""
        result = self._pending[step_id].result
        assert result is not None
        result.exception()

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
            if len(row.scored_ids) > _num_inputs(row):
                raise ValueError(f"{len(row.scored_ids)} ids to score follow {_num_inputs(row)} inputs")
            if row.sampling and row.sampling.has_penalties:
                num_known = 0 if row.context_ids is None else len(row.context_ids)
                if num_known != row.start_pos:
                    raise ValueError(f"{num_known} context ids before position {row.start_pos}")
            self._check_block_ids(row.block_ids)

    def _run(self, pending: _PendingStep) -> StepResult:
        """On the worker: forward of all rows, then the masks if rows wait for some, then sampling."""
        step, started = pending.step, time.perf_counter()
        self._sampled[step.step_id] = [0] * len(step.rows)  # stands if the step fails or a row isn't finite
        self._sampled.pop(StepId(step.step_id - KEPT_STEPS), None)
        try:
            computed = [self._forward(row) for row in step.rows]
            run_s = time.perf_counter() - started
            pending.masks_came.wait()
            started = time.perf_counter()
            results = [
                _finish_row(row, done, pending.masks.get(index))
                for index, (row, done) in enumerate(zip(step.rows, computed, strict=True))
            ]
        except Exception as error:
            raise StepError(f"step {step.step_id} failed: {error}") from error
        self._sampled[step.step_id] = [result.token_ids[-1] if result.token_ids else 0 for result in results]
        return StepResult(step.step_id, results, run_s + time.perf_counter() - started)

    def _inputs(self, row: Row) -> list[int]:
        fed = [self._sampled[row.fed_by.step_id][row.fed_by.row]] if row.fed_by else []
        return fed + list(row.token_ids)

    def _forward(self, row: Row) -> _Computed:
        """Compute a row's inputs. Of the logits, those to sample from are kept, or all if they are wanted."""
        inputs = self._inputs(row)
        num_kept = len(inputs) if row.want_logits else row.num_sampled
        done = _Computed(inputs, np.empty((num_kept, self._model.spec.vocab_size), dtype=np.float32))
        first = len(inputs) - num_kept
        for index, token_id in enumerate(inputs):
            hidden = self._model.forward(token_id, row.start_pos + index, self._cache, row.block_ids)
            if index < first and index >= len(row.scored_ids):
                continue
            logits = self._model.logits(hidden)
            done.finite &= bool(np.isfinite(logits).all())
            if index < len(row.scored_ids) and done.finite:
                done.scored.append(logprobs_of(logits, row.scored_ids[index], row.num_scored))
            if index >= first:
                done.logits[index - first] = logits
        return done


def _num_inputs(row: Row) -> int:
    return len(row.token_ids) + (row.fed_by is not None)


def _finish_row(row: Row, done: _Computed, masks: NDArray[np.uint32] | None) -> RowResult:
    """Sample after each of the last `num_sampled` inputs, until a draft turns out wrong or nothing is allowed."""
    kept_logits = done.logits if row.want_logits else None
    if not done.finite:
        return RowResult(token_ids=(), logits=kept_logits, finite=False)
    inputs, sampling = done.inputs, row.sampling
    token_ids: list[int] = []
    digests: list[int] = []
    logprobs: list[Logprobs] = []
    context = np.concatenate((row.context_ids if row.context_ids is not None else NO_IDS, np.array(inputs, np.int32)))
    for sample_index in range(row.num_sampled):
        assert sampling is not None
        mask = None if masks is None else masks[sample_index]
        if mask is not None and not mask.any():
            break
        end = len(inputs) - row.num_sampled + sample_index + 1  # inputs before the sampled id
        after = done.logits[end - 1 - len(inputs)]
        before = context[: context.size - len(inputs) + end]
        sampled = sample(after, sampling, pos=row.start_pos + end, context_ids=before, allowed=mask)
        token_ids.append(sampled)
        if row.want_digests:
            digests.append(digest_logits(after))
        if sampling.num_logprobs is not None:
            logprobs.append(logprobs_of(after, sampled, sampling.num_logprobs))
        if end < len(inputs) and inputs[end] != sampled:
            break
    return RowResult(token_ids, digests, kept_logits, logprobs=logprobs, scored=done.scored)
