"""Frozen configuration. `resolve.py` makes it once from flags, environment, file and hardware."""

from pathlib import Path
from typing import Literal, get_args

import msgspec

from freehold.logs import LogFormat

BackendName = Literal["cpu", "reference", "scripted"]
IsaName = Literal["avx512bf16", "avx512", "avx2", "generic"]
ActivationName = Literal["float", "int8"]
KVDtypeName = Literal["bf16", "int8", "f32"]
EnginePlace = Literal["process", "thread"]
PackedCacheName = Literal["auto", "always", "never"]
UnknownFields = Literal["refuse", "warn"]
PolicyName = Literal["priority", "fcfs"]
ToolCallParserName = Literal["auto", "hermes", "qwen3_coder", "glm45", "llama3_json", "mistral", "json"]
ConventionName = Literal["released", "latest"]
RecordMode = Literal["off", "metadata", "full"]
RECORD_MODES: tuple[RecordMode, ...] = get_args(RecordMode)
ReasoningParserName = Literal["auto", "none", "deepseek_r1", "qwen3", "mistral"]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one engine.

    Attributes:
        model_path: a GGUF file, or a directory with ``config.json`` and safetensors.
        isa: highest instruction set the CPU backend may use; None means what the processor has.
        activations: numeric format of activations in quantized linear layers.
        kv_cache_bytes: bytes of KV cache.
        max_model_len: prompt plus output tokens of one request; None means what the model was trained for.
        max_num_seqs: requests that run in one step.
        max_num_batched_tokens: tokens computed in one step (the chunked-prefill budget).
        itl_target_ms: milliseconds that a step may last while answers grow: prompts beside them are cut into chunks
            that small.
        block_size: tokens in a KV block, a multiple of 16.
        scheduling_policy: who goes first: the more urgent by service class and priority, or the earlier.
        max_num_queued_reqs: requests that may wait beyond those that run in one step; None means any number.
        max_num_queued_tokens: tokens of prompts that may wait to be computed; None means any number.
        prefix_caching: reuse keys and values that were computed before for the same ids.
        cache_dir: where hashes of model files are remembered between starts; None means nowhere.
        packed_dir: where packed weights are kept between starts; None means nowhere.
        packed_cache: whether to keep them: if packing took long, always, or never.
        packed_cache_bytes: what all files in `packed_dir` may take.
        memory_limit_bytes: weights, KV cache and scratch together must fit in this; None means that nobody knows the
            machine's memory and nothing is checked.
        profile: measure the machine's limits at start, so that steps can be profiled at any time.
        stall_timeout_s: a busy engine that finishes no step for this long reports itself as not healthy.
    """

    model_path: Path
    backend: BackendName = "cpu"
    isa: IsaName | None = None
    activations: ActivationName = "float"
    num_threads: int = 1
    kv_cache_bytes: int = 256 << 20
    kv_cache_dtype: KVDtypeName = "bf16"
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    itl_target_ms: float = 140.0
    block_size: int = 32
    scheduling_policy: PolicyName = "priority"
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    prefix_caching: bool = True
    cache_dir: Path | None = None
    packed_dir: Path | None = None
    packed_cache: PackedCacheName = "auto"
    packed_cache_bytes: int = 32 << 30
    memory_limit_bytes: int | None = None
    profile: bool = False
    stall_timeout_s: float = 60.0


class TracingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where traces go, and what they hold.

    Attributes:
        endpoint: URL that takes OTLP over HTTP.
        headers: sent along, by name.
        ratio: share of requests that are traced, of those that bring no trace with them.
        with_content: prompts, answers and tools too.
        convention: which text of OpenTelemetry's conventions spans keep to.
        resource: what all spans say of this server.
    """

    endpoint: str
    headers: tuple[tuple[str, str], ...] = ()
    ratio: float = 1.0
    with_content: bool = False
    convention: ConventionName = "released"
    resource: tuple[tuple[str, str], ...] = ()


class RecordConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What of requests is kept on disk, for looking back and replaying.

    Attributes:
        mode: nothing; lengths, times and hashes; or everything. Keys may say otherwise.
        folder: where; None: nowhere, whatever keys say.
        model_path: which model is being served, for those who replay.
        sample: share of requests that is recorded, picked at random.
        max_bytes, max_age_s: the oldest records are dropped beyond these.
    """

    mode: RecordMode = "off"
    folder: Path | None = None
    model_path: Path | None = None
    sample: float = 1.0
    max_bytes: int = 1 << 30
    max_age_s: float = 7 * 86400.0


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the HTTP server.

    Attributes:
        engine: where the engine runs: in a process of its own, which is started again if it dies, or in a thread of the
            server.
        profile: steps are profiled all the time, and ``POST /debug/profile`` answers.
        api_keys: secrets of keys that may do everything, besides those in `state_dir`.
        allow_no_key: listen to other machines even if no key exists.
        shutdown_timeout_s: how long running requests may finish after the first SIGTERM or Ctrl-C.
        allowed_origins: web pages that may use the server, such as ``https://example.org``; ``*`` stands for all.
        model_aliases: names beside `served_model_name` that mean the same model.
        request_timeout_s: after so long in the engine a request ends as failed; None lets it run. Not those of the
            class batch, which nobody waits for.
        unknown_fields: refuse requests with fields that nobody knows or that aren't supported, or serve them without
            these and say so in a header.
        state_dir: folder for what outlives the server, such as files and batches; None keeps nothing, and the server
            then has no Batch API.
        max_file_bytes: bytes of one uploaded file.
        max_stored_bytes: bytes of all stored files before no more may be uploaded.
        max_num_batch_reqs: requests of batches that run or wait at the same time.
        warmup_prefixes: JSON lines of prefixes that are computed at start and stay cached.
        tool_call_parser: how the model writes calls of tools; auto: as its template shows.
        enable_auto_tool_choice: the model may decide whether it calls tools.
        reasoning_parser: how it writes its reasoning; auto: as template and vocabulary show.
        tracing: where traces go; None makes none.
        record: the flight recorder.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: str = "smollm2"
    engine: EnginePlace = "process"
    profile: bool = False
    api_keys: tuple[str, ...] = ()
    allow_no_key: bool = False
    shutdown_timeout_s: float = 30.0
    max_body_bytes: int = 4 << 20
    allowed_origins: tuple[str, ...] = ()
    model_aliases: tuple[str, ...] = ()
    request_timeout_s: float | None = None
    unknown_fields: UnknownFields = "refuse"
    state_dir: Path | None = None
    max_file_bytes: int = 200 << 20
    max_stored_bytes: int = 16 << 30
    max_num_batch_reqs: int = 32
    warmup_prefixes: Path | None = None
    tool_call_parser: ToolCallParserName = "auto"
    enable_auto_tool_choice: bool = True
    reasoning_parser: ReasoningParserName = "auto"
    tracing: TracingConfig | None = None
    record: RecordConfig = RecordConfig()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: LogFormat = "pretty"
