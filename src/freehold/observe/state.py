"""What the engine tells of itself while it runs: how much waits and why, what the KV cache holds, where time goes.

A snapshot goes out with each heartbeat. What is called ``total``, and all that tells of steps, counts from the engine's
start on; where an engine took another's place, the server lets it go on from what that one had counted.
"""

from itertools import zip_longest
from typing import Any

import msgspec

from freehold.protocol import RequestId

MAX_BEGINNINGS = 256
"""A snapshot tells of so many requests without a token."""

ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Upper bounds of the groups in which steps are counted by their tokens; one more group has no bound."""


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """Requests that hold no blocks, by what they wait for.

    Attributes:
        rows: every row of a step is taken (``--max-num-seqs``).
        tokens: every token of a step is taken (``--max-num-batched-tokens``).
        blocks: the KV cache has too few free blocks for the next in order.
        leader: another request computes what theirs begins with.
        grammar: theirs is being compiled.
        order: somebody before them, or the next step.

    Who waits behind the next in order waits for the same as that one.
    """

    rows: int = 0
    tokens: int = 0
    blocks: int = 0
    leader: int = 0
    grammar: int = 0
    order: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.rows + self.tokens + self.blocks + self.leader + self.grammar + self.order


class KVUse(msgspec.Struct, frozen=True, array_like=True):
    """Blocks of the KV cache. What is neither held nor cached is free.

    Attributes:
        held: of running requests.
        cached: of nobody, kept for whoever begins with the same ids; given up when blocks run out.
        pinned: of both, what goes last when nobody holds it.
        public: of both, what may be reused in every namespace.
        by_namespace: of both, what only requests of a namespace (`Generate.cache_namespace`) may reuse, the largest
            first; only the largest.
    """

    num_blocks: int
    held: int
    cached: int
    pinned: int = 0
    public: int = 0
    by_namespace: tuple[tuple[str, int], ...] = ()


class StepSeconds(msgspec.Struct, frozen=True, array_like=True):
    """Seconds of the engine's loop, by what it did.

    Attributes:
        plan: decided on steps and handed them over.
        run: waited for the backend.
        apply: took results in, worked out masks and passed events on.
        idle: had nothing to do.
    """

    plan: float = 0.0
    run: float = 0.0
    apply: float = 0.0
    idle: float = 0.0


class Beginning(msgspec.Struct, frozen=True, array_like=True):
    """How far a request is that has no token yet.

    Attributes:
        started_s: when the engine began with it, in seconds of the monotonic clock; None: it waits.
        num_computed: tokens of its prompt whose keys and values are there, computed or reused.
        is_held: it waits until its grammar is compiled.
        held_s: for how many seconds it has done so, or did.
    """

    request_id: RequestId
    started_s: float | None = None
    num_computed: int = 0
    is_held: bool = False
    held_s: float = 0.0


class EngineState(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A snapshot of the engine.

    Attributes:
        at_s: when it was taken, in seconds of the monotonic clock.
        num_running: requests that hold blocks.
        num_prefilling: of those, the ones whose prompt is not computed yet.
        prefix_queries_total: tokens of requests when they first started.
        prefix_hits_total: of those, the ones found in the KV cache.
        preemptions_total: times that running requests lost their blocks.
        computed_total, recomputed_total: tokens that steps computed for the first time, and again.
        sampled_total: ids given out.
        steps_total: steps submitted.
        iteration_tokens: of those, by their tokens; see `ITERATION_TOKENS`.
        iteration_tokens_sum: tokens of all of them.
        drafts_total, draft_tokens_total, accepted_tokens_total: of speculation: rows with drafts, guessed ids, those
            that were right.
        accepted_by_place: of the right ones, by how many ids were guessed before them in their row.
        is_thrashing: much of what is computed had been computed before.
        beginnings: requests without a token, those first that are computed; only so many (`MAX_BEGINNINGS`).
    """

    at_s: float
    num_running: int
    num_prefilling: int
    waiting: Waiting
    kv: KVUse
    prefix_queries_total: int
    prefix_hits_total: int
    preemptions_total: int
    computed_total: int
    recomputed_total: int
    sampled_total: int
    steps_total: int
    iteration_tokens: tuple[int, ...]
    iteration_tokens_sum: int
    step_seconds: StepSeconds
    drafts_total: int = 0
    draft_tokens_total: int = 0
    accepted_tokens_total: int = 0
    accepted_by_place: tuple[int, ...] = ()
    is_thrashing: bool = False
    beginnings: tuple[Beginning, ...] = ()


def without_load(last: EngineState, at_s: float) -> EngineState:
    """What is left of an engine's last snapshot when it has ended: the totals."""
    return msgspec.structs.replace(
        last,
        at_s=at_s,
        num_running=0,
        num_prefilling=0,
        waiting=Waiting(),
        kv=KVUse(last.kv.num_blocks, 0, 0),
        is_thrashing=False,
        beginnings=(),
    )


def continued(before: EngineState, newer: EngineState) -> EngineState:
    """A snapshot of an engine that took the place of one that ended: its totals go on from those."""
    totals = {name: _sum(getattr(before, name), getattr(newer, name)) for name in TOTALS}
    return msgspec.structs.replace(newer, **totals)


TOTALS = tuple(
    name
    for name in EngineState.__struct_fields__
    if name.endswith("_total")
    or name in {"iteration_tokens", "iteration_tokens_sum", "step_seconds", "accepted_by_place"}
)
"""Fields that count from the start on."""


def _sum(a: Any, b: Any) -> Any:
    """Of numbers, or of each place of tuples and structs; what only one of them has is kept."""
    if isinstance(a, StepSeconds):
        return StepSeconds(*map(_sum, msgspec.structs.astuple(a), msgspec.structs.astuple(b)))
    if isinstance(a, tuple):
        return tuple(x + y for x, y in zip_longest(a, b, fillvalue=0))
    return a + b
