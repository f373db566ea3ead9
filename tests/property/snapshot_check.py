"""What a snapshot of the engine must say, counted anew from the scheduler's own accounts."""

from collections import Counter

from freehold.kv.nodes import PUBLIC
from freehold.observe.state import EngineState
from freehold.sched.scheduler import Scheduler


def check_state(state: EngineState, scheduler: Scheduler) -> None:
    """Compare a snapshot with what it was taken of."""
    counts, pool, tree = scheduler.counts, scheduler.pool, scheduler.memory.tree
    assert state.computed_total == counts.computed
    assert state.recomputed_total == counts.recomputed
    assert state.sampled_total == counts.sampled
    assert state.iteration_tokens_sum == counts.submitted
    assert sum(state.iteration_tokens) == state.steps_total
    assert state.preemptions_total == scheduler.num_preemptions

    assert state.num_running == len(scheduler.running)
    assert state.waiting.total == len(scheduler.waiting)
    assert state.num_running + state.waiting.total == len(scheduler.live)
    assert state.num_prefilling == sum(r.num_computed < r.num_prompt for r in scheduler.running)
    assert state.waiting.grammar == sum(request.is_held for request in scheduler.waiting)

    beginnings = {each.request_id: each for each in state.beginnings}
    assert len(beginnings) == len(state.beginnings)
    assert beginnings.keys() == {name for name, request in scheduler.live.items() if not request.num_output}
    for name, each in beginnings.items():
        request = scheduler.live[name]
        is_running = request in scheduler.running
        assert each.started_s == (request.started_s if is_running else None)
        assert each.num_computed == min(request.num_computed, request.num_prompt)
        assert each.is_held == request.is_held
        assert is_running or not each.num_computed, "whoever waits holds no blocks"

    held = {block_id for block_id in range(pool.num_blocks) if pool.ref_count(block_id)}
    kept = {node.block_id: node.namespace for node in tree.nodes()}
    assert state.kv.num_blocks == pool.num_blocks
    assert state.kv.held == len(held)
    assert state.kv.cached == len(kept.keys() - held)
    assert state.kv.held + state.kv.cached + pool.num_free == pool.num_blocks
    assert state.kv.pinned == sum(node.num_pins > 0 for node in tree.nodes())
    sizes = Counter(kept.values())
    assert state.kv.public == sizes.pop(PUBLIC, 0)
    if scheduler.memory.prefix_caching:
        told = dict(state.kv.by_namespace)
        assert len(told) == min(len(sizes), 16)
        assert all(sizes[f"of {name}"] == num_blocks for name, num_blocks in told.items())
        assert not told or min(told.values()) >= max(
            (size for name, size in sizes.items() if name.removeprefix("of ") not in told), default=0
        )
