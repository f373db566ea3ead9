"""Pins: prefixes that shall stay for a while, since who asked for them expects to come back.

Pinned blocks are evicted last, but they are: a request that fits into the pool always runs. No more than a share of the
pool is pinned. What is too much goes first from whoever has most, and of his first what would expire first: so nobody's
pins push out those of another who has fewer.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from freehold.kv.nodes import PUBLIC, Node


@dataclass(frozen=True, slots=True)
class _Pin:
    """Some nodes, pinned together.

    Attributes:
        number: tells it from earlier ones of the same name.
    """

    nodes: tuple[Node, ...]
    until_s: float
    number: int


class Pins:
    """All pins of a tree, by namespace and name. One of the same name takes the place of the one before."""

    def __init__(self, max_blocks: int, on_change: Callable[[Node], None]) -> None:
        """
        Args:
            max_blocks: blocks that may be pinned, those of the public namespace included.
            on_change: told of each node that becomes pinned or no longer is.
        """
        self.max_blocks = max_blocks
        self._on_change = on_change
        self._pins: dict[str, dict[Hashable, _Pin]] = {}
        self._num_blocks: Counter[str] = Counter()  # distinct ones, by namespace
        self._expiring: list[tuple[float, int, str, Hashable]] = []  # heap; may hold outdated entries
        self._numbers = count()

    @property
    def num_blocks(self) -> int:
        """Blocks that are pinned."""
        return self._num_blocks.total()

    def pin(self, namespace: str, name: Hashable, nodes: Sequence[Node], until_s: float) -> int:
        """Pin what follows one another in the tree from its beginning on, as much of it as there is room for.

        What is public stays until its time is up. Of what others have, only what they add to it is pinned for them.

        Returns:
            How many blocks are pinned under this name now.
        """
        wanted = tuple(node for node in nodes if node.is_public == (namespace == PUBLIC))
        wanted = wanted[: self._room(namespace)]
        before = self._pins.get(namespace, {}).pop(name, None)
        pin = _Pin(wanted, until_s, next(self._numbers))
        if wanted:
            self._pins.setdefault(namespace, {})[name] = pin
            heappush(self._expiring, (until_s, pin.number, namespace, name))
            for node in wanted:
                self._hold(namespace, node)
        if before is not None:
            self._let_go(namespace, before)
        self._make_room(pin)
        return len(wanted)

    def expire(self, now_s: float) -> None:
        """End the pins whose time is up."""
        while self._expiring and self._expiring[0][0] <= now_s:
            _, number, namespace, name = heappop(self._expiring)
            pin = self._pins.get(namespace, {}).get(name)
            if pin is not None and pin.number == number:
                self._end(namespace, name)

    def lose(self, node: Node) -> None:
        """A node has been taken out of the tree."""
        if node.num_pins:
            node.num_pins = 0
            self._count(node.namespace, -1)

    def _room(self, namespace: str) -> int:
        """Blocks that a pin may have: what others leave, or an equal share if that is more."""
        if namespace == PUBLIC:
            return max(0, self.max_blocks - self._num_blocks[PUBLIC])
        others = {name: num for name, num in self._num_blocks.items() if name not in (namespace, PUBLIC)}
        for_all = self.max_blocks - self._num_blocks[PUBLIC]
        return max(0, for_all - sum(others.values()), for_all // (len(others) + 1))

    def _make_room(self, newest: _Pin) -> None:
        """End pins until no more is pinned than may be, and there are no more pins than blocks."""
        while self.num_blocks > self.max_blocks or sum(map(len, self._pins.values())) > self.max_blocks:
            victims = [
                (self._num_blocks[namespace], -pin.until_s, -pin.number, namespace, name)
                for namespace, pins in self._pins.items()
                if namespace != PUBLIC
                for name, pin in pins.items()
                if pin is not newest
            ]
            if not victims:
                return
            *_, namespace, name = max(victims, key=lambda victim: victim[:3])
            self._end(namespace, name)

    def _end(self, namespace: str, name: Hashable) -> None:
        pins = self._pins[namespace]
        self._let_go(namespace, pins.pop(name))
        if not pins:
            del self._pins[namespace]

    def _count(self, namespace: str, change: int) -> None:
        self._num_blocks[namespace] += change
        if not self._num_blocks[namespace]:
            del self._num_blocks[namespace]

    def _hold(self, namespace: str, node: Node) -> None:
        node.num_pins += 1
        if node.num_pins == 1:
            self._count(namespace, 1)
            self._on_change(node)

    def _let_go(self, namespace: str, pin: _Pin) -> None:
        for node in pin.nodes:
            if node.is_kept:
                node.num_pins -= 1
                if node.num_pins == 0:
                    self._count(namespace, -1)
                    self._on_change(node)
