"""The block pool, block tables and the checker that watches them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.kv.blocks import BlockPool, BlockTable
from freehold.kv.check import InvariantError, check_pool


def table_of(block_ids: list[int]) -> BlockTable:
    table = BlockTable()
    table.extend(block_ids)
    return table


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "release"]), st.integers(0, 9)), max_size=60))
def test_any_order_of_taking_sharing_and_releasing_balances(actions: list[tuple[str, int]]) -> None:
    pool = BlockPool(16)
    tables: list[BlockTable] = []
    for action, number in actions:
        if action == "take" and number <= pool.num_free:
            block_ids = pool.allocate(number)
            assert len(set(block_ids)) == number
            tables.append(table_of(block_ids))
        elif action == "share" and tables:
            pool.share(tables[number % len(tables)])
            tables.append(table_of(list(tables[number % len(tables)])))
        elif action == "release" and tables:
            pool.release(tables.pop(number % len(tables)))
        check_pool(pool, tables)
        assert pool.num_held == len({block_id for table in tables for block_id in table})
    for table in tables:
        pool.release(table)
    check_pool(pool, [])
    assert pool.num_free == 16


def test_a_pool_gives_no_more_than_it_has() -> None:
    pool = BlockPool(3)
    pool.allocate(2)
    with pytest.raises(ValueError, match="2 blocks wanted, 1 of 3 are free"):
        pool.allocate(2)
    assert pool.num_free == 1


def test_free_blocks_can_neither_be_released_nor_shared() -> None:
    pool = BlockPool(3)
    block_ids = pool.allocate(1)
    pool.release(block_ids)
    with pytest.raises(ValueError, match="not held"):
        pool.release(block_ids)
    with pytest.raises(ValueError, match="free"):
        pool.share(block_ids)


def test_freed_blocks_are_used_before_untouched_ones() -> None:
    pool = BlockPool(1000)
    for _ in range(100):
        pool.release(pool.allocate(5))
    assert max(pool.allocate(5)) < 5


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=20), max_size=20))
def test_a_table_grows_under_a_reader(pieces: list[list[int]]) -> None:
    """Views that a step in flight holds keep their contents while the table grows."""
    table, views, everything = BlockTable(), [], []
    for piece in pieces:
        table.extend(piece)
        everything += piece
        views.append((np.frombuffer(table.buffer, np.int32, len(table)), list(everything)))
    assert list(table) == everything
    for view, expected in views:
        assert view.tolist() == expected


def test_the_checker_sees_each_kind_of_contradiction() -> None:
    def leaked() -> tuple[BlockPool, list[BlockTable]]:
        pool = BlockPool(4)
        pool.allocate(1)
        return pool, []

    def held_twice() -> tuple[BlockPool, list[BlockTable]]:
        pool = BlockPool(4)
        block_ids = pool.allocate(1)
        return pool, [table_of(block_ids), table_of(block_ids)]

    def held_but_free() -> tuple[BlockPool, list[BlockTable]]:
        return BlockPool(4), [table_of([2])]

    def free_twice() -> tuple[BlockPool, list[BlockTable]]:
        pool = BlockPool(4)
        pool._free.append(2)
        return pool, []

    def lost() -> tuple[BlockPool, list[BlockTable]]:
        pool = BlockPool(4)
        pool._free.remove(2)
        return pool, []

    def foreign() -> tuple[BlockPool, list[BlockTable]]:
        return BlockPool(4), [table_of([4])]

    for make in (leaked, held_twice, held_but_free, free_twice, lost, foreign):
        with pytest.raises(InvariantError):
            check_pool(*make())
