"""How far a backend's next-token distributions lie from the truth, teacher-forced: the same tokens go into both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freehold.backends.base import Backend, BackendOptions, Row, Step, StepId

Floats = NDArray[np.float32]
BLOCK_SIZE = 32


@dataclass(frozen=True, slots=True)
class Divergence:
    """Kullback-Leibler divergence KL(truth || other) over positions, in nats.

    Attributes:
        top1_agreement: share of positions at which both have the same likeliest token.
    """

    num_positions: int
    mean_kl: float
    median_kl: float
    p99_kl: float
    max_kl: float
    top1_agreement: float

    def __str__(self) -> str:
        return (
            f"{self.num_positions} positions: KL mean {self.mean_kl:.3g}, median {self.median_kl:.3g}, "
            f"99 % {self.p99_kl:.3g}, max {self.max_kl:.3g}; top-1 agreement {self.top1_agreement:.2%}"
        )


@dataclass(frozen=True, slots=True)
class PositionDivergence:
    """The divergence at each of N positions: KL, float64 (N,), and whether the likeliest token agrees, bool (N,)."""

    kl: NDArray[np.float64]
    agrees: NDArray[np.bool_]


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    """Log-probabilities over the last axis, in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def compare(truth: Floats, other: Floats) -> PositionDivergence:
    """Compare logits of shape (N, V), position by position.

    Raises:
        ValueError: the shapes differ, or a logit isn't finite.
    """
    if truth.shape != other.shape:
        raise ValueError(f"logits of shape {other.shape} can't be compared with {truth.shape}")
    if not (np.isfinite(truth).all() and np.isfinite(other).all()):
        raise ValueError("logits that aren't finite can't be compared")
    kl = np.empty(len(truth))
    for index, (truth_row, other_row) in enumerate(zip(truth, other, strict=True)):
        log_p = log_softmax(truth_row)
        kl[index] = np.exp(log_p) @ (log_p - log_softmax(other_row))
    return PositionDivergence(kl=np.maximum(kl, 0.0), agrees=truth.argmax(axis=-1) == other.argmax(axis=-1))


def summarize(parts: Sequence[PositionDivergence]) -> Divergence:
    """Pool the positions of several texts."""
    kl = np.concatenate([part.kl for part in parts])
    agrees = np.concatenate([part.agrees for part in parts])
    return Divergence(
        num_positions=kl.size,
        mean_kl=float(kl.mean()),
        median_kl=float(np.median(kl)),
        p99_kl=float(np.quantile(kl, 0.99)),
        max_kl=float(kl.max()),
        top1_agreement=float(agrees.mean()),
    )


def options_for(
    *,
    num_positions: int,
    chunk_size: int,
    kv_dtype: str = "bf16",
    activations: str = "float",
    num_threads: int = 1,
    isa: str | None = None,
) -> BackendOptions:
    """Backend sizes that `forced_logits` needs for texts of up to `num_positions` tokens."""
    return BackendOptions(
        num_blocks=-(-num_positions // BLOCK_SIZE),
        block_size=BLOCK_SIZE,
        max_rows=1,
        max_tokens=chunk_size,
        kv_dtype=kv_dtype,
        activations=activations,
        num_threads=num_threads,
        isa=isa,
    )


def forced_logits(
    backend: Backend, token_ids: Sequence[int], options: BackendOptions, first_step_id: int
) -> Iterator[Floats]:
    """Logits after every token of a text that starts at position 0: pieces (chunk, V), in order.

    Args:
        options: those that the backend was opened with; `max_tokens` is the chunk size.
        first_step_id: the backend's next step id; each chunk takes one.
    """
    block_ids = np.arange(-(-len(token_ids) // options.block_size), dtype=np.int32)
    for number, start in enumerate(range(0, len(token_ids), options.max_tokens)):
        chunk = list(token_ids[start : start + options.max_tokens])
        row = Row(start_pos=start, token_ids=chunk, block_ids=block_ids, num_sampled=0, want_logits=True)
        step_id = StepId(first_step_id + number)
        backend.submit(Step(step_id=step_id, rows=[row]))
        logits = backend.collect(step_id).rows[0].logits
        assert logits is not None
        yield logits
