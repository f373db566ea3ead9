"""From a few numbers to one sentence: what limits a server now, and what to do about it.

`diagnose` is a pure function, so that the live page and the load tester say the same of the same numbers. Rules are
tried in order and the first that fits is the answer, so that it never contradicts itself:

1. The engine can't generate: nothing else matters.
2. Nothing runs, nothing waits, and nothing is left unread: idle.
3. Memory before rows. While blocks of the KV cache are short, more rows would make it worse: running requests lost
   their blocks, or some wait for blocks, or hardly any block is left while all rows are taken.
4. Rows: requests wait because ``--max-num-seqs`` of them run, and the KV cache has room.
5. First tokens: behind a long prompt, or a compiler of grammars, or the tokenizer; or prompts are computed slowly, as
   they are cut small beside answers, or as they are long.
6. Clients that don't take what is there. Their requests hold nothing up but themselves.
7. The processor: the server's own process, the engine's accounting, or its computing.

Thresholds are below, each with its reason.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from freehold.amounts import amount

Code = Literal[
    "not_ready", "idle", "kv_thrashing", "kv_full", "kv_and_rows", "rows", "grammars", "long_prompt", "tokenizing",
    "prefill_beside_answers", "prefill", "slow_clients", "server_cpu", "engine_overhead", "compute", "nothing",
]  # fmt: skip
Severity = Literal["ok", "notice", "warning", "critical"]

FEW = 0.5
"""Of requests, on average: fewer don't count, since somebody waits for a moment at any time."""
KV_ROOM = 0.9
"""Share of the blocks held by running requests from which on more of them find no room: each must grow, too."""
THRASHING = 0.1
"""Share of the computed tokens that had been computed before, from which on that is what hurts."""
ALL_ROWS = 0.9
"""Share of the rows: with so many taken, on average, whoever waits waits for a row."""
LATE_S = 1.0
"""A first token after this time is late: people notice."""
MAIN_SHARE = 0.5
"""Of a time: a stage that takes so much of it is what it is spent on."""
NO_REST = 0.05
"""Share of the engine's time without work, below which it has none to spare."""
OVERHEAD = 0.3
"""Share of the engine's time in planning and taking in, from which on steps wait for that rather than for tokens. On a
model of ordinary size it is a few hundredths."""
FULL_CORE = 0.9
"""Processor seconds a second of the server's process, whose event loop has one core at most."""

_KV = ("kv_cache_memory_bytes",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What is known of some seconds: averages over them, unless it says otherwise. None: not known.

    Attributes:
        num_running: requests in the engine's steps.
        num_waiting: requests in the engine that are in none yet, or no longer.
        kv_used: share of the KV cache's blocks that running requests hold.
        why_not_ready: why answers can't be generated now; empty if they can.
        num_preemptions: times that requests lost their blocks, in all the seconds.
        recomputed: share of the computed tokens that had been computed before.
        max_num_seqs: rows of a step.
        num_waiting_rows, num_waiting_blocks: of those that wait, by what for.
        num_waiting_grammars: requests that wait until theirs is compiled, before the engine or there.
        num_rejected: requests that were turned away as the queue was full, in all the seconds.
        num_preparing: requests whose prompt isn't known yet.
        num_first_tokens: requests in the engine that want a first token and have the blocks and rows for it.
        num_decoding: requests whose answers grow.
        longest_prompt: tokens of the longest prompt of those that have no first token.
        step_tokens: that one step may compute.
        ttft_s, tokenize_s, prefill_s: until first tokens that came, and the stages before: 90th percentiles.
        overhead, idle: shares of the engine's time: for planning and taking in, and without work.
        server_cpu: processor seconds a second of the server's process.
        num_slow_clients: requests whose clients leave bytes unread.
    """

    num_running: float
    num_waiting: float
    kv_used: float
    why_not_ready: str = ""
    num_preemptions: float = 0.0
    recomputed: float | None = None
    max_num_seqs: int | None = None
    num_waiting_rows: float | None = None
    num_waiting_blocks: float | None = None
    num_waiting_grammars: float | None = None
    num_rejected: float = 0.0
    num_preparing: float | None = None
    num_first_tokens: float | None = None
    num_decoding: float | None = None
    longest_prompt: int | None = None
    step_tokens: int | None = None
    ttft_s: float | None = None
    tokenize_s: float | None = None
    prefill_s: float | None = None
    overhead: float | None = None
    idle: float | None = None
    server_cpu: float | None = None
    num_slow_clients: float | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What limits a server.

    Attributes:
        severity: ``ok``: there is nothing to do; ``notice``: it could be faster; ``warning``: requests wait that
            needn't; ``critical``: work is done in vain, or none.
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
    num_before = (n.num_preparing or 0) + (n.num_waiting_grammars or 0)
    if n.num_running + n.num_waiting + num_before >= FEW or (n.num_slow_clients or 0) >= FEW:
        return None
    return Diagnosis("idle", "ok", "idle: nothing runs and nothing waits")


def _memory(n: Numbers) -> Diagnosis | None:
    """Blocks of the KV cache are short."""
    num_waiting = n.num_waiting_blocks or 0
    # Urgent requests also take others' rows; who lost its row waits for one.
    were_displaced = num_waiting < FEW <= (n.num_waiting_rows or 0)
    has_lost = n.num_preemptions > 0 and not were_displaced
    lost = f"running requests lost their blocks {_times(n.num_preemptions)}"
    if has_lost and (n.recomputed or 0) >= THRASHING:
        return Diagnosis(
            "kv_thrashing",
            "critical",
            f"KV full: thrashing: {lost}, {n.recomputed:.0%} of what is computed had been computed before; raise "
            "--kv-cache-memory-bytes, or lower --max-num-seqs",
            ("kv_cache_memory_bytes", "max_num_seqs"),
        )
    signs = [lost] if has_lost else []
    if num_waiting >= FEW:
        signs.append(f"{_some(num_waiting, 'request waits', 'requests wait')} for blocks")
    if not signs:
        return None
    state = f"{_whole(n.num_running)} running, {n.kv_used:.0%} held"
    return Diagnosis("kv_full", "warning", f"KV full: {', '.join(signs)} ({state}): raise --kv-cache-memory-bytes", _KV)


def _rows(n: Numbers) -> Diagnosis | None:
    num_waiting = _num_waiting_rows(n)
    if num_waiting < FEW:
        return None
    of_all = "" if n.max_num_seqs is None else f" of {n.max_num_seqs}"
    rejected = f", {_whole(n.num_rejected)} turned away" if n.num_rejected >= 1 else ""
    queue = f"({_whole(n.num_running)}{of_all} run, {_some(num_waiting, 'waits', 'wait')}{rejected})"
    if n.kv_used >= KV_ROOM:
        return Diagnosis(
            "kv_and_rows",
            "warning",
            f"queueing: all rows are taken {queue}, and {n.kv_used:.0%} of the KV cache is held, so more rows alone "
            "would not help: raise --kv-cache-memory-bytes first",
            _KV,
        )
    return Diagnosis(
        "rows",
        "warning",
        f"queueing: max_num_seqs reached {queue}, KV {n.kv_used:.0%} used: raise --max-num-seqs",
        ("max_num_seqs",),
    )


def _grammars(n: Numbers) -> Diagnosis | None:
    num_waiting = n.num_waiting_grammars or 0
    if num_waiting < FEW:
        return None
    return Diagnosis(
        "grammars",
        "notice",
        f"grammars: {_some(num_waiting, 'request waits', 'requests wait')} until the grammar of the answer is "
        "compiled; use fewer different schemas, or simpler ones",
    )


def _long_prompt(n: Numbers) -> Diagnosis | None:
    """Others wait for their first token behind a prompt that takes several steps."""
    num_others = (n.num_first_tokens or 0) - 1
    if num_others < FEW or n.longest_prompt is None or n.step_tokens is None or n.longest_prompt <= n.step_tokens:
        return None
    return Diagnosis(
        "long_prompt",
        "warning",
        f"a long prompt holds up others' first token ({n.longest_prompt} tokens, {n.step_tokens} fit in a step, "
        f"{_some(num_others, 'other waits', 'others wait')}): send such prompts with service_tier batch, or raise "
        "--max-num-batched-tokens, so that others fit beside it",
        ("max_num_batched_tokens",),
    )


def _tokenizing(n: Numbers) -> Diagnosis | None:
    """Prompts are prepared, and little else happens; or that is what first tokens wait for."""
    num_preparing = n.num_preparing or 0
    is_main = _is_late(n) and (n.tokenize_s or 0) >= MAIN_SHARE * (n.ttft_s or 0)
    if not is_main and num_preparing < max(FEW, n.num_running + n.num_waiting):
        return None
    spent = f"{_seconds(n.tokenize_s or 0)} of {_seconds(n.ttft_s or 0)}" if is_main else f"{_whole(num_preparing)} now"
    return Diagnosis(
        "tokenizing",
        "notice",
        f"CPU: first tokens wait until prompts are tokenized ({spent}): long texts take turns on one core; send fewer "
        "of them at once, or token ids",
    )


def _prefill(n: Numbers) -> Diagnosis | None:
    """Computing prompts is what first tokens wait for."""
    if not _is_late(n) or (n.prefill_s or 0) < MAIN_SHARE * (n.ttft_s or 0):
        return None
    spent = f"computing prompts takes {_seconds(n.prefill_s or 0)} of the {_seconds(n.ttft_s or 0)} to the first token"
    if (n.num_decoding or 0) >= FEW:
        return Diagnosis(
            "prefill_beside_answers",
            "notice",
            f"prefill: {spent}, in pieces that are small beside answers: raise --itl-target-ms, and answers grow more "
            "slowly meanwhile",
            ("itl_target_ms",),
        )
    return Diagnosis(
        "prefill",
        "notice",
        f"prefill: {spent}: raise --max-num-batched-tokens, or let prompts begin alike, for the prefix cache",
        ("max_num_batched_tokens",),
    )


def _slow_clients(n: Numbers) -> Diagnosis | None:
    num_slow = n.num_slow_clients or 0
    if num_slow < FEW:
        return None
    return Diagnosis(
        "slow_clients",
        "warning",
        f"clients read slowly: {_some(num_slow, 'client leaves', 'clients leave')} unread what is there: look at "
        "their network, and at what stands between",
    )


def _processor(n: Numbers) -> Diagnosis | None:
    """A core, or all of them, have no time to spare."""
    if (n.server_cpu or 0) >= FULL_CORE:
        return Diagnosis(
            "server_cpu",
            "warning",
            f"CPU: the server's process takes {n.server_cpu:.0%} of a core beside the engine: leave it one with a "
            "lower --threads, or send fewer and longer requests",
            ("threads",),
        )
    if n.idle is None or n.idle > NO_REST:
        return None
    if (n.overhead or 0) >= OVERHEAD:
        return Diagnosis(
            "engine_overhead",
            "notice",
            f"CPU: {n.overhead:.0%} of the engine's time goes into planning steps and taking them in: leave it a core "
            "with a lower --threads",
            ("threads",),
        )
    return Diagnosis(
        "compute",
        "notice",
        f"CPU: the engine computes without a pause ({_whole(n.num_running)} run, KV {n.kv_used:.0%} used): "
        "faster only with more cores (--threads), or a smaller model",
        ("threads",),
    )


def _nothing(n: Numbers) -> Diagnosis:
    of_all = "" if n.max_num_seqs is None else f" of {n.max_num_seqs}"
    return Diagnosis("nothing", "ok", f"nothing binds: {_whole(n.num_running)}{of_all} run, KV {n.kv_used:.0%} used")


_RULES: tuple[Callable[[Numbers], Diagnosis | None], ...] = (
    _not_ready, _idle, _memory, _rows, _grammars, _long_prompt, _tokenizing, _prefill, _slow_clients,
    _processor, _nothing,
)  # fmt: skip


def _num_waiting_rows(n: Numbers) -> float:
    """Requests that wait for a row. Where servers don't tell what for, all that wait while the rows are taken."""
    if n.num_waiting_rows is not None:
        return n.num_waiting_rows
    has_rows = n.max_num_seqs is not None and n.num_running < ALL_ROWS * n.max_num_seqs
    return 0.0 if has_rows else n.num_waiting


def _is_late(n: Numbers) -> bool:
    return n.ttft_s is not None and n.ttft_s >= LATE_S


def _some(number: float, one: str, several: str) -> str:
    return amount(max(1, round(number)), one, several)


def _times(number: float) -> str:
    whole = max(1, round(number))
    return "once" if whole == 1 else f"{whole} times"


def _whole(number: float) -> str:
    return str(round(number))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
