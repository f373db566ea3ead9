"""What a run is asked to do. Saved with its results, so that it can be resumed."""

from typing import Any, Literal

import msgspec

from freehold.loadtest.results import Load, Metric

Backend = Literal["openai", "openai-chat"]
"""Completions or chats, under vLLM's names."""

ENDPOINTS: dict[Backend, str] = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}


class DatasetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversations are asked. Lengths are in tokens.

    Attributes:
        name: of the kind of data set.
        path: of its file, for kinds that have one.
        random_range_ratio: lengths differ by up to so much of themselves.
        output_len: of answers to texts, instead of the file's own.
        max_turns: of a file's conversations.
        is_verbatim: texts are sent as they are, though a server may then have them cached.
        prefix_len, suffix_len, num_prefixes: of prompts that begin alike.
        num_turns, opening_len, pause_s: of sessions: requests, what all begin with, mean pause in seconds.
        published: which published lengths, and `length_scale`: they are multiplied by it.
        trace_columns: own names of a timed trace's columns.
        trace_block_len, trace_unit_s: of a timed trace: tokens of a block, seconds of the time's unit.
        trace_length_scale, trace_speed: see `freehold.loadtest.workloads.trace.Fit`.
    """

    name: str = "random"
    path: str | None = None
    random_input_len: int = 256
    random_output_len: int = 128
    random_range_ratio: float = 0.0
    output_len: int | None = None
    max_turns: int = 1
    is_verbatim: bool = False
    prefix_len: int = 256
    suffix_len: int = 256
    num_prefixes: int = 10
    num_turns: int = 5
    opening_len: int = 0
    pause_s: float = 1.0
    published: str = "chat"
    length_scale: float = 1.0
    trace_columns: dict[str, str] = {}
    trace_block_len: int = 16
    trace_unit_s: float = 0.001
    trace_length_scale: float | None = None
    trace_speed: float = 1.0


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A run. What may be secret (keys, headers) is none of it.

    Attributes:
        endpoint: path of the requests.
        model: as the server calls it; None takes the first that it lists.
        loads: one for each point.
        repeats: of each point.
        num_prompts: conversations of each repeat; None takes as many as the concurrency wants, see `prompts_of`.
        num_warmups: requests before each measurement that don't count.
        warm_cache: all points ask the same, and it was asked once before.
        limits_ms: of the goodput.
        percents: percentiles to report beside those that always are.
        fields: further ones of each request's body.
        metrics_path: of the server's metrics; None if they aren't to be read.
        timeout_s: for a whole request.
        detect_saturation: stop a point early if its rate is more than the server can answer.
    """

    base_url: str
    backend: Backend = "openai"
    endpoint: str = ENDPOINTS["openai"]
    model: str | None = None
    tokenizer: str | None = None
    dataset: DatasetOptions = DatasetOptions()
    loads: list[Load]
    repeats: int = 1
    num_prompts: int | None = None
    num_warmups: int = 1
    seed: int
    warm_cache: bool = False
    is_stream: bool = True
    ignore_eos: bool = False
    limits_ms: dict[Metric, float] = {}
    percents: list[float] = []
    fields: dict[str, Any] = {}
    is_insecure: bool = False
    metrics_path: str | None = "/metrics"
    timeout_s: float = 600.0
    detect_saturation: bool = False
    label: str | None = None
    metadata: dict[str, str] = {}

    def prompts_of(self, load: Load) -> int:
        """How many conversations a repeat of this load asks."""
        return self.num_prompts or max(100, 4 * (load.concurrency or 1))
