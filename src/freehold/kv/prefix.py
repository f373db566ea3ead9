"""The prefix tree: which blocks hold which ids after which ids, kept for whoever begins in the same way.

A node is one block. The path to it spells the ids from position 0 on, and on every hit they are compared in full; there
is no hash of ids that could collide. Namespaces know nothing of each other, but that all may go on from what the public
one has: what they add there is theirs alone.

What goes first when blocks run out is decided by value, after GreedyDual (Young 1994; Cao and Irani 1997): a block is
worth what computing it again costs, on top of a floor that rises to the value of each block that went. So the floor is
a logical clock, blocks of equal cost go in the order of their last use, and costly ones stay longer.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from freehold.kv.blocks import INT32, BlockPool
from freehold.kv.nodes import PUBLIC, Ids, Node, Root, num_common
from freehold.kv.pins import Pins
from freehold.protocol import MAX_PINNED_SHARE


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached beginning of some ids.

    Attributes:
        nodes: blocks that are used as they are.
        source: a block whose first `num_copied` ids come next; of use after copying.
    """

    nodes: list[Node]
    source: Node | None = None
    num_copied: int = 0

    @property
    def tip(self) -> Node | None:
        """The node of the last block that is used as it is."""
        return self.nodes[-1] if self.nodes else None


class PrefixTree:
    """Cached blocks of one pool. Blocks in the tree that nobody holds stay until `evict` takes them.

    Attributes:
        num_blocks: of each namespace.
        pins: which of them go last.
    """

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self.block_size = block_size
        self._roots: dict[str, Root] = {}
        self._nodes: dict[int, Node] = {}  # by block
        self.num_blocks: Counter[str] = Counter()
        self._floor = 0.0
        self._numbers = count()
        self._resting: list[
            tuple[bool, float, int, Node]
        ] = []  # heap: pinned, value, number; may hold outdated entries
        self.pins = Pins(max_blocks=int(MAX_PINNED_SHARE * pool.num_blocks), on_change=self._rest)

    def __len__(self) -> int:
        return len(self._nodes)

    def nodes(self) -> Iterator[Node]:
        """All nodes, in no order."""
        return iter(self._nodes.values())

    # ------------------------------------------------------------------ find

    def match(self, namespace: str, ids: Ids, max_tokens: int) -> Match:
        """The longest cached beginning of ``ids[:max_tokens]``: what the public namespace has of it, and what this one
        has after that. Changes nothing."""
        nodes: list[Node] = []
        public = self._follow(self._roots.get(PUBLIC), ids, max_tokens, nodes)
        own = None
        if namespace != PUBLIC:
            root = nodes[-1].branches.get(namespace) if nodes else self._roots.get(namespace)
            num_public = len(nodes)
            own = self._follow(root, ids, max_tokens, nodes)
            public = public if len(nodes) == num_public else None
        pos = len(nodes) * self.block_size
        rest = array(INT32, ids[pos : min(pos + self.block_size, max_tokens)])
        found = [place.closest(rest) for place in (public, own) if place is not None]
        closest = max((pair for pair in found if pair is not None), key=lambda pair: pair[1], default=None)
        return Match(nodes) if closest is None else Match(nodes, *closest)

    def _follow(self, place: Root | Node | None, ids: Ids, max_tokens: int, nodes: list[Node]) -> Root | Node | None:
        """Add the nodes that hold what comes next to those before. Returns where that ends."""
        size = self.block_size
        pos = len(nodes) * size
        while place is not None and pos + size <= max_tokens:
            child = place.child(array(INT32, ids[pos : pos + size]))
            if child is None:
                break
            nodes.append(child)
            place, pos = child, pos + size
        return place

    # ------------------------------------------------------------------ keep

    def add(self, namespace: str, after: Node | None, ids: Ids, block_id: int) -> Node:
        """Keep a full block that somebody holds.

        Args:
            after: the node of the block before; None for a prompt's first block.

        Returns:
            Its node. If equal ids were kept there already, that node; it takes this block over if nobody holds its own.
        """
        place = self._place(namespace, after)
        block_ids = array(INT32, ids)
        found = place.child(block_ids)
        if found is None:
            return self._insert(place, block_ids, block_id)
        if self._pool.ref_count(found.block_id) == 0:
            self._forget_block(found)
            self._remember_block(found, block_id)
        return found

    def add_tail(self, namespace: str, after: Node | None, ids: Ids, block_id: int) -> None:
        """Keep the first, computed ids of a block that somebody holds and nobody writes to any more, unless a block
        that begins with them is kept."""
        place = self._place(namespace, after)
        tail_ids = array(INT32, ids)
        closest = place.closest(tail_ids)
        if closest is None or closest[1] < len(tail_ids):
            self._insert(place, tail_ids, block_id)

    def _place(self, namespace: str, after: Node | None) -> Root | Node:
        """Where a namespace goes on."""
        if after is None:
            return self._roots.setdefault(namespace, Root(namespace))
        if after.is_public and namespace != PUBLIC:
            return after.branches.setdefault(namespace, Root(namespace, after))
        return after

    def _insert(self, place: Root | Node, ids: "array[int]", block_id: int) -> Node:
        index = place.index_of(ids)
        before = place.children[index - 1] if index else None
        node = Node(place, ids, block_id)
        place.children.insert(index, node)
        self.num_blocks[node.namespace] += 1
        self._remember_block(node, block_id)
        if before is not None and num_common(before.ids, ids) == len(before.ids):
            self.drop(before)  # a tail that this goes on from
        return node

    def _remember_block(self, node: Node, block_id: int) -> None:
        node.block_id = block_id
        self._nodes[block_id] = node
        self._pool.cache(block_id)

    def _forget_block(self, node: Node) -> None:
        del self._nodes[node.block_id]
        self._pool.uncache(node.block_id)

    # ------------------------------------------------------------------ let go

    def released(self, block_ids: Iterable[int]) -> None:
        """Somebody has let go of these blocks. Those that nobody holds now may be evicted from here on."""
        for block_id in block_ids:
            node = self._nodes.get(block_id)
            if node is not None and self._pool.ref_count(block_id) == 0:
                node.value = self._floor + node.cost
                self._rest(node)

    def evict(self, num_blocks: int) -> None:
        """Free that many blocks, least valuable first, pinned ones last. The caller has looked at the pool's
        `num_evictable`."""
        wanted = self._pool.num_free + num_blocks
        while self._pool.num_free < wanted:
            node = self._least_valuable()
            self._floor = max(self._floor, node.value)
            self.drop(node)

    def drop(self, node: Node) -> None:
        """Take a node out, and all that follows it. Blocks that are held stay with their holders."""
        siblings = node.parent.children
        del siblings[node.parent.index_of(node.ids)]
        leaving = [node]
        while leaving:
            gone = leaving.pop()
            leaving += gone.children
            for branch in gone.branches.values():
                leaving += branch.children
            gone.is_kept = False
            self.num_blocks[gone.namespace] -= 1
            if not self.num_blocks[gone.namespace]:
                del self.num_blocks[gone.namespace]
            self.pins.lose(gone)
            self._forget_block(gone)
        if isinstance(node.parent, Node):
            self._rest(node.parent)
        elif not siblings:
            self._forget_root(node.parent)

    def _forget_root(self, root: Root) -> None:
        """Nothing follows it any more."""
        if root.origin is None:
            del self._roots[root.namespace]
        else:
            del root.origin.branches[root.namespace]
            self._rest(root.origin)

    def drop_all(self, namespace: str) -> None:
        """Forget a namespace."""
        while (root := self._roots.get(namespace)) is not None:
            self.drop(root.children[-1])

    def _rest(self, node: Node) -> None:
        """Queue a node for eviction if it can go by itself now."""
        if self._can_go(node):
            node.queue_number = next(self._numbers)
            heappush(self._resting, (node.num_pins > 0, node.value, node.queue_number, node))
            if len(self._resting) > 4 * self._pool.num_blocks:
                self._resting = [entry for entry in self._resting if self._is_due(entry)]
                heapify(self._resting)

    def _is_due(self, entry: tuple[bool, float, int, Node]) -> bool:
        """Whether an entry of the queue is its node's newest, and the node can still go."""
        node = entry[3]
        return node.queue_number == entry[2] and self._can_go(node)

    def _can_go(self, node: Node) -> bool:
        """Whether a node can be evicted by itself: nobody holds its block, and nothing follows."""
        is_last = not node.children and not node.branches
        return is_last and node.is_kept and self._pool.ref_count(node.block_id) == 0

    def _least_valuable(self) -> Node:
        while self._resting:
            entry = heappop(self._resting)
            if self._is_due(entry):
                return entry[3]
        # Nobody holds it, but what follows is held by a request that has computed this block for itself.
        return next(node for node in self._nodes.values() if self._pool.ref_count(node.block_id) == 0)
