"""The prefix tree: which blocks hold which ids after which ids, kept for whoever begins in the same way.

A node is one block. The path to it spells the ids from position 0 on, and on every hit they are compared in full; there
is no hash of ids that could collide. Trees of different namespaces know nothing of each other.

What goes first when blocks run out is decided by value, after GreedyDual (Young 1994; Cao and Irani 1997): a block is
worth what computing it again costs, on top of a floor that rises to the value of each block that went. So the floor is
a logical clock, blocks of equal cost go in the order of their last use, and costly ones stay longer.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter

from freehold.kv.blocks import INT32, BlockPool

Ids = Sequence[int]

PARITY_POS = 4096
"""Position about which attention to all tokens before costs as much as the rest of a small model."""

_ids = attrgetter("ids")


class Place:
    """A point that cached ids may go on from.

    Attributes:
        end_pos: ids up to here.
        children: sorted by their ids; no two are equal.
    """

    __slots__ = ("children", "end_pos")

    def __init__(self, end_pos: int) -> None:
        self.end_pos = end_pos
        self.children: list[Node] = []

    def index_of(self, ids: "array[int]") -> int:
        """Where ids are, or would be, among the children."""
        return bisect_left(self.children, ids, key=_ids)

    def child(self, ids: "array[int]") -> "Node | None":
        """The child with exactly these ids."""
        index = self.index_of(ids)
        return self.children[index] if index < len(self.children) and self.children[index].ids == ids else None

    def closest(self, ids: "array[int]") -> "tuple[Node, int] | None":
        """The child that begins most like `ids`, and how many they have in common; None if that is nothing."""
        index = self.index_of(ids)
        near = self.children[max(0, index - 1) : index + 1]  # in sorted order nothing else can have more in common
        best = max(((node, num_common(node.ids, ids)) for node in near), key=lambda pair: pair[1], default=None)
        return best if best is not None and best[1] else None


class Root(Place):
    """Where the prompts of one namespace begin."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: str) -> None:
        super().__init__(0)
        self.namespace = namespace


class Node(Place):
    """One block. What a kind of layer needs to go on from here besides keys and values will be kept here too.

    Attributes:
        ids: int32, as many as a block has; fewer in a tail, which never has children.
        value: see the top of this file; set when the block's last holder leaves.
        queue_number: of the node's newest entry in the queue for eviction.
        num_pins: pins that have not expired.
        is_kept: False once it was taken out of the tree.
    """

    __slots__ = ("block_id", "ids", "is_kept", "num_pins", "parent", "queue_number", "value")

    def __init__(self, parent: "Root | Node", ids: "array[int]", block_id: int) -> None:
        super().__init__(parent.end_pos + len(ids))
        self.parent = parent
        self.ids = ids
        self.block_id = block_id
        self.value = 0.0
        self.queue_number = 0
        self.num_pins = 0
        self.is_kept = True

    @property
    def cost(self) -> float:
        """What it takes to compute the block again, in tokens at the beginning of a prompt."""
        return len(self.ids) * (1 + self.parent.end_pos / PARITY_POS)


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
    """Cached blocks of one pool. Blocks in the tree that nobody holds stay until `evict` takes them."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self.block_size = block_size
        self._roots: dict[str, Root] = {}
        self._nodes: dict[int, Node] = {}  # by block
        self._floor = 0.0
        self._numbers = count()
        self._resting: list[
            tuple[bool, float, int, Node]
        ] = []  # heap: pinned, value, number; may hold outdated entries
        self._pins: list[tuple[float, int, Node]] = []  # heap by expiry

    def __len__(self) -> int:
        return len(self._nodes)

    def nodes(self) -> Iterator[Node]:
        """All nodes, in no order."""
        return iter(self._nodes.values())

    # ------------------------------------------------------------------ find

    def match(self, namespace: str, ids: Ids, max_tokens: int) -> Match:
        """The longest cached beginning of ``ids[:max_tokens]``. Changes nothing."""
        place: Root | Node | None = self._roots.get(namespace)
        nodes: list[Node] = []
        if place is None:
            return Match(nodes)
        size, pos = self.block_size, 0
        while pos + size <= max_tokens:
            child = place.child(array(INT32, ids[pos : pos + size]))
            if child is None:
                break
            nodes.append(child)
            place, pos = child, pos + size
        closest = place.closest(array(INT32, ids[pos : min(pos + size, max_tokens)]))
        return Match(nodes) if closest is None else Match(nodes, *closest)

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
        elif not place.children:
            del self._roots[namespace]

    def _place(self, namespace: str, after: Node | None) -> Root | Node:
        return after or self._roots.setdefault(namespace, Root(namespace))

    def _insert(self, place: Root | Node, ids: "array[int]", block_id: int) -> Node:
        index = place.index_of(ids)
        before = place.children[index - 1] if index else None
        node = Node(place, ids, block_id)
        place.children.insert(index, node)
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
            gone.is_kept = False
            self._forget_block(gone)
        if isinstance(node.parent, Node):
            self._rest(node.parent)
        elif not siblings:
            del self._roots[node.parent.namespace]

    def drop_all(self, namespace: str) -> None:
        """Forget a namespace."""
        while (root := self._roots.get(namespace)) is not None:
            self.drop(root.children[-1])

    def _rest(self, node: Node) -> None:
        """Queue a node for eviction if it can go by itself now."""
        if node.is_kept and not node.children and self._pool.ref_count(node.block_id) == 0:
            node.queue_number = next(self._numbers)
            heappush(self._resting, (node.num_pins > 0, node.value, node.queue_number, node))
            if len(self._resting) > 4 * self._pool.num_blocks:
                self._resting = [entry for entry in self._resting if self._is_due(entry)]
                heapify(self._resting)

    def _is_due(self, entry: tuple[bool, float, int, Node]) -> bool:
        """Whether an entry of the queue is its node's newest, and the node can still go."""
        node = entry[3]
        is_newest = node.queue_number == entry[2]
        return is_newest and node.is_kept and not node.children and self._pool.ref_count(node.block_id) == 0

    def _least_valuable(self) -> Node:
        while self._resting:
            entry = heappop(self._resting)
            if self._is_due(entry):
                return entry[3]
        # Nobody holds it, but what follows is held by a request that has computed this block for itself.
        return next(node for node in self._nodes.values() if self._pool.ref_count(node.block_id) == 0)

    # ------------------------------------------------------------------ pins

    def pin(self, namespace: str, ids: Ids, until_s: float) -> int:
        """Evict the full blocks that begin `ids` only when nothing else is left. Returns how many ids they hold."""
        nodes = self.match(namespace, ids, len(ids)).nodes
        if not nodes:
            return 0
        for node in nodes:
            node.num_pins += 1
            self._rest(node)
        heappush(self._pins, (until_s, next(self._numbers), nodes[-1]))
        return nodes[-1].end_pos

    def unpin_expired(self, now_s: float) -> None:
        """End the pins whose time is up."""
        while self._pins and self._pins[0][0] <= now_s:
            place: Root | Node = heappop(self._pins)[2]
            while isinstance(place, Node):
                place.num_pins -= 1
                self._rest(place)
                place = place.parent


def num_common(a: Ids, b: Ids) -> int:
    """How many ids two sequences have in common from their beginning on."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
