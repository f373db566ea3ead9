"""Steps as the flat arrays that native code takes, and results back. The column order is csrc/bind.cpp's."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from freehold.backends.base import Row, RowResult, RowSampling, Step
from freehold.protocol import Logprobs

WANT_DIGESTS, WANT_LOGITS, DEFERRED, FED, WANT_LOGPROBS = 1, 2, 4, 8, 16
UNSAMPLED = RowSampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, choice=0)
"""Fills the rules of rows that sample nothing; never used."""

NUM_COLUMNS, NUM_RULES = 18, 6
START_POS, FLAGS, FED_STEP, FED_ROW = 0, 4, 5, 6
"""Columns that differ from step to step of a round."""
_rules: Callable[[RowSampling], Sequence[float]] = attrgetter(
    "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"
)
NO_IDS = np.empty(0, dtype=np.int32)
NO_BIASES = np.empty(0, dtype=np.float64)

NativeLogprobs = tuple[float, int, tuple[tuple[int, float], ...]]
NativeRow = tuple[list[int], list[int], NDArray[np.float32] | None, bool, list[NativeLogprobs], list[NativeLogprobs]]


@dataclass(frozen=True, slots=True)
class StepArrays:
    """One step, in the order of the native `submit`, which copies what it needs.

    Attributes:
        numbers: the memory of `columns`. Numpy takes longer to look at single numbers.
        columns: (rows, 18): start_pos, inputs, blocks, num_sampled, flags, fed step, fed row, top_k, seed, choice,
            num_prompt_tokens, min_tokens, num_logprobs, context ids, scored ids, num_scored, biases, stop ids.
        rules: (rows, 6): temperature, top_p, min_p, presence, frequency and repetition penalty.
        token_ids: (inputs,), all rows' inputs; a fed input is 0 here.
        block_ids: all rows' block tables.
        more_ids: row after row: context, scored, biased and stop ids.
        biases: one for each biased id.
    """

    numbers: "array[int]"
    columns: NDArray[np.int64]
    rules: NDArray[np.float64]
    token_ids: NDArray[np.int32]
    block_ids: NDArray[np.int32]
    more_ids: NDArray[np.int32]
    biases: NDArray[np.float64]

    def go_on(self, step_id: int) -> None:
        """Become the next step of the round, after the step of this id: see `steps_of_round`."""
        numbers = self.numbers
        for number, at in enumerate(range(0, len(numbers), NUM_COLUMNS)):
            numbers[at + START_POS] += 1
            numbers[at + FLAGS] |= FED
            numbers[at + FED_STEP] = step_id
            numbers[at + FED_ROW] = number


def flatten(step: Step, block_size: int, num_steps: int = 1) -> StepArrays:
    """Lay a step out flat. Block tables are cut to the blocks that the row's positions need, up to the last step of a
    round that begins with it."""
    columns: list[int] = []
    rules: list[float] = []
    token_ids: list[int] = []
    tables: list[NDArray[np.int32]] = []
    more_ids: list[NDArray[np.int32]] = []
    biases: list[float] = []
    for row in step.rows:
        sampling = row.sampling or UNSAMPLED
        num_inputs = len(row.token_ids)
        if row.fed_by is not None:
            num_inputs += 1
            token_ids.append(0)
        token_ids.extend(row.token_ids)
        table = row.block_ids[: -(-(row.start_pos + num_inputs + num_steps - 1) // block_size)]
        tables.append(table)
        columns.extend(_columns(row, sampling, num_inputs, len(table)))
        rules.extend(_rules(sampling))
        if row.context_ids is not None:
            more_ids.append(row.context_ids)
        if row.scored_ids:
            more_ids.append(np.array(row.scored_ids, dtype=np.int32))
        if sampling.logit_bias:
            more_ids.append(np.array([token_id for token_id, _ in sampling.logit_bias], dtype=np.int32))
            biases.extend(bias for _, bias in sampling.logit_bias)
        if sampling.stop_ids:
            more_ids.append(np.array(sampling.stop_ids, dtype=np.int32))
    # Through `array`, as numpy takes several times as long to look at a list of numbers.
    numbers = array("q", columns)
    return StepArrays(
        numbers=numbers,
        columns=np.asarray(numbers).reshape(-1, NUM_COLUMNS),
        rules=np.asarray(array("d", rules)).reshape(-1, NUM_RULES),
        token_ids=np.asarray(array("i", token_ids)),
        block_ids=tables[0] if len(tables) == 1 else np.concatenate(tables, dtype=np.int32) if tables else NO_IDS,
        more_ids=np.concatenate(more_ids, dtype=np.int32) if more_ids else NO_IDS,
        biases=np.asarray(array("d", biases)) if biases else NO_BIASES,
    )


def _columns(row: Row, sampling: RowSampling, num_inputs: int, num_blocks: int) -> tuple[int, ...]:
    fed_step, fed_row = (row.fed_by.step_id, row.fed_by.row) if row.fed_by is not None else (0, 0)
    return (
        row.start_pos,
        num_inputs,
        num_blocks,
        row.num_sampled,
        _flags(row, sampling),
        fed_step,
        fed_row,
        sampling.top_k,
        sampling.seed - (sampling.seed >> 63 << 64),  # the same 64 bits with a sign
        sampling.choice,
        sampling.num_prompt_tokens,
        sampling.min_tokens,
        sampling.num_logprobs or 0,
        0 if row.context_ids is None else len(row.context_ids),
        len(row.scored_ids),
        row.num_scored,
        len(sampling.logit_bias),
        len(sampling.stop_ids),
    )


def _flags(row: Row, sampling: RowSampling) -> int:
    return (
        WANT_DIGESTS * row.want_digests
        | WANT_LOGITS * row.want_logits
        | DEFERRED * row.deferred
        | FED * (row.fed_by is not None)
        | WANT_LOGPROBS * (sampling.num_logprobs is not None)
    )


def row_results(rows: Sequence[NativeRow]) -> list[RowResult]:
    """Native rows as the contract's results."""
    return [
        RowResult(
            token_ids=token_ids,
            digests=digests,
            logits=logits,
            finite=finite,
            logprobs=[Logprobs(*one) for one in logprobs] if logprobs else (),
            scored=[Logprobs(*one) for one in scored] if scored else (),
        )
        for token_ids, digests, logits, finite, logprobs, scored in rows
    ]
