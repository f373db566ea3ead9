"""Invariants of the block pool. Checked whenever the engine is idle and, in tests, after every step."""

from collections import Counter
from collections.abc import Iterable

from freehold.kv.blocks import BlockPool, BlockTable


class InvariantError(AssertionError):
    """The engine's own accounts contradict each other: a fault in Freehold, never in a request."""


def check_pool(pool: BlockPool, tables: Iterable[BlockTable]) -> None:
    """Every block is either free, once, or held by exactly as many tables as its reference count says.

    Args:
        tables: all block tables that exist.

    Raises:
        InvariantError: with the first block that contradicts.
    """
    held = Counter(block_id for table in tables for block_id in table)
    free = Counter(pool.free_ids())
    for block_id in range(pool.num_blocks):
        if pool.ref_count(block_id) != held[block_id]:
            raise InvariantError(
                f"block {block_id} is in {held[block_id]} tables but has {pool.ref_count(block_id)} references"
            )
        if free[block_id] != (0 if held[block_id] else 1):
            raise InvariantError(
                f"block {block_id} is in the free list {free[block_id]} times, in {held[block_id]} tables"
            )
    if strangers := set(held) - set(range(pool.num_blocks)):
        raise InvariantError(f"blocks {sorted(strangers)} are held but not in the pool of {pool.num_blocks}")
