"""Invariants of the block pool. Checked whenever the engine is idle and, in tests, after every step."""

from collections import Counter
from collections.abc import Iterable

from freehold.kv.blocks import BlockPool, BlockTable
from freehold.kv.nodes import Root
from freehold.kv.prefix import PrefixTree


class InvariantError(AssertionError):
    """The engine's own accounts contradict each other: a fault in Freehold, never in a request."""


def check_pool(pool: BlockPool, tables: Iterable[BlockTable], tree: PrefixTree | None = None) -> None:
    """Every block is free, once, or in the tree, once, or in exactly as many tables as its reference count says.

    Args:
        tables: all block tables that exist.
        tree: the one tree that keeps blocks of this pool, if any.

    Raises:
        InvariantError: with the first block that contradicts.
    """
    held = Counter(block_id for table in tables for block_id in table)
    cached = Counter(node.block_id for node in tree.nodes()) if tree is not None else Counter()
    free = Counter(pool.free_ids())
    for block_id in range(pool.num_blocks):
        _expect(
            pool.ref_count(block_id) == held[block_id],
            f"block {block_id} is in {held[block_id]} tables but has {pool.ref_count(block_id)} references",
        )
        _expect(
            cached[block_id] == pool.is_cached(block_id), f"block {block_id} is in {cached[block_id]} nodes of the tree"
        )
        _expect(
            free[block_id] == (0 if held[block_id] or cached[block_id] else 1),
            f"block {block_id} is in the free list {free[block_id]} times, in {held[block_id]} tables "
            f"and {cached[block_id]} nodes",
        )
    num_evictable = sum(not held[block_id] for block_id in cached)
    _expect(pool.num_evictable == num_evictable, f"{pool.num_evictable} evictable blocks, {num_evictable} counted")
    strangers = (set(held) | set(cached)) - set(range(pool.num_blocks))
    _expect(not strangers, f"blocks {sorted(strangers)} are in use but not in the pool of {pool.num_blocks}")
    if tree is not None:
        _check_order(tree)


def _check_order(tree: PrefixTree) -> None:
    """Every node is where a search finds it, and nothing follows a tail."""
    for node in tree.nodes():
        _expect(node.is_kept and node.parent.child(node.ids) is node, f"the node of block {node.block_id} isn't found")
        _expect(node.end_pos == node.parent.end_pos + len(node.ids), f"the node of block {node.block_id} is misplaced")
        _expect(
            not node.children or len(node.ids) == tree.block_size, f"the tail in block {node.block_id} has followers"
        )
        parent = node.parent
        origin = parent.origin if isinstance(parent, Root) else None
        is_reached = origin is None or origin.branches.get(getattr(parent, "namespace", "")) is parent
        _expect(isinstance(parent, Root) or parent.is_kept, f"the node of block {node.block_id} is orphaned")
        _expect(is_reached and (origin is None or origin.is_kept), f"the branch of block {node.block_id} is orphaned")


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantError(message)
