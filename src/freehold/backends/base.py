"""The contract between the runner and a device.

A step is a batch of rows, one row a request. `submit` starts a step and returns at once; `collect` waits for it. A step
may be submitted while the one before it still runs: a row's first input can be "what row r of step N sampled", and the
backend fills it in. Steps run in the order of submission.

A backend never decides anything: which tokens, which blocks, which order is all in the rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from freehold.errors import FreeholdError
from freehold.files.packed_cache import PackedCache
from freehold.protocol import Logprobs

StepId = NewType("StepId", int)


class StepError(FreeholdError):
    """One step failed and the backend is intact: other steps may be collected and submitted as before.

    What the step's rows wrote is undefined. Rows of later steps that were fed by it still run; their ids mean nothing.
    """


class FedBy(msgspec.Struct, frozen=True):
    """An input that is not known yet: the last id that row `row` of step `step_id` sampled."""

    step_id: StepId
    row: int


@dataclass(frozen=True, slots=True)
class RowSampling:
    """Sampling of one row; meanings as in `freehold.protocol.Sampling`. `freehold.sample.sampler` defines it.

    Attributes:
        num_prompt_tokens: positions below this hold the prompt, later ones what was sampled. The noise doesn't depend
            on it.
        stop_ids: ascending; may not be sampled at positions below ``num_prompt_tokens + min_tokens``, unless nothing
            else may. Empty if `min_tokens` is 0.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    choice: int
    num_prompt_tokens: int = 0
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    num_logprobs: int | None = None

    @property
    def has_penalties(self) -> bool:
        """What was sampled depends on the ids before it as such, not only on their keys and values."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0


class Row(msgspec.Struct, frozen=True):
    """One request's share of a step.

    The inputs are ``[what fed_by sampled] + token_ids``, at absolute positions ``start_pos, start_pos + 1, …``. Their
    keys and values are written to the row's blocks, then each input attends to positions up to its own.

    Attributes:
        block_ids: int32, the request's block table; block i holds positions ``i * block_size`` onwards. Covers at least
            every input's position.
        num_sampled: 0 for a chunk in the middle of a prompt; 1 samples after the last input; k + 1 verifies the last k
            inputs as drafts: ids are sampled after each of the last k + 1 inputs and the result holds them up to and
            including the first that differs from the draft (1 to k + 1 ids).
        sampling: None if and only if `num_sampled` is 0. The noise for an id uses the absolute position that the
            sampled id takes, that is its input's position + 1.
        want_digests: report a 64-bit digest of the float32 logits behind each sampled id.
        want_logits: report the float32 logits after *every* input (teacher forcing; `num_sampled` may be 0).
        deferred: the forward pass runs, but sampling waits for `Backend.sample` to bring this row's masks.
        context_ids: int32, the ids at positions ``[0, start_pos)``; given if and only if `sampling` has penalties.
        scored_ids: log probabilities are wanted of ids that follow inputs: id i after input i, for the first
            ``len(scored_ids)`` inputs.
        num_scored: how many of the likeliest tokens to report beside each of `scored_ids`.
    """

    start_pos: int
    token_ids: Sequence[int]
    block_ids: NDArray[np.int32]
    num_sampled: int
    sampling: RowSampling | None = None
    fed_by: FedBy | None = None
    want_digests: bool = False
    want_logits: bool = False
    deferred: bool = False
    context_ids: NDArray[np.int32] | None = None
    scored_ids: Sequence[int] = ()
    num_scored: int = 0


class Step(msgspec.Struct, frozen=True):
    """One batch. Ids grow by one from step to step."""

    step_id: StepId
    rows: Sequence[Row]


def steps_of_round(first: Step, num_steps: int) -> Iterator[Step]:
    """A step, and those after it in which each row's only input is what it sampled in the step before. For that, every
    row of the first must compute one token and sample one, without a mask or penalties, and its `block_ids` must cover
    the last step's position."""
    step = first
    yield step
    for _ in range(num_steps - 1):
        rows = [
            structs.replace(row, start_pos=row.start_pos + 1, token_ids=(), fed_by=FedBy(step.step_id, number))
            for number, row in enumerate(step.rows)
        ]
        step = Step(StepId(step.step_id + 1), rows)
        yield step


class RowResult(msgspec.Struct, frozen=True):
    """What a row produced.

    Attributes:
        token_ids: 0 ids if nothing was to be sampled, else 1 to k + 1.
        digests, logprobs: one for each id if asked for.
        scored: one for each of the row's `scored_ids`.
        logits: float32 (inputs, vocabulary) if asked for.
        finite: False if a logit was NaN or infinite: the row's ids mean nothing and its request must fail alone.
    """

    token_ids: Sequence[int]
    digests: Sequence[int] = ()
    logits: NDArray[np.float32] | None = None
    finite: bool = True
    logprobs: Sequence[Logprobs] = ()
    scored: Sequence[Logprobs] = ()


class StepResult(msgspec.Struct, frozen=True):
    """Results in the order of the step's rows, and the seconds that the device was busy with it."""

    step_id: StepId
    rows: Sequence[RowResult]
    run_s: float


@dataclass(frozen=True, slots=True)
class NumericFormat:
    """What, besides the request and the model, fixes every bit of the output (law 1).

    Attributes:
        weights: native formats in use, such as ``q4g32m+q8g32``.
        activations: ``f32``, ``bf16`` or ``int8``.
        kv: ``bf16``, ``int8`` or ``f32``.
        isa: ``avx512``, ``avx2``, ``generic``, ``numpy``…
    """

    weights: str
    activations: str
    kv: str
    isa: str


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """Sizes that are fixed at start-up.

    Attributes:
        num_blocks: KV blocks to reserve (untouched blocks cost no memory).
        block_size: tokens in a block, a multiple of 16.
        kv_dtype: ``bf16``, ``int8`` or ``f32``.
        activations: ``float`` or ``int8``.
        max_rows, max_tokens: rows and input tokens of the largest step.
        isa: highest instruction set to use; None means what the processor has.
        packed: where packed weights may be kept and found; None: nowhere.
    """

    num_blocks: int
    block_size: int
    max_rows: int
    max_tokens: int
    kv_dtype: str = "bf16"
    activations: str = "float"
    num_threads: int = 1
    isa: str | None = None
    packed: PackedCache | None = None


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Where the time of some steps went. Times are in nanoseconds since `start_ns`.

    Attributes:
        phases: names of a step's parts.
        start_ns: when the profile began, on the system's monotonic clock.
        steps: int64 (steps, 4): start, end, rows, input tokens. A step that failed has no length.
        work: float64 (steps, phases, 3): bytes of weights, bytes of keys and values, operations, at the least.
        busy: int64 (threads, steps, phases): time that threads worked.
        spans: int64 (spans, 8): thread, phase, layer, step, start, end, time that it worked, items.
        num_skipped_steps, num_lost_spans: that found no room.
    """

    phases: tuple[str, ...]
    start_ns: int
    steps: NDArray[np.int64]
    work: NDArray[np.float64]
    busy: NDArray[np.int64]
    spans: NDArray[np.int64]
    num_skipped_steps: int
    num_lost_spans: int


class StepProfiler(Protocol):
    """What a backend that can be profiled offers. Both methods wait for submitted steps, none of which may still wait
    for masks."""

    def start(self, max_steps: int, max_spans: int) -> None:
        """Record the next steps, at most so many, and so many spans of them. Memory for both is reserved now."""
        ...

    def stop(self) -> DeviceProfile:
        """End the recording that `start` began."""
        ...


class Backend(Protocol):
    """A device that holds one model's weights and its KV blocks. Made by `freehold.backends.open_backend`."""

    @property
    def profiler(self) -> StepProfiler | None:
        """None if this backend doesn't know where its time goes."""
        ...

    @property
    def numeric_format(self) -> NumericFormat: ...

    @property
    def weight_bytes(self) -> int:
        """Bytes that the packed weights occupy."""
        ...

    @property
    def scratch_bytes(self) -> int:
        """Bytes of activations and logits reserved at start-up."""
        ...

    def submit(self, step: Step, num_steps: int = 1) -> None:
        """Start a step, or a round of steps that `steps_of_round` describes. Raises nothing for a well-formed step;
        failures surface in `collect`, which is called for each step."""
        ...

    def sample(self, step_id: StepId, masks: Mapping[int, NDArray[np.uint32]]) -> None:
        """Finish the deferred rows of a submitted step: row index → bitmasks, uint32 (num_sampled, ceil(vocabulary /
        32)), one for each id that the row may sample; bit t of the whole set if token t is allowed, and none beyond the
        vocabulary. A row's first mask allows something; its ids end before a later one that allows nothing. Must name
        exactly the deferred rows. A step with a deferred row can be collected only afterwards."""
        ...

    def wait(self, step_id: StepId) -> None:
        """Wait for a submitted step, and so for all before it, whether they fail or not. None of them may wait for
        masks. Raises nothing."""
        ...

    def collect(self, step_id: StepId) -> StepResult:
        """Wait for a step and return its results. Each step is collected once, in order.

        Raises:
            StepError: this step alone failed. After any other exception the backend can only be closed.
        """
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy KV blocks, (source, destination) pairs, after all submitted steps."""
        ...

    def read_block(self, block_id: int) -> bytes:
        """One block's keys and values over all layers, in the backend's own order."""
        ...

    def write_block(self, block_id: int, data: bytes) -> None:
        """Restore what `read_block` returned."""
        ...

    def close(self) -> None:
        """Wait for submitted steps, stop threads, free memory. Idempotent."""
        ...
