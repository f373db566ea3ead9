"""From a few numbers to one sentence: what limits a server now, and what to do about it.

`diagnose` is a pure function, so that the live page and the load tester say the same of the same numbers. Rules are
tried in order; the first that fits is the answer, so that it never contradicts itself:

1. The engine can't generate: nothing else matters.
2. Nothing runs and nothing waits: idle.
3. Memory before rows. While blocks of the KV cache are short, more rows would make it worse: running requests lost
   their blocks, or some wait for blocks, or hardly any block is left while all rows are taken.
4. Rows: requests wait because ``--max-num-seqs`` of them run, and the KV cache has room.
5. Time to first token: a long prompt that others wait for, or prompts that are cut small beside answers; texts that
   wait to be tokenized; grammars that are compiled.
6. Clients that don't take what is there.
7. The processor: the server's own, or the engine's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Code = Literal[
    "not_ready", "idle", "kv_thrashing", "kv_full", "kv_and_rows", "rows", "prefill", "prefill_beside_answers",
    "tokenizing", "grammars", "slow_clients", "server_cpu", "engine_overhead", "compute", "nothing",
]  # fmt: skip
Severity = Literal["ok", "notice", "warning", "critical"]

FEW = 0.5
"""Of requests, on average over the window: fewer don't count as waiting, as somebody always does for a moment."""
KV_ROOM = 0.9
"""Share of the blocks that running requests hold, from which on there is no room for more of them."""
SLOW_FIRST_TOKEN_S = 1.0
"""A first token that comes later than this is late."""
MAIN_SHARE = 0.5
"""Of a time: the stage that takes more of it is what it is spent on."""
BUSY = 0.95
"""Share of the engine's time: idle for the rest, it has no time to spare."""
OVERHEAD = 0.3
"""Share of the engine's time that planning and applying may take before they limit it."""
SERVER_BUSY = 0.9
"""Processor seconds a second of the server's process, which has one thread that matters."""
MIN_SLOW_CLIENTS = 0.5
"""Of requests, on average: clients that leave bytes unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What is known of some seconds; averages over them unless it says otherwise. None: not known.

    Attributes:
        why_not_ready: why answers can't be generated now; empty if they can.
        num_running: requests in the engine's steps.
        num_waiting: requests that wait in the engine.
        num_waiting_rows, num_waiting_blocks, num_waiting_grammars: of those, by what for.
        max_num_seqs: rows of a step.
        step_tokens: that one step may compute.
        kv_used: share of the KV cache's blocks that running requests hold.
        num_preemptions: times that requests lost their blocks, in all the time.
        recomputed: share of the computed tokens that had been computed before.
        num_first_tokens: requests that wait for their first token, those in the queue not included.
        longest_prompt: tokens of the longest prompt of those.
        num_decoding: requests whose answers grow.
        ttft_s, queue_s, tokenize_s, prefill_s: of requests whose first token came, the 90th percentiles.
        itl_s: between two tokens of an answer, the 90th percentile.
        overhead: share of the engine's time that planning and applying take.
        idle: share of its time without anything to do.
        server_cpu: processor seconds a second of the server's process.
        num_slow_clients: requests whose clients leave bytes unread.
        num_rejected: requests that were turned away as the queue is full, in all the time.
    """

    num_running: float
    num_waiting: float
    max_num_seqs: int
    kv_used: float
    why_not_ready: str = ""
    num_preemptions: float = 0.0
    num_waiting_rows: float | None = None
    num_waiting_blocks: float | None = None
    num_waiting_grammars: float | None = None
    recomputed: float | None = None
    num_first_tokens: float | None = None
    longest_prompt: int | None = None
    step_tokens: int | None = None
    num_decoding: float | None = None
    ttft_s: float | None = None
    queue_s: float | None = None
    tokenize_s: float | None = None
    prefill_s: float | None = None
    itl_s: float | None = None
    overhead: float | None = None
    idle: float | None = None
    server_cpu: float | None = None
    num_slow_clients: float | None = None
    num_rejected: float = 0.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What limits a server.

    Attributes:
        severity: ``ok``: nothing to do; ``notice``: it could be faster; ``warning``: requests wait; ``critical``: work
            is lost or nothing is answered.
        sentence: the limit, the numbers that show it, and the remedy.
        settings: names of the settings (`freehold.settings`) that the sentence names.
    """

    code: Code
    severity: Severity
    sentence: str
    settings: tuple[str, ...] = ()


def diagnose(numbers: Numbers) -> Diagnosis:
    """The first rule that fits."""
    return next(found for rule in _RULES if (found := rule(numbers)) is not None)


def _not_ready(n: Numbers) -> Diagnosis | None:
    if not n.why_not_ready:
        return None
    return Diagnosis("not_ready", "critical", f"not ready: {n.why_not_ready}")


def _idle(n: Numbers) -> Diagnosis | None:
    if n.num_running + n.num_waiting + (n.num_first_tokens or 0) >= FEW or (n.num_slow_clients or 0) >= FEW:
        return None
    return Diagnosis("idle", "ok", "idle: nothing runs and nothing waits")


def _memory(n: Numbers) -> Diagnosis | None:
    """Blocks of the KV cache are short."""
    if n.num_preemptions > 0:
        again = "" if not n.recomputed else f", and {n.recomputed:.0%} of what is computed had been computed before"
        return Diagnosis(
            "kv_thrashing",
            "critical",
            f"KV full: thrashing: {_count(n.num_preemptions, 'running request')} lost their blocks{again}; raise "
            f"--kv-cache-memory-bytes, or lower --max-num-seqs below {_whole(n.num_running)}",
            ("kv_cache_memory_bytes", "max_num_seqs"),
        )
    if (n.num_waiting_blocks or 0) >= FEW:
        return Diagnosis(
            "kv_full",
            "warning",
            f"KV full: {_count(n.num_waiting_blocks or 0, 'request')} wait for blocks beside {_whole(n.num_running)} "
            f"that run, {n.kv_used:.0%} of the KV cache used: raise --kv-cache-memory-bytes, or halve what a token "
            "takes with --kv-cache-dtype int8",
            ("kv_cache_memory_bytes", "kv_cache_dtype"),
        )
    if _queued(n) >= FEW and n.kv_used >= KV_ROOM:
        return Diagnosis(
            "kv_and_rows",
            "warning",
            f"queueing: {_count(_queued(n), 'request')} wait and {n.kv_used:.0%} of the KV cache is used: raise "
            "--kv-cache-memory-bytes first; more rows alone would not help",
            ("kv_cache_memory_bytes",),
        )
    return None


def _rows(n: Numbers) -> Diagnosis | None:
    """All rows are taken and there is room for more."""
    if _queued(n) < FEW:
        return None
    rejected = f", {_count(n.num_rejected, 'request')} turned away" if n.num_rejected >= 1 else ""
    return Diagnosis(
        "rows",
        "warning",
        f"queueing: max_num_seqs reached ({_whole(n.num_running)} of {n.max_num_seqs} run, {_whole(_queued(n))} wait"
        f"{rejected}), KV {n.kv_used:.0%} used: raise --max-num-seqs",
        ("max_num_seqs",),
    )


def _grammars(n: Numbers) -> Diagnosis | None:
    if (n.num_waiting_grammars or 0) < FEW:
        return None
    return Diagnosis(
        "grammars",
        "notice",
        f"{_count(n.num_waiting_grammars or 0, 'request')} wait until the grammar of their answer is compiled: "
        "use fewer different schemas, or simpler ones",
    )


def _long_prompt(n: Numbers) -> Diagnosis | None:
    """Some wait for their first token behind a prompt that is more than a step holds."""
    num_others = (n.num_first_tokens or 0) - 1
    if num_others < FEW or n.longest_prompt is None or n.step_tokens is None or n.longest_prompt <= n.step_tokens:
        return None
    return Diagnosis(
        "prefill",
        "warning",
        f"a long prompt ({n.longest_prompt} tokens, {n.step_tokens} fit in a step) holds up others' first token: "
        f"{_count(num_others, 'request')} wait behind it; send such prompts with a lower priority "
        "(--scheduling-policy priority), or raise --max-num-batched-tokens",
        ("scheduling_policy", "max_num_batched_tokens"),
    )


def _late_tokens(n: Numbers) -> Diagnosis | None:
    """First tokens are late, and nobody waits for rows or blocks."""
    if n.ttft_s is None or n.ttft_s < SLOW_FIRST_TOKEN_S:
        return None
    if (n.tokenize_s or 0) >= MAIN_SHARE * n.ttft_s:
        return Diagnosis(
            "tokenizing",
            "warning",
            f"first tokens take {_seconds(n.ttft_s)}, most of it ({_seconds(n.tokenize_s or 0)}) until the prompt is "
            "tokenized: long texts take turns; send fewer at once",
        )
    if (n.prefill_s or 0) < MAIN_SHARE * n.ttft_s:
        return None
    spent = f"first tokens take {_seconds(n.ttft_s)}, most of it ({_seconds(n.prefill_s or 0)}) to compute the prompt"
    if (n.num_decoding or 0) >= FEW:
        return Diagnosis(
            "prefill_beside_answers",
            "warning",
            f"{spent}, in chunks that are small beside answers: raise --itl-target-ms, and answers grow more slowly "
            "meanwhile",
            ("itl_target_ms",),
        )
    return Diagnosis(
        "prefill",
        "warning",
        f"{spent}: raise --max-num-batched-tokens, or let prompts begin alike, so that the prefix cache has them",
        ("max_num_batched_tokens",),
    )


def _slow_clients(n: Numbers) -> Diagnosis | None:
    if (n.num_slow_clients or 0) < MIN_SLOW_CLIENTS:
        return None
    return Diagnosis(
        "slow_clients",
        "warning",
        f"clients read slowly: {_count(n.num_slow_clients or 0, 'client')} leave what is answered unread; look at "
        "their network, or at what stands between",
    )


def _processor(n: Numbers) -> Diagnosis | None:
    """The engine, or the server, has no time to spare."""
    if (n.server_cpu or 0) >= SERVER_BUSY:
        return Diagnosis(
            "server_cpu",
            "warning",
            f"CPU: the server's own process takes {n.server_cpu:.0%} of a core, beside the engine's: give it one with "
            "a lower --threads, or send fewer and longer requests",
            ("threads",),
        )
    if n.idle is None or n.idle > 1 - BUSY:
        return None
    if (n.overhead or 0) >= OVERHEAD:
        return Diagnosis(
            "engine_overhead",
            "notice",
            f"CPU: {n.overhead:.0%} of the engine's time goes into planning steps and taking them in; give it a core "
            "with a lower --threads",
            ("threads",),
        )
    return Diagnosis(
        "compute",
        "notice",
        f"CPU: the engine computes without a pause ({_whole(n.num_running)} run, nothing waits, KV {n.kv_used:.0%} "
        "used): it takes more cores (--threads), or a model of fewer or smaller weights, to be faster",
        ("threads",),
    )


def _nothing(n: Numbers) -> Diagnosis:
    return Diagnosis(
        "nothing", "ok", f"nothing binds: {_whole(n.num_running)} of {n.max_num_seqs} run, KV {n.kv_used:.0%} used"
    )


_RULES: tuple[Callable[[Numbers], Diagnosis | None], ...] = (
    _not_ready, _idle, _memory, _rows, _grammars, _long_prompt, _late_tokens, _slow_clients, _processor, _nothing,
)  # fmt: skip


def _queued(n: Numbers) -> float:
    """Requests that wait for a row. Where servers don't tell what for, all that wait count."""
    return n.num_waiting if n.num_waiting_rows is None else n.num_waiting_rows


def _count(number: float, noun: str) -> str:
    whole = max(1, round(number))
    return f"{whole} {noun}{'s' if whole != 1 else ''}"


def _whole(number: float) -> str:
    return str(round(number))


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
