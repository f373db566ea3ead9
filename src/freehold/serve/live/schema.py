"""What ``GET /debug/live`` answers. Seconds are ``…_s``; times ``at`` are Unix seconds; shares are 0 to 1.

Nothing here is made up by a client but ids of requests: keys are shown by the names that their owner gave them, and no
text of a prompt or an answer is held anywhere.
"""

from typing import Literal

import msgspec

Stage = Literal["tokenizing", "compiling", "queued", "prefilling", "answering", "ended"]
"""How far a request is: its prompt is made into tokens; what its answers must be is compiled; it waits in the engine;
its prompt is computed there; its first token came; its reply is complete. A request that loses its blocks before its
first token waits again."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the work.

    Attributes:
        max_num_batched_tokens: tokens that one step may compute.
        max_num_queued_reqs: None: any number may wait.
        kv_tokens: that fit in the KV cache.
    """

    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_queued_reqs: int | None
    block_size: int
    kv_tokens: int


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What serves.

    Attributes:
        ready: answers can be generated now, as ``/readyz`` says; else `why_not_ready` says why.
        num_engine_starts: how often the engine has started; with each, all that was cached is gone.
    """

    model: str
    model_family: str
    backend: str
    version: str
    fingerprint: str
    started_at: float
    uptime_s: float
    ready: bool
    why_not_ready: str
    num_engine_starts: int
    limits: Limits


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that wait in the engine, by what for; see `freehold.observe.state.Waiting`."""

    total: int
    rows: int
    tokens: int
    blocks: int
    leader: int
    grammar: int
    order: int


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of the KV cache in one kind of memory.

    Attributes:
        held: of running requests.
        cached: of nobody, kept for whoever begins with the same tokens.
        pinned: of both, what goes last when nobody holds it.
        free: hold nothing.
    """

    name: Literal["ram", "disk"]
    num_blocks: int
    held: int
    cached: int
    pinned: int
    free: int


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that only requests of the same key and ``cache_salt`` share.

    Attributes:
        name: of the key; ``shared`` for what is everybody's, ``no key`` for requests that came without one.
    """

    name: str
    num_blocks: int


class KV(msgspec.Struct, frozen=True, kw_only=True):
    """The KV cache.

    Attributes:
        used: share of the first tier's blocks that running requests hold.
        by_namespace: the largest ones.
    """

    used: float
    tiers: tuple[Tier, ...]
    by_namespace: tuple[Namespace, ...]


class StepShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the engine's time; see `freehold.observe.state.StepSeconds`. All 0 if nothing is known."""

    plan: float
    run: float
    apply: float
    idle: float


class TokenRates(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a second.

    Attributes:
        computed: that steps computed for the first time, those fed back included.
        recomputed: that steps computed again, as they were lost to preemption.
        cached: of prompts, reused instead of computed.
        output: sent to clients.
    """

    computed: float
    recomputed: float
    cached: float
    output: float


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Guessed tokens.

    Attributes:
        accepted: share of the guessed ones that were right.
        per_step: tokens that an answer grows by in a step with guesses.
    """

    drafts_per_s: float
    accepted: float
    per_step: float


class KeyUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one key's requests used that ended within the last minute and hour, and what it has running.

    Attributes:
        key: its name; empty for requests without a key.
    """

    key: str
    num_running: int
    minute_requests: int
    minute_tokens: int
    hour_requests: int
    hour_prompt_tokens: int
    hour_cached_tokens: int
    hour_output_tokens: int


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The newest second. Rates and shares are over the last five.

    Attributes:
        at: when it was taken.
        engine_age_s: how old the engine's own numbers are; None: it has told none.
        hit_rate: share of the looked up prompt tokens that the prefix cache had; None if none was looked up.
        speculation: None if nothing is guessed.
        num_inside: answers that were let in, those included whose prompt is being prepared.
        num_slow_clients: requests whose clients leave bytes unread.
        server_cpu: processor seconds a second of the server's process, the engine's not included.
        loop_lag_s: how late the server's event loop is.
        rejected_per_s: requests that were turned away.
        keys: the busiest ones.
    """

    at: float
    engine_age_s: float | None
    running: int
    prefilling: int
    waiting: Waiting
    num_inside: int
    kv: KV
    hit_rate: float | None
    preemptions_per_s: float
    steps_per_s: float
    step_shares: StepShares
    tokens_per_s: TokenRates
    speculation: Speculation | None
    num_slow_clients: int
    server_cpu: float
    loop_lag_s: float
    rejected_per_s: float
    keys: tuple[KeyUse, ...]


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What limits the server now; see `freehold.observe.diagnosis`.

    Attributes:
        sentence: names the limit and the remedy, for people.
        settings: flags of ``freehold serve`` that the sentence names.
    """

    code: str
    severity: Literal["ok", "notice", "warning", "critical"]
    sentence: str
    settings: tuple[str, ...]


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of a duration in seconds, to within 2.5 %. None if nothing was measured."""

    count: int
    mean_s: float | None
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of what happened within the last `window_s` seconds, by stage.

    Attributes:
        ttft: from arrival to the first token; of it:
        tokenize: until the prompt is known: template and tokenizing,
        compile: of those that want answers of a given form: until the grammar for that is compiled,
        queue: from there until the engine began with it,
        prefill: until its first token.
        decode: from the first token to the last.
        itl: between two tokens of an answer.
        e2e: from arrival to the reply's end.
    """

    window_s: int
    ttft: Percentiles
    tokenize: Percentiles
    compile: Percentiles
    queue: Percentiles
    prefill: Percentiles
    decode: Percentiles
    itl: Percentiles
    e2e: Percentiles


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Points of the past, oldest first; all columns are as long as `at`.

    Attributes:
        step_s: between two points.
        at: when a point ended.
        columns: by name; None where nothing was measured. `freehold.observe.history` makes them: requests (running,
            prefilling, waiting, waiting_rows, waiting_blocks, slow_clients), shares of all blocks (kv_held, kv_cached,
            kv_pinned), shares of time (plan, run, apply, idle), other shares (hit_rate, accepted), what happened in a
            second (requests, rejected, queue_full, preemptions, steps, drafts), tokens in a second (computed,
            recomputed, cached, output), seconds (loop_lag_s, and of each duration in `Latencies` as ttft_p50_s,
            ttft_p90_s and ttft_p99_s), processor seconds in a second (server_cpu), and tokens in a step with guesses
            (per_draft).
    """

    step_s: int
    at: list[float]
    columns: dict[str, list[float | None]]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The last five minutes by seconds, and the last hour by quarters of a minute."""

    fine: Columns
    coarse: Columns


class RequestLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Its stages are seconds after `at`; None: not reached, or not known.

    Attributes:
        at: when it arrived.
        key: name of its key.
        surface: chat, completions or messages.
        service: its class: interactive, agent or batch.
        num_answers: that it asked for.
        tokenized_s: its prompt was known.
        queued_s: it was given to the engine.
        compile_s: how long its grammar took to be compiled, or takes so far; None: its answers may be anything.
        started_s: the engine began with it. While it has no first token, that is as new as what the engine told last.
        first_token_s: its first token was there.
        ended_s: its reply was complete, or broken off.
        status: of HTTP; 0 as long as there is none, 499 if the client left.
        num_computed_tokens: of the prompt's, those that the engine has computed or reused; all of them from the first
            token on.
        outcome: why its answers ended, or what ended it: ``stop``, ``cancelled``, ``failed:numeric_error``,
            ``queue_full``.
        unread_s: how long its client had no room for what was there.
        num_unread_bytes: what there is now that its client has no room for.
    """

    id: str
    at: float
    stage: Stage
    key: str
    surface: str
    service: str
    is_stream: bool
    num_answers: int
    tokenized_s: float | None
    compile_s: float | None
    queued_s: float | None
    started_s: float | None
    first_token_s: float | None
    ended_s: float | None
    num_prompt_tokens: int
    num_computed_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    num_preemptions: int
    status: int
    outcome: str
    unread_s: float
    num_unread_bytes: int


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests to generate.

    Attributes:
        live: those that have not ended, oldest first; with `num_live` of them some newer ones may be left out.
        ended: the last ones, oldest first.
    """

    num_live: int
    live: list[RequestLine]
    ended: list[RequestLine]


class LiveAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``GET /debug/live``.

    Attributes:
        cursor: what to send as ``since`` next, so that history and ended requests hold what is new alone.
        latencies: of the last minute, five minutes, hour.
    """

    cursor: float
    server: About
    binding: Binding
    now: Now
    latencies: tuple[Latencies, ...]
    history: History
    requests: Requests
