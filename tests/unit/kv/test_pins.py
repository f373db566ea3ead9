"""Pins: how long, how many, and whose go first."""

import random

import pytest
from tests.unit.kv.test_prefix import SIZE, Cache

from freehold.kv.nodes import PUBLIC
from freehold.protocol import MAX_PINNED_SHARE

FOREVER = float("inf")


def pin(cache: Cache, ids: tuple[int, ...], name: str, namespace: str = "", until_s: float = 60.0) -> int:
    """Keep ids and pin them; returns how many blocks are pinned."""
    cache.keep(ids, namespace)
    return cache.tree.pins.pin(namespace, name, cache.tree.match(namespace, ids, len(ids)).nodes, until_s)


def flood(cache: Cache, first_id: int = 1_000_000) -> None:
    """Other prompts, more than the pool holds."""
    for number in range(2 * cache.pool.num_blocks):
        cache.keep((first_id + number,) * SIZE, "flood")


def blocks(first_id: int, num_blocks: int) -> tuple[int, ...]:
    return tuple(range(first_id, first_id + num_blocks * SIZE))


def check_counts(cache: Cache) -> None:
    """The pins' own counts are what the nodes say."""
    pinned = [node for node in cache.tree.nodes() if node.num_pins]
    assert cache.tree.pins.num_blocks == len(pinned)
    assert len(pinned) <= cache.tree.pins.max_blocks


def test_a_name_stands_for_one_prefix() -> None:
    cache = Cache(20)
    assert pin(cache, blocks(0, 4), "chat") == 4
    assert pin(cache, blocks(100, 3), "chat") == 3
    check_counts(cache)
    flood(cache)
    assert cache.num_cached(blocks(0, 4)) == 0
    assert cache.num_cached(blocks(100, 3)) == 3 * SIZE


def test_a_longer_prompt_of_the_same_name_keeps_what_it_goes_on_from() -> None:
    cache = Cache(20)
    pin(cache, blocks(0, 2), "chat")
    pin(cache, blocks(0, 5), "chat")
    check_counts(cache)
    cache.tree.pins.expire(59.0)
    flood(cache)
    assert cache.num_cached(blocks(0, 5)) == 5 * SIZE
    cache.tree.pins.expire(60.0)
    assert cache.tree.pins.num_blocks == 0
    flood(cache, 2_000_000)
    assert cache.num_cached(blocks(0, 5)) == 0


def test_an_older_pin_of_the_name_does_not_end_the_newer() -> None:
    cache = Cache(20)
    pin(cache, blocks(0, 2), "chat", until_s=10.0)
    pin(cache, blocks(0, 2), "chat", until_s=20.0)
    cache.tree.pins.expire(15.0)
    assert cache.tree.pins.num_blocks == 2


def test_no_more_than_a_share_of_the_pool_is_pinned() -> None:
    cache = Cache(20)
    most = int(MAX_PINNED_SHARE * 20)
    assert pin(cache, blocks(0, 15), "long") == most
    for number in range(30):
        assert pin(cache, blocks(1000 * (number + 1), 3), f"chat {number}", until_s=100.0 + number) == 3
        check_counts(cache)
    flood(cache)
    assert cache.num_cached(blocks(30_000, 3)) == 3 * SIZE, "the last to expire are left"
    assert cache.num_cached(blocks(1000, 3)) == 0


def test_who_pins_much_does_not_push_out_who_pins_little() -> None:
    """Whoever comes first, and however long his pins are to last."""
    cache = Cache(40)
    assert pin(cache, blocks(0, 2), "modest", "a", until_s=10.0) == 2
    for number in range(20):
        pin(cache, blocks(1000 * (number + 1), 4), f"greedy {number}", "b", until_s=1e6 + number)
        check_counts(cache)
    assert pin(cache, blocks(500_000, 6), "late", "c", until_s=10.0) == 6
    check_counts(cache)
    flood(cache)
    assert cache.num_cached(blocks(0, 2), "a") == 2 * SIZE
    assert cache.num_cached(blocks(500_000, 6), "c") == 6 * SIZE
    assert cache.num_cached(blocks(20_000, 4), "b") == 4 * SIZE


def test_there_are_no_more_pins_than_blocks() -> None:
    """Names cost memory too, also where all of them stand for the same block."""
    cache = Cache(20)
    for number in range(1000):
        pin(cache, blocks(0, 1), f"name {number}")
    assert sum(map(len, cache.tree.pins._pins.values())) <= 20
    assert cache.tree.pins.num_blocks == 1


def test_pinned_blocks_that_were_needed_no_longer_count() -> None:
    cache = Cache(20)
    assert pin(cache, blocks(0, 10), "long") == 10
    cache.keep(blocks(1000, 18))
    check_counts(cache)
    assert cache.tree.pins.num_blocks <= 2
    assert pin(cache, blocks(5000, 8), "next") == 8
    cache.tree.pins.expire(FOREVER)
    assert cache.tree.pins.num_blocks == 0
    assert not any(node.num_pins for node in cache.tree.nodes())


def test_what_is_public_stays_pinned_whoever_pins() -> None:
    cache = Cache(40)
    assert pin(cache, blocks(0, 5), "warm", PUBLIC, until_s=FOREVER) == 5
    for number in range(20):
        pin(cache, blocks(1000 * (number + 1), 6), f"greedy {number}", "b")
        check_counts(cache)
    flood(cache)
    assert cache.num_cached(blocks(0, 5), "anybody") == 5 * SIZE


@pytest.mark.parametrize("seed", range(5))
def test_counts_stay_true_whatever_happens(seed: int) -> None:
    source, cache, now_s = random.Random(seed), Cache(16), 0.0
    for _ in range(300):
        ids = blocks(100 * source.randrange(4), source.randrange(1, 7)) + blocks(9000, source.randrange(3))
        namespace = source.choice(["a", "b", PUBLIC])
        if source.random() < 0.6:
            pin(cache, ids, source.choice("xyz"), namespace, now_s + source.randrange(20))
        else:
            cache.keep(ids, namespace)
        now_s += source.random()
        cache.tree.pins.expire(now_s)
        check_counts(cache)
    cache.tree.pins.expire(1e9)
    assert cache.tree.pins.num_blocks == 0
    cache.tree.evict(cache.pool.num_evictable)
    cache.check()
    assert cache.tree._roots == {}
    assert cache.tree.pins._num_blocks == {}
