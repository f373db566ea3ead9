"""The referee of the step contract: watches what is submitted, and what was written where."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from freehold.backends.base import BackendOptions, Row, Step, StepId

MASK_64 = (1 << 64) - 1
CHAIN_START = 1
CHAIN_FACTOR = 0x9E3779B97F4A7C15


class ContractError(AssertionError):
    """A step broke the rules of `freehold.backends.base`: a fault in the scheduler or the runner."""


def expect(condition: bool, message: str) -> None:
    """Raise ContractError unless the condition holds."""
    if not condition:
        raise ContractError(message)


def extend_chain(chain: int, token_id: int) -> int:
    """A fingerprint of all ids up to and including this one."""
    return (chain * CHAIN_FACTOR + token_id + 1) & MASK_64


class TokenCells:
    """What was written where: per cell a token id, the chain of all ids before it and the chain including it.

    A context is whole if and only if each of its cells begins with the chain that the one before ends with.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.token_ids = np.zeros(num_blocks * block_size, np.int32)
        self.before = np.zeros(num_blocks * block_size, np.uint64)
        self.after = np.zeros(num_blocks * block_size, np.uint64)

    def cells(self, block_ids: NDArray[np.int32], end_pos: int) -> NDArray[np.int64]:
        """Cell numbers of positions 0 to `end_pos` - 1."""
        positions = np.arange(end_pos)
        cells: NDArray[np.int64] = block_ids[positions // self.block_size] * np.int64(self.block_size)
        return cells + positions % self.block_size

    def check(self, cells: NDArray[np.int64]) -> None:
        """Every position was written, by a row that had exactly the positions before it as its context."""
        if cells.size:
            expected = np.concatenate((np.array([CHAIN_START], np.uint64), self.after[cells[:-1]]))
            wrong = np.flatnonzero(self.before[cells] != expected)
            expect(wrong.size == 0, f"position {wrong[:1]} was not computed in this context, or overwritten")

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, (source, destination) pairs, one after the other."""
        for source, destination in pairs:
            for values in (self.token_ids, self.before, self.after):
                blocks = values.reshape(-1, self.block_size)
                blocks[destination] = blocks[source]

    def write(self, cells: NDArray[np.int64], start_pos: int, token_ids: Sequence[int]) -> list[int]:
        """Write inputs from `start_pos` on. Returns the chain after each."""
        chain = int(self.after[cells[start_pos - 1]]) if start_pos else CHAIN_START
        chains = [chain]
        for token_id in token_ids:
            chain = extend_chain(chain, token_id)
            chains.append(chain)
        written = cells[start_pos:]
        self.token_ids[written] = token_ids
        self.before[written] = np.array(chains[:-1], np.uint64)
        self.after[written] = np.array(chains[1:], np.uint64)
        return chains[1:]


class _Reach(NamedTuple):
    """How far a row's request reaches: its blocks up to the row's last input, and the position after that."""

    table: tuple[int, ...]
    end_pos: int


class StepReferee:
    """Checks steps in themselves and against those in flight, without looking at what was written.

    Attributes:
        in_flight: by step and block, the rows that use the block.
    """

    def __init__(self, vocab_size: int, options: BackendOptions) -> None:
        self.in_flight: dict[StepId, dict[int, list[_Reach]]] = {}
        self._deferred: dict[StepId, dict[int, int]] = {}  # rows that wait for masks: how many each
        self._vocab_size = vocab_size
        self._options = options
        self._next_step_id: int | None = None

    def submitted(self, step: Step) -> None:
        """A step is about to be submitted.

        Raises:
            ContractError: it must not be.
        """
        expect(self._next_step_id in (None, step.step_id), f"step {step.step_id} came, {self._next_step_id} was next")
        self._next_step_id = step.step_id + 1
        num_rows, max_rows, max_tokens = len(step.rows), self._options.max_rows, self._options.max_tokens
        expect(0 < num_rows <= max_rows, f"{num_rows} rows, 1 to {max_rows} allowed")
        num_inputs = sum(_num_inputs(row) for row in step.rows)
        expect(num_inputs <= max_tokens, f"{num_inputs} inputs, {max_tokens} allowed")
        reaches = [self._check_row(row) for row in step.rows]
        users: dict[int, list[_Reach]] = {}
        for reach in reaches:
            for block_id in reach.table:
                users.setdefault(block_id, []).append(reach)
        for row, reach in zip(step.rows, reaches, strict=True):
            for block_id in reach.table[row.start_pos // self._options.block_size :]:
                expect(len(users[block_id]) == 1, f"block {block_id} is written by one row and used by another")
                for earlier in self.in_flight.values():
                    for other in earlier.get(block_id, ()):
                        is_next = row.start_pos >= other.end_pos and reach.table[: len(other.table)] == other.table
                        expect(is_next, f"block {block_id} is written, but another request's row in flight uses it")
        self.in_flight[step.step_id] = users
        self._deferred[step.step_id] = {i: row.num_sampled for i, row in enumerate(step.rows) if row.deferred}

    def copied(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Blocks are about to be copied, after all submitted steps.

        Raises:
            ContractError: a block is out of range, or one that would be overwritten is in use by a row in flight.
        """
        for source, destination in pairs:
            both_exist = all(0 <= block_id < self._options.num_blocks for block_id in (source, destination))
            expect(both_exist, f"block {source} can't be copied to {destination}")
            is_used = any(destination in users for users in self.in_flight.values())
            expect(not is_used, f"block {destination} is copied to, but a row in flight uses it")

    def masked(self, step_id: StepId, masks: Mapping[int, NDArray[np.uint32]]) -> None:
        """Masks are about to be brought for a step's deferred rows.

        Raises:
            ContractError: for other rows, a second time, of another shape, or masks that allow what doesn't exist, or
                nothing at first.
        """
        waiting = self._deferred.get(step_id, {})
        expect(masks.keys() == waiting.keys(), f"rows {sorted(waiting)} wait for masks, {sorted(masks)} were brought")
        self._deferred[step_id] = {}
        for row, mask in masks.items():
            shape = (waiting[row], -(-self._vocab_size // 32))
            expect(mask.dtype == np.uint32 and mask.shape == shape, f"masks {mask.dtype}{mask.shape}, not {shape}")
            bits = np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), axis=1, bitorder="little")
            expect(bool(bits[0].any()), f"the first mask of row {row} allows nothing")
            expect(not bits[:, self._vocab_size :].any(), f"masks of row {row} allow ids beyond the vocabulary")

    def collected(self, step_id: StepId) -> None:
        """A step is about to be collected.

        Raises:
            ContractError: it is not the oldest in flight, or waits for masks.
        """
        expect(next(iter(self.in_flight), None) == step_id, f"step {step_id} is not the oldest in flight")
        expect(not self._deferred.pop(step_id), f"step {step_id} still waits for masks")
        del self.in_flight[step_id]

    def _check_row(self, row: Row) -> _Reach:
        """Check a row in itself."""
        end_pos = row.start_pos + _num_inputs(row)
        expect(end_pos > row.start_pos, "a row without inputs")
        expect(all(0 <= t < self._vocab_size for t in row.token_ids), f"ids out of vocabulary in {row.token_ids}")
        expect(0 <= row.num_sampled <= _num_inputs(row), f"{row.num_sampled} ids after {_num_inputs(row)} inputs")
        expect((row.sampling is None) == (row.num_sampled == 0), "sampling without ids wanted, or the reverse")
        expect(not row.deferred or row.num_sampled > 0, "a deferred row that samples nothing")
        expect(len(row.scored_ids) <= _num_inputs(row), f"{len(row.scored_ids)} ids to score")
        wants_context = row.sampling is not None and row.sampling.has_penalties
        expect((row.context_ids is not None) == wants_context, "penalties without context, or the reverse")
        if row.context_ids is not None:
            expect(row.context_ids.dtype == np.int32, f"context ids are {row.context_ids.dtype}")
            expect(row.context_ids.shape == (row.start_pos,), f"{row.context_ids.shape} context ids")
        expect(row.block_ids.dtype == np.int32, f"block ids are {row.block_ids.dtype}")
        num_blocks = -(-end_pos // self._options.block_size)
        expect(len(row.block_ids) >= num_blocks, f"{len(row.block_ids)} blocks, {num_blocks} needed")
        table = tuple(row.block_ids[:num_blocks].tolist())
        expect(len(set(table)) == len(table), f"a block is twice in {table}")
        expect(all(0 <= b < self._options.num_blocks for b in table), f"blocks out of range in {table}")
        return _Reach(table, end_pos)


def _num_inputs(row: Row) -> int:
    return len(row.token_ids) + (row.fed_by is not None)
