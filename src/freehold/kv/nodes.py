"""What the prefix tree is made of."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

Ids = Sequence[int]

PUBLIC = "public"
"""The namespace whose prefixes those of all others may go on from. What is computed in it is known to everybody."""

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
    """Where what one namespace has for itself begins: at position 0, or where it leaves what all share.

    Attributes:
        origin: the public node that it goes on from.
    """

    __slots__ = ("namespace", "origin")

    def __init__(self, namespace: str, origin: "Node | None" = None) -> None:
        super().__init__(0 if origin is None else origin.end_pos)
        self.namespace = namespace
        self.origin = origin


class Node(Place):
    """One block. What a kind of layer needs to go on from here besides keys and values will be kept here too.

    Attributes:
        ids: int32, as many as a block has; fewer in a tail, which never has children.
        value: see the top of this file; set when the block's last holder leaves.
        queue_number: of the node's newest entry in the queue for eviction.
        num_pins: pins that have not expired.
        is_kept: False once it was taken out of the tree.
        namespace: whom it belongs to.
        is_public: that is the public one.
        branches: what other namespaces have after it, if it is public.
    """

    __slots__ = (
        "block_id",
        "branches",
        "ids",
        "is_kept",
        "is_public",
        "namespace",
        "num_pins",
        "parent",
        "queue_number",
        "value",
    )

    def __init__(self, parent: "Root | Node", ids: "array[int]", block_id: int) -> None:
        super().__init__(parent.end_pos + len(ids))
        self.parent = parent
        self.ids = ids
        self.block_id = block_id
        self.value = 0.0
        self.queue_number = 0
        self.num_pins = 0
        self.is_kept = True
        self.namespace: str = parent.namespace
        self.is_public = self.namespace == PUBLIC
        self.branches: dict[str, Root] = {}

    @property
    def cost(self) -> float:
        """What it takes to compute the block again, in tokens at the beginning of a prompt."""
        return len(self.ids) * (1 + self.parent.end_pos / PARITY_POS)


def num_common(a: Ids, b: Ids) -> int:
    """How many ids two sequences have in common from their beginning on."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
