"""The step contract over the native device."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from freehold import _native
from freehold.arch.load import Weights
from freehold.arch.spec import ModelSpec
from freehold.backends.base import BackendOptions, NumericFormat, Step, StepError, StepId, StepResult
from freehold.backends.cpu.loading import load_model
from freehold.backends.cpu.profiler import CpuProfiler
from freehold.backends.cpu.steps import flatten, row_results


def open_cpu(spec: ModelSpec, weights: Weights, options: BackendOptions) -> "CpuBackend":
    """Pack a model's weights and reserve its KV blocks.

    Raises:
        ConfigError: `options.isa` isn't available on this processor.
    """
    return CpuBackend(spec, weights, options)


class CpuBackend:
    """Implements `freehold.backends.base.Backend`. Methods are called from one thread.

    The native device runs steps on a thread of its own, without the interpreter's lock.
    """

    def __init__(self, spec: ModelSpec, weights: Weights, options: BackendOptions) -> None:
        self._options = options
        self._mask_words = -(-spec.vocab_size // 32)
        loaded = load_model(spec, weights, options)
        self._device = loaded.device
        self._profiler = CpuProfiler(loaded.device)
        self._layouts = loaded.layouts
        self._weight_bytes = loaded.weight_bytes
        # of each step not yet collected, the rows that wait for masks, and for how many
        self._waiting: dict[StepId, dict[int, int]] = {}

    @property
    def numeric_format(self) -> NumericFormat:
        """Packed layouts in use, activations, KV type and instruction set."""
        return NumericFormat(
            weights="+".join(self._layouts),
            activations="int8" if self._options.activations == "int8" else "f32",
            kv=self._options.kv_dtype,
            isa=self._device.isa,
        )

    @property
    def profiler(self) -> CpuProfiler:
        """Times every step's phases."""
        return self._profiler

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._weight_bytes

    @property
    def scratch_bytes(self) -> int:
        """Bytes of activations, logits and sampling buffers."""
        return self._device.scratch_bytes

    def submit(self, step: Step, num_steps: int = 1) -> None:
        """Queue a step or a round; a malformed step fails in `collect`."""
        arrays = flatten(step, self._options.block_size, num_steps)
        self._waiting[step.step_id] = {index: row.num_sampled for index, row in enumerate(step.rows) if row.deferred}
        for step_id in range(step.step_id, step.step_id + num_steps):
            if step_id > step.step_id:
                arrays.go_on(step_id - 1)
                self._waiting[StepId(step_id)] = {}
            self._device.submit(
                step_id,
                arrays.columns,
                arrays.rules,
                arrays.token_ids,
                arrays.block_ids,
                arrays.more_ids,
                arrays.biases,
            )

    def sample(self, step_id: StepId, masks: Mapping[int, NDArray[np.uint32]]) -> None:
        """Bring the masks of a step's deferred rows. Raises ValueError if rows or sizes don't fit."""
        waiting = self._waiting[step_id]
        if masks.keys() != waiting.keys():
            raise ValueError(f"step {step_id} has deferred rows {sorted(waiting)}, not {sorted(masks)}")
        for row, mask in masks.items():
            if mask.shape != (waiting[row], self._mask_words):
                raise ValueError(f"masks of row {row} have shape {mask.shape}, not {(waiting[row], self._mask_words)}")
        counts = [len(mask) for mask in masks.values()]
        self._device.sample(step_id, list(masks), counts, np.concatenate(list(masks.values()), dtype=np.uint32))
        self._waiting[step_id] = {}

    def wait(self, step_id: StepId) -> None:
        """Wait for a step. The calling thread sleeps until then, whatever ends before."""
        self._device.wait(step_id)

    def collect(self, step_id: StepId) -> StepResult:
        """Wait for a step. Raises StepError if it failed, ValueError if it isn't the oldest or still lacks masks."""
        if step_id != next(iter(self._waiting), None):
            raise ValueError(f"step {step_id} isn't the oldest submitted step")
        if self._waiting[step_id]:
            raise ValueError(f"step {step_id} still waits for the masks of rows {sorted(self._waiting[step_id])}")
        del self._waiting[step_id]
        try:
            rows, run_s = self._device.collect(step_id)
        except _native.StepRefused as error:
            raise StepError(str(error)) from None
        return StepResult(step_id=step_id, rows=row_results(rows), run_s=run_s)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks after all submitted steps."""
        flat = [block_id for pair in pairs for block_id in pair]
        self._check_block_ids(flat)
        self._device.copy_blocks(flat)

    def read_block(self, block_id: int) -> bytes:
        """One block's contents after all submitted steps, none of which may still wait for masks."""
        self._check_block_ids([block_id])
        self._check_no_masks_awaited()
        return self._device.read_block(block_id)

    def write_block(self, block_id: int, data: bytes) -> None:
        """Restore a block after all submitted steps, none of which may still wait for masks."""
        self._check_block_ids([block_id])
        self._check_no_masks_awaited()
        self._device.write_block(block_id, data)

    def close(self) -> None:
        """Finish submitted steps, end the threads, stop writing packed weights."""
        if self._options.packed is not None:
            self._options.packed.close()
        self._device.close()

    def _check_no_masks_awaited(self) -> None:
        waiting = [step_id for step_id, rows in self._waiting.items() if rows]
        if waiting:
            raise ValueError(f"steps {waiting} still wait for masks")

    def _check_block_ids(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            if not 0 <= block_id < self._options.num_blocks:
                raise ValueError(f"block id {block_id} must lie in [0, {self._options.num_blocks})")
