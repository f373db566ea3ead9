"""What the engine tells of itself while it runs: how much waits and why, what the KV cache holds, where time goes.

A snapshot goes out with each heartbeat. Numbers called ``total`` or ``num_…_total`` count from the engine's start on.
"""

import msgspec

ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Upper bounds of the groups in which steps are counted by their tokens; one more group has no bound."""


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """Requests that hold no blocks, by what they wait for.

    Attributes:
        rows: every row of a step is taken (``--max-num-seqs``).
        blocks: the KV cache has too few free blocks for the next in order.
        leader: another request computes what theirs begins with.
        grammar: theirs is being compiled.
        order: somebody before them, or the next step.
    """

    rows: int = 0
    blocks: int = 0
    leader: int = 0
    grammar: int = 0
    order: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.rows + self.blocks + self.leader + self.grammar + self.order


class KVUse(msgspec.Struct, frozen=True, array_like=True):
    """Blocks of the KV cache. What is neither held nor cached is free.

    Attributes:
        held: of running requests.
        cached: of nobody, kept for whoever begins with the same ids; given up when blocks run out.
        pinned: of those, what goes last.
        by_namespace: held and cached ones in the prefix tree, the largest namespaces first, some at most.
    """

    num_blocks: int
    held: int
    cached: int
    pinned: int = 0
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


class EngineState(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A snapshot of the engine.

    Attributes:
        at_s: when it was taken, in seconds of the monotonic clock.
        num_running: requests that hold blocks.
        num_prefilling: of those, the ones whose prompt is not computed yet.
        prefix_queries_total: prompt tokens that were looked up in the prefix tree.
        prefix_hits_total: of those, the ones found.
        preemptions_total: times that running requests lost their blocks.
        computed_total, recomputed_total: tokens that steps computed for the first time, and again.
        steps_total: steps applied.
        iteration_tokens: of those, by their tokens; see `ITERATION_TOKENS`.
        iteration_tokens_sum: tokens of all of them.
        drafts_total, draft_tokens_total, accepted_tokens_total: of speculation: rows with drafts, guessed ids, those
            that were right.
        is_thrashing: much of what is computed had been computed before.
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
    steps_total: int
    iteration_tokens: tuple[int, ...]
    iteration_tokens_sum: int
    step_seconds: StepSeconds
    drafts_total: int = 0
    draft_tokens_total: int = 0
    accepted_tokens_total: int = 0
    is_thrashing: bool = False
