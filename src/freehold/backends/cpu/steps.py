"""Steps as the flat arrays that native code takes, and results back. The column order is csrc/bind.cpp's."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freehold.backends.base import Row, RowResult, RowSampling, Step

WANT_DIGESTS, WANT_LOGITS, DEFERRED, FED = 1, 2, 4, 8
UNSAMPLED = RowSampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, choice=0)
"""Fills the rules of rows that sample nothing; never used."""

NativeRow = tuple[list[int], list[int], NDArray[np.float32] | None, bool]


@dataclass(frozen=True, slots=True)
class StepArrays:
    """One step.

    Attributes:
        columns: (rows, 9): start_pos, inputs, blocks, num_sampled, flags, fed step, fed row, top_k, choice.
        rules: (rows, 3): temperature, top_p, min_p.
        seeds: (rows,).
        token_ids: (inputs,), all rows' inputs; a fed input is 0 here.
        block_ids: all rows' block tables.
    """

    columns: NDArray[np.int64]
    rules: NDArray[np.float64]
    seeds: NDArray[np.uint64]
    token_ids: NDArray[np.int32]
    block_ids: NDArray[np.int32]


def flatten(step: Step, block_size: int) -> StepArrays:
    """Lay a step out flat. Block tables are cut to the blocks that the row's positions need."""
    columns: list[tuple[int, ...]] = []
    rules: list[tuple[float, float, float]] = []
    seeds: list[int] = []
    token_ids: list[int] = []
    tables: list[NDArray[np.int32]] = []
    for row in step.rows:
        sampling = row.sampling or UNSAMPLED
        num_inputs = len(row.token_ids)
        fed_step, fed_row = 0, 0
        if row.fed_by is not None:
            fed_step, fed_row = row.fed_by.step_id, row.fed_by.row
            token_ids.append(0)
            num_inputs += 1
        token_ids.extend(row.token_ids)
        table = row.block_ids[: -(-(row.start_pos + num_inputs) // block_size)]
        tables.append(table)
        columns.append(
            (
                row.start_pos,
                num_inputs,
                table.size,
                row.num_sampled,
                _flags(row),
                fed_step,
                fed_row,
                sampling.top_k,
                sampling.choice,
            )
        )
        rules.append((sampling.temperature, sampling.top_p, sampling.min_p))
        seeds.append(sampling.seed)
    return StepArrays(
        columns=np.array(columns, dtype=np.int64).reshape(-1, 9),
        rules=np.array(rules, dtype=np.float64).reshape(-1, 3),
        seeds=np.array(seeds, dtype=np.uint64),
        token_ids=np.array(token_ids, dtype=np.int32),
        block_ids=np.concatenate(tables, dtype=np.int32) if tables else np.empty(0, dtype=np.int32),
    )


def _flags(row: Row) -> int:
    return (
        WANT_DIGESTS * row.want_digests
        | WANT_LOGITS * row.want_logits
        | DEFERRED * row.deferred
        | FED * (row.fed_by is not None)
    )


def row_results(rows: Sequence[NativeRow]) -> list[RowResult]:
    """Native rows as the contract's results."""
    return [
        RowResult(token_ids=token_ids, digests=digests, logits=logits, finite=finite)
        for token_ids, digests, logits, finite in rows
    ]
