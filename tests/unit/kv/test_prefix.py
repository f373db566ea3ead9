"""The prefix tree against the obvious way, and what it lets go first."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.kv.blocks import BlockPool, BlockTable
from freehold.kv.check import InvariantError, check_pool
from freehold.kv.nodes import PARITY_POS, PUBLIC, Node, num_common
from freehold.kv.prefix import Match, PrefixTree

SIZE = 4
Sequence = tuple[int, ...]


class Cache:
    """A tree, a pool, and all that was kept, as plain ids."""

    def __init__(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.tree = PrefixTree(self.pool, SIZE)

    def keep(self, ids: Sequence, namespace: str = "") -> list[int]:
        """Compute ids, reusing whole blocks, keep them, and let go of them. Returns the blocks they lie in."""
        match = self.tree.match(namespace, ids, len(ids))
        table = [node.block_id for node in match.nodes]
        self.pool.share(table)
        num_new = -(-len(ids) // SIZE) - len(table)
        self.tree.evict(max(0, num_new - self.pool.num_free))
        table += self.pool.allocate(num_new)
        tip = match.tip
        for index in range(len(match.nodes), len(ids) // SIZE):
            tip = self.tree.add(namespace, tip, ids[index * SIZE : (index + 1) * SIZE], table[index])
        if rest := len(ids) % SIZE:
            self.tree.add_tail(namespace, tip, ids[-rest:], table[-1])
        self.pool.release(table)
        self.tree.released(table)
        self.check()
        return table

    def num_cached(self, ids: Sequence, namespace: str = "") -> int:
        match = self.tree.match(namespace, ids, len(ids))
        return len(match.nodes) * SIZE + match.num_copied

    def check(self, *tables: BlockTable) -> None:
        check_pool(self.pool, tables, self.tree)


def path(node: Node | None) -> Sequence:
    ids: Sequence = ()
    while isinstance(node, Node):
        ids, node = (*node.ids, *ids), node.parent
    return ids


def check_match(match: Match, ids: Sequence, max_tokens: int) -> None:
    """What a match claims to hold is what was asked for."""
    assert path(match.tip) == ids[: len(match.nodes) * SIZE]
    assert (match.source is None) == (match.num_copied == 0)
    num_tokens = len(match.nodes) * SIZE + match.num_copied
    assert num_tokens <= max_tokens
    if match.source is not None:
        assert path(match.source)[:num_tokens] == ids[:num_tokens]


SEQUENCES = st.lists(st.integers(0, 1), min_size=1, max_size=23).map(tuple)
NAMESPACES = st.sampled_from(["", "a"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NAMESPACES, SEQUENCES), max_size=14), NAMESPACES, SEQUENCES, st.integers(0, 25))
def test_the_longest_common_beginning_is_found(
    kept: list[tuple[str, Sequence]], namespace: str, ids: Sequence, max_tokens: int
) -> None:
    """Ids of two kinds only, so that everything has beginnings, ends and middles in common."""
    cache = Cache(200)
    for one_namespace, one in kept:
        cache.keep(one, one_namespace)
    max_tokens = min(max_tokens, len(ids))
    match = cache.tree.match(namespace, ids, max_tokens)
    check_match(match, ids, max_tokens)
    longest = max((num_common(one, ids[:max_tokens]) for name, one in kept if name == namespace), default=0)
    assert len(match.nodes) * SIZE + match.num_copied == longest


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(NAMESPACES, SEQUENCES), min_size=1, max_size=40))
def test_whatever_was_evicted_what_is_found_is_right(kept: list[tuple[str, Sequence]]) -> None:
    cache = Cache(8)
    for namespace, ids in kept:
        cache.keep(ids, namespace)
        for other_namespace, other in kept:
            check_match(cache.tree.match(other_namespace, other, len(other)), other, len(other))
    cache.tree.evict(cache.pool.num_evictable)
    cache.check()
    assert len(cache.tree) == 0
    assert cache.pool.num_free == 8
    assert cache.tree._roots == {}, "empty namespaces leave nothing"


def test_small_changes_of_a_block_never_hit_it() -> None:  # pc-07
    """Among them those that collide under polynomial hashes: one id a little more, the next a little less."""
    source = random.Random(1)
    block = tuple(source.randrange(50000) for _ in range(SIZE))
    cache = Cache(8)
    cache.keep(block)
    for i, j in itertools.permutations(range(SIZE), 2):
        for up, down in ((1, 1), (31, 1), (31, 31), (257, 1), (65599, 1)):
            changed = list(block)
            changed[i] += up
            changed[j] -= down
            assert cache.num_cached(tuple(changed)) == min(i, j)


def test_namespaces_share_nothing() -> None:  # pc-03
    cache = Cache(8)
    cache.keep((1, 2, 3, 4, 5), "a")
    assert cache.num_cached((1, 2, 3, 4, 5), "a") == 5
    assert cache.num_cached((1, 2, 3, 4, 5), "b") == 0
    assert cache.num_cached((1, 2, 3, 4, 5)) == 0


def test_a_tail_gives_way_to_what_goes_on_from_it() -> None:
    cache = Cache(8)
    cache.keep((1, 2, 3, 4, 5))
    cache.keep((1, 2, 3, 4, 5, 6))
    assert len(cache.tree) == 2
    cache.keep((1, 2, 3, 4, 5, 6, 7, 8))
    assert len(cache.tree) == 2
    cache.keep((1, 2, 3, 4, 5, 6))
    assert len(cache.tree) == 2, "and a shorter one adds nothing"


def test_equal_blocks_are_kept_once() -> None:
    """Two requests compute the same at once. While the first holds its block, it is the one that is kept."""
    cache = Cache(8)
    first, second, third = cache.pool.allocate(3)
    node = cache.tree.add("", None, (1, 2, 3, 4), first)
    assert cache.tree.add("", None, (1, 2, 3, 4), second) is node
    assert node.block_id == first
    cache.pool.release([first])
    cache.tree.released([first])
    assert cache.tree.add("", None, (1, 2, 3, 4), third) is node, "nobody holds the first any more"
    assert node.block_id == third
    cache.pool.release([second, third])
    cache.tree.released([second, third])
    cache.check()
    assert (len(cache.tree), cache.pool.num_free) == (1, 7)


def test_the_least_recently_used_goes_first() -> None:
    cache = Cache(6)
    for first_id in range(6):
        cache.keep((first_id,) * SIZE)
    cache.keep((0,) * SIZE)
    cache.keep((2,) * SIZE)
    cache.keep((9,) * (3 * SIZE))
    assert [first_id for first_id in range(6) if cache.num_cached((first_id,) * SIZE)] == [0, 2, 5]


def test_what_follows_goes_before_what_it_follows() -> None:
    cache = Cache(4)
    cache.keep(tuple(range(16)))
    cache.keep((99,))
    assert cache.num_cached(tuple(range(16))) == 12


def test_what_is_costly_to_compute_stays_longer() -> None:
    """The end of a long prompt outlives ends of short ones that were used a little later, but not all that come."""
    long = tuple(range(PARITY_POS * 2))
    cache = Cache(len(long) // SIZE + 4)
    cache.keep(long)
    for first_id in range(10_000, 10_012):
        cache.keep((first_id,) * SIZE)
    assert cache.num_cached(long) == len(long)
    for first_id in range(20_000, 20_064):
        cache.keep((first_id,) * SIZE)
    assert cache.num_cached(long) < len(long)


def test_pins_hold_until_they_expire_but_never_against_need() -> None:
    cache = Cache(4)
    cache.keep((1,) * 8)
    assert cache.tree.pins.pin("", "mine", cache.tree.match("", (1,) * 9, 9).nodes, until_s=10.0) == 2
    for first_id in range(2, 20):
        cache.keep((first_id,) * SIZE)
    assert cache.num_cached((1,) * 8) == 8
    cache.tree.pins.expire(9.9)
    cache.keep((50,) * 8)
    assert cache.num_cached((1,) * 8) == 8
    cache.keep((51,) * 12)
    assert cache.num_cached((1,) * 8) == 4, "a request that needs three of four blocks gets them"
    cache.tree.pins.expire(10.0)
    cache.keep((52,) * SIZE)
    cache.keep((53,) * 12)
    assert cache.num_cached((1,) * 8) == 0
    cache.check()


def test_a_block_that_only_others_follow_can_go() -> None:
    """Nobody holds it, but the blocks after it are held by one who has computed it anew."""
    cache = Cache(3)
    first, second, after = cache.pool.allocate(3)
    node = cache.tree.add("", None, (1, 2, 3, 4), first)
    assert cache.tree.add("", None, (1, 2, 3, 4), second) is node
    follower = cache.tree.add("", node, (5, 6, 7, 8), after)
    cache.pool.release([first])
    cache.tree.released([first])
    assert cache.pool.num_available == 1
    cache.tree.evict(1)
    assert not node.is_kept
    assert not follower.is_kept
    assert cache.pool.allocate(1) == [first]


def test_hits_without_evictions_leave_nothing_behind() -> None:
    cache = Cache(8)
    for _ in range(2000):
        cache.keep(tuple(range(14)))
    assert len(cache.tree._resting) <= 4 * 8 + 1


def test_the_checker_sees_what_is_wrong_with_a_tree() -> None:
    def cached() -> Cache:
        cache = Cache(8)
        cache.keep(tuple(range(11)))
        return cache

    def forgotten(cache: Cache) -> None:
        cache.pool.uncache(next(cache.tree.nodes()).block_id)

    def not_cached(cache: Cache) -> None:
        cache.tree._nodes.popitem()

    def miscounted(cache: Cache) -> None:
        cache.pool.num_evictable += 1

    def lost(cache: Cache) -> None:
        next(cache.tree.nodes()).parent.children.clear()

    def changed(cache: Cache) -> None:
        next(cache.tree.nodes()).end_pos += 1

    def taken_out(cache: Cache) -> None:
        next(cache.tree.nodes()).is_kept = False

    for spoil in (forgotten, not_cached, miscounted, lost, changed, taken_out):
        cache = cached()
        spoil(cache)
        with pytest.raises(InvariantError):
            cache.check()


def test_namespaces_go_on_from_what_is_public_and_see_nothing_else_of_each_other() -> None:
    cache = Cache(20)
    cache.keep((1,) * 10, PUBLIC)
    assert cache.num_cached((1,) * 12, "a") == 10
    cache.keep((1,) * 9 + (2,) * 11, "a")
    assert cache.num_cached((1,) * 9 + (2,) * 11, "a") == 20
    assert cache.num_cached((1,) * 9 + (2,) * 11, "b") == 9, "all that is public, and no token of another's"
    assert cache.num_cached((1,) * 9 + (2,) * 11, PUBLIC) == 9
    cache.keep((1,) * 9 + (2,) * 3 + (3,) * 4, "b")
    assert cache.num_cached((1,) * 9 + (2,) * 3 + (3,) * 4, "a") == 12
    cache.tree.evict(cache.pool.num_evictable)
    assert cache.tree._roots == {}


def test_what_is_public_goes_after_all_that_follows_it() -> None:
    cache = Cache(6)
    cache.keep((1,) * 8, PUBLIC)
    cache.keep((1,) * 8 + (2,) * 8, "a")
    for first_id in range(10, 30):
        cache.keep((first_id,) * SIZE, "b")
        num_cached = cache.num_cached((1,) * 8 + (2,) * 8, "a")
        assert cache.num_cached((1,) * 8, "c") == min(num_cached, 8)
    assert num_cached == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 2), min_size=1, max_size=20)), max_size=12))
@settings(max_examples=200, deadline=None)
def test_a_namespace_finds_what_it_kept_and_what_is_public_and_no_more(kept: list[tuple[str, list[int]]]) -> None:
    """Against the obvious way, where everything fits."""
    cache = Cache(400)
    public = [(0,) * 9, (0, 1) * 6, (2,) * 5]
    for ids in public:
        cache.keep(ids, PUBLIC)
    mine: dict[str, list[Sequence]] = {"a": [], "b": []}
    for namespace, ids in kept:
        for asking, known in mine.items():
            longest = max(num_common(ids, other) for other in [*known, *public])
            assert cache.num_cached(tuple(ids), asking) == longest
        cache.keep(tuple(ids), namespace)
        mine[namespace].append(tuple(ids))
