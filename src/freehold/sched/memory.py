"""Blocks for requests: which ones each gets, what of them is reused, and what is kept for those that come later.

Only what an applied step has written enters the prefix tree. So a step that fails leaves nothing there, and whoever
finds a block may read it in the very next step.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from freehold.faults import Point, reach
from freehold.kv.blocks import BlockPool, BlockTable
from freehold.kv.nodes import PUBLIC, Node, Place
from freehold.kv.prefix import PrefixTree
from freehold.protocol import Pin
from freehold.sched.request import Request
from freehold.sched.sharing import Reusable, find_leader, reusable

Copy = tuple[int, int]

_OWN = "of "  # how the names of all namespaces but the public one begin

LOOKUP_INTERVAL = 16
"""Steps between lookups for a request that waits for blocks."""


@dataclass(slots=True)
class PrefixCounts:
    """Since start-up, in tokens of requests that started for the first time: all their known ids, and those reused."""

    num_queried: int = 0
    num_hit: int = 0


class KVMemory:
    """The block pool and the prefix tree over it, on behalf of requests.

    Args:
        prefix_caching: without it, only requests of one family share, and blocks are free as soon as the last of the
            family has let go.
        clock: seconds, monotonic; for pins.
    """

    def __init__(self, pool: BlockPool, block_size: int, *, prefix_caching: bool, clock: Callable[[], float]) -> None:
        self.pool = pool
        self.tree = PrefixTree(pool, block_size)
        self.counts = PrefixCounts()
        self._block_size = block_size
        self.prefix_caching = prefix_caching
        self._families: dict[str, set[Request]] = {}  # by namespace; only without prefix caching
        self._clock = clock

    @property
    def num_families(self) -> int:
        """Families that something is kept for alone."""
        return len(self._families)

    @property
    def num_public(self) -> int:
        """Blocks in the tree that all namespaces may go on from."""
        return self.tree.num_blocks[PUBLIC]

    def largest_namespaces(self, most: int) -> list[tuple[str, int]]:
        """Names (`Generate.cache_namespace`) and blocks in the tree of those that have most, largest first. None
        without prefix caching."""
        sizes = Counter(self.tree.num_blocks) if self.prefix_caching else Counter()
        del sizes[PUBLIC]
        return [(name.removeprefix(_OWN), num_blocks) for name, num_blocks in sizes.most_common(most)]

    def num_blocks(self, num_positions: int) -> int:
        """Blocks that hold so many positions."""
        return -(-num_positions // self._block_size)

    # ------------------------------------------------------------------ start

    def enter(self, request: Request) -> None:
        """A request has come: find out whom it shares with."""
        generate = request.generate
        if self.prefix_caching:
            request.namespace = PUBLIC if generate.is_public else namespace_of(generate.cache_namespace)
        elif generate.family:
            request.namespace = f"{len(generate.family)} {generate.family} {generate.cache_namespace}"
            self._families.setdefault(request.namespace, set()).add(request)

    def leave(self, request: Request) -> None:
        """A request has ended, and no step in flight uses its blocks. With the last of its family goes what was kept
        for that one alone."""
        self.release(request)
        family = self._families.get(request.namespace or "")
        if family is not None:
            family.discard(request)
            if not family:
                del self._families[request.namespace or ""]
                self.tree.drop_all(request.namespace or "")

    def find(self, request: Request, running: Iterable[Request]) -> Reusable:
        """What is there of a request's ids. The last one is left out: it must be computed to sample what follows. So
        is all that follows a token whose logits are wanted."""
        if request.namespace is None:
            return Reusable([], None, 0)
        match = self.tree.match(request.namespace, request.ids, request.num_reusable)
        return reusable(request, match, running, self._block_size)

    def find_leader(self, request: Request, found: Reusable, running: Iterable[Request]) -> bool:
        """Whether a running request is computing what this one should wait for."""
        return request.namespace is not None and find_leader(request, found, running, self._block_size)

    def must_wait(self, request: Request, num_spare: int) -> bool:
        """Whether blocks are too few by what the last `start` found. Saves looking up the same prefix in every step;
        now and then it is looked up all the same, as more of it may have been cached or held meanwhile."""
        is_known = num_spare > 0 and request.num_needed + num_spare > self.pool.num_available
        request.num_waits = request.num_waits + 1 if is_known else 0
        return is_known and request.num_waits % LOOKUP_INTERVAL != 0

    def start(self, request: Request, found: Reusable, num_spare: int) -> Sequence[Copy] | None:
        """Give a request blocks for all its known ids, cached ones where there are any.

        Args:
            found: what `find` has found just now.
            num_spare: blocks that must remain available.

        Returns:
            Copies to be made before its first step; None if there are too few blocks. Nothing was taken then.
        """
        shared = [node.block_id for node in found.nodes]
        num_new = self.num_blocks(len(request.ids)) - len(shared)
        num_evictable = sum(self.pool.ref_count(block_id) == 0 for block_id in shared)
        request.num_needed = num_evictable + num_new
        num_left = self.pool.num_available - request.num_needed - num_spare
        if num_left < 0:
            return None
        # What is copied must outlive the allocation; where it can't be spared, its ids are computed again.
        source_id = found.source_id
        can_copy = source_id is not None and (num_left > 0 or self.pool.ref_count(source_id) > 0)
        sources = [source_id] if source_id is not None and can_copy else []
        self.pool.share([*shared, *sources])
        fresh = self._allocate(num_new)
        self._give_back(sources)
        request.table.extend([*shared, *fresh])
        request.tip = found.tip
        request.num_kept = request.num_shared = len(shared)
        num_reused = len(shared) * self._block_size + (found.num_copied if sources else 0)
        request.num_planned = request.num_computed = num_reused
        if request.num_cached is None:
            request.num_cached = num_reused
            self.counts.num_queried += len(request.ids)
            self.counts.num_hit += num_reused
        return [(source, fresh[0]) for source in sources]

    # ------------------------------------------------------------------ grow and shrink

    def grow(self, request: Request, num_blocks: int) -> None:
        """Add blocks to a request that runs. The caller has looked at the pool's `num_available`."""
        request.table.extend(self._allocate(num_blocks))

    def keep(self, request: Request) -> None:
        """Offer the tree the full blocks that applied steps have computed."""
        if request.num_computed < (request.num_kept + 1) * self._block_size:
            return
        end = min(request.num_computed, len(request.ids)) // self._block_size
        if request.num_kept >= end:
            return
        is_tip_kept = request.tip is None or request.tip.is_kept
        if request.namespace is not None and is_tip_kept and not request.is_suspect:
            for index in range(request.num_kept, end):
                ids = request.ids[index * self._block_size : (index + 1) * self._block_size]
                request.tip = self.tree.add(request.namespace, request.tip, ids, request.table[index])
        request.num_kept = end

    def release(self, request: Request) -> None:
        """Take all blocks of a request that no step in flight uses. What was computed stays in the tree."""
        self.keep(request)
        self._keep_tail(request)
        pin = request.generate.pin
        if pin is not None and request.namespace is not None and len(request.table) > 0:
            self.pin(request.namespace, request.generate.prompt_ids, pin)
        self._give_back(request.table)
        request.table = BlockTable()
        request.tip = None
        request.num_kept = request.num_computed = 0

    def distrust(self, request: Request) -> None:
        """What a request has computed must not be reused: take it out of the tree, and keep nothing from here on."""
        request.is_suspect = True
        first: Node | None = None
        place: Place | None = request.tip
        while isinstance(place, Node) and place.end_pos > request.num_shared * self._block_size:
            first, place = place, place.parent
        if first is not None and first.is_kept:
            self.tree.drop(first)

    def num_returning(self, leaving: Iterable[Request]) -> int:
        """Blocks that become available when these requests let go of theirs."""
        held = Counter(block_id for request in leaving for block_id in request.table)
        return sum(self.pool.ref_count(block_id) == num_held for block_id, num_held in held.items())

    def pin(self, namespace: str, ids: Sequence[int], pin: Pin) -> int:
        """Keep a cached beginning of `ids` for some time, unless requests can't run without its blocks.

        Returns:
            How many blocks are pinned: full ones only.
        """
        now_s = self._clock()
        self.tree.pins.expire(now_s)
        nodes = self.tree.match(namespace, ids, len(ids) if pin.num_tokens is None else pin.num_tokens).nodes
        if not nodes:
            return 0
        until_s = math.inf if pin.ttl_s is None else now_s + pin.ttl_s
        return self.tree.pins.pin(namespace, pin.name or nodes[-1], nodes, until_s)

    def evict_all(self) -> None:
        """Give up every cached block that nobody holds."""
        self.tree.evict(self.pool.num_evictable)

    def _keep_tail(self, request: Request) -> None:
        known = min(request.num_computed, len(request.ids))
        index, num_ids = divmod(known, self._block_size)
        is_tip_kept = request.tip is None or request.tip.is_kept
        if request.namespace is not None and num_ids and is_tip_kept and not request.is_suspect:
            ids = request.ids[known - num_ids : known]
            self.tree.add_tail(request.namespace, request.tip, ids, request.table[index])

    def _allocate(self, num_blocks: int) -> list[int]:
        missing = num_blocks - self.pool.num_free
        if missing > 0:
            reach(Point.EVICT)
            self.tree.pins.expire(self._clock())
            self.tree.evict(missing)
        reach(Point.ALLOCATE)
        return self.pool.allocate(num_blocks)

    def _give_back(self, block_ids: Iterable[int]) -> None:
        self.pool.release(block_ids)
        self.tree.released(block_ids)


def namespace_of(cache_namespace: str) -> str:
    """A request's namespace in the tree. None is the public one."""
    return _OWN + cache_namespace
