"""The one list of settings: their names, the values they take, and their defaults."""

from dataclasses import dataclass
from typing import get_args

from freehold.config import (
    ActivationName,
    BackendName,
    ConventionName,
    EnginePlace,
    IsaName,
    KVDtypeName,
    PackedCacheName,
    PolicyName,
    ReasoningParserName,
    RecordMode,
    ToolCallParserName,
    UnknownFields,
)
from freehold.logs import LogFormat
from freehold.setting_kinds import (
    Kind,
    choice,
    file,
    folder,
    integer,
    number,
    origin,
    pair,
    parse_size,
    parse_span,
    secret,
    size_from,
    switch,
    text,
    url,
)

PREFIX = "FREEHOLD_"
DEFAULT_MODEL = "smollm2"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: key in the configuration file; the flag has dashes, the variable the prefix and capitals.
        help: one line for ``--help``.
        default: text of the default; None if `freehold.resolve` works it out.
        aliases: shorter flags that other servers use.
        serve_only: meaningless without a server.
        is_secret: its value is never shown.
        unset: what ``--show-config`` says of it if nobody gave it and nothing is worked out.
    """

    name: str
    kind: Kind
    help: str
    default: str | None = None
    aliases: tuple[str, ...] = ()
    serve_only: bool = False
    is_secret: bool = False
    unset: str = ""

    @property
    def is_switch(self) -> bool:
        """It is on or off: as a flag without a value, ``--name`` or ``--no-name``."""
        return self.kind.parse is switch

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


_SIZE = Kind(parse_size, "SIZE")
_SPAN = Kind(parse_span, "TIME")
_FILE = Kind(file, "FILE")
_FOLDER = Kind(folder, "FOLDER")

SETTINGS: tuple[Setting, ...] = (
    Setting("model", Kind(text, "NAME"), "store name, path, or Hugging Face id", DEFAULT_MODEL, ("-m",)),
    Setting("home", _FOLDER, "folder of the model store"),
    Setting(
        "max_model_len",
        integer(1),
        "prompt plus output tokens of a request; default: the model's, or what the KV cache holds",
        aliases=("-c",),
        unset="auto",
    ),
    Setting("max_num_seqs", integer(1, 4096), "requests that run in one step", "64", ("-np",)),
    Setting("max_num_batched_tokens", integer(1, 1 << 20), "tokens computed in one step", "512"),
    Setting(
        "itl_target_ms",
        number(1.0, 1e6, "MS"),
        "how long a step may take while answers grow; prompts beside them are cut into chunks that small",
        "140",
    ),
    Setting(
        "scheduling_policy",
        choice(get_args(PolicyName)),
        "who goes first: the more urgent by service class and priority, or the earlier",
        "priority",
    ),
    Setting("memory_utilization", number(0.05, 1.0, "SHARE"), "share of the memory limit that may be used", "0.9"),
    Setting(
        "kv_cache_memory_bytes",
        _SIZE,
        "KV cache, such as 512M or 2GiB; default: what fits, at most 512 MiB",
        unset="what fits, at most 512 MiB",
    ),
    Setting("kv_cache_dtype", choice(get_args(KVDtypeName)), "numeric format of the KV cache", "bf16"),
    Setting("block_size", integer(16, 1024, 16), "tokens in a KV block", "32"),
    Setting(
        "enable_prefix_caching",
        Kind(switch, "{true,false}"),
        "reuse keys and values computed before for the same beginning",
        "true",
    ),
    Setting(
        "activations",
        choice(get_args(ActivationName)),
        "numeric format of activations in quantized layers: int8 is faster, float more precise; "
        "default: int8 where the backend has it",
    ),
    Setting(
        "threads", integer(1, 1024), "threads that compute; default: the cores this process may use", None, ("-t",)
    ),
    Setting("isa", choice(get_args(IsaName)), "highest instruction set to use; default: the processor's", unset="auto"),
    Setting(
        "packed_cache",
        choice(get_args(PackedCacheName)),
        "keep packed weights on disk for the next start: auto if packing took more than two seconds",
        "auto",
    ),
    Setting("packed_cache_bytes", _SIZE, "disk space for packed weights of all models", "32GiB"),
    Setting("backend", choice(get_args(BackendName)), "what computes", "cpu"),
    Setting(
        "stall_timeout",
        number(1, 86400, "SECONDS"),
        "seconds without a finished step after which the server reports itself as not ready",
        "60",
    ),
    Setting(
        "engine",
        choice(get_args(EnginePlace)),
        "where the engine runs: in a process of its own, or in a thread of the server",
        "process",
        serve_only=True,
    ),
    Setting("host", Kind(text, "ADDRESS"), "address to listen on", "127.0.0.1", serve_only=True),
    Setting("port", integer(0, 65535), "TCP port; 0 picks a free one", "8000", serve_only=True),
    Setting(
        "api_key",
        Kind(secret, "KEY", is_list=True),
        "a key for everything, besides those of `freehold keys`; may be given several times. Other users of the "
        "machine see flags, but not variables",
        serve_only=True,
        is_secret=True,
        unset="none",
    ),
    Setting(
        "allow_no_key",
        Kind(switch, "{true,false}"),
        "listen to other machines even if no key exists",
        "false",
        serve_only=True,
    ),
    Setting(
        "served_model_name",
        Kind(text, "NAME", is_list=True),
        "names of the model in the API; answers bear the first. Default: the model's name",
        serve_only=True,
        unset="the model's name",
    ),
    Setting(
        "allowed_origins",
        Kind(origin, "ORIGIN", is_list=True),
        "web pages that may use the server, such as https://example.org, or * for all; default: its own",
        serve_only=True,
        unset="its own",
    ),
    Setting(
        "unknown_fields",
        choice(get_args(UnknownFields)),
        "requests with fields that nobody knows or that aren't supported: refuse them, or serve without and say so "
        "in the header x-ignored-fields",
        "refuse",
        serve_only=True,
    ),
    Setting(
        "request_timeout",
        number(0.001, 1e7, "SECONDS"),
        "seconds in the engine after which a request ends as failed; default: none",
        serve_only=True,
        unset="none",
    ),
    Setting(
        "shutdown_timeout",
        number(0, 86400, "SECONDS"),
        "seconds that running requests may finish in",
        "30",
        serve_only=True,
    ),
    Setting(
        "profile",
        Kind(switch, "{true,false}"),
        "time every step: a table when the server stops, POST /debug/profile meanwhile",
        "false",
        serve_only=True,
    ),
    Setting(
        "otlp_traces_endpoint",
        Kind(url, "URL"),
        "send traces there, as OTLP over HTTP; /v1/traces is appended to a URL that doesn't end in /traces",
        serve_only=True,
        unset="none",
    ),
    Setting(
        "otlp_traces_headers",
        Kind(pair, "NAME=VALUE", is_list=True),
        "headers to send traces with, such as Authorization",
        serve_only=True,
        is_secret=True,
        unset="none",
    ),
    Setting(
        "otlp_traces_ratio",
        number(0, 1, "SHARE"),
        "share of requests that are traced; those that bring a trace with them are traced if it is",
        "1",
        serve_only=True,
    ),
    Setting(
        "otlp_traces_content",
        Kind(switch, "{true,false}"),
        "prompts, answers and tools in traces",
        "false",
        serve_only=True,
    ),
    Setting(
        "otlp_traces_convention",
        choice(get_args(ConventionName)),
        "how spans say it: as OpenTelemetry's released instrumentations, or as the newest text of its conventions",
        "released",
        serve_only=True,
    ),
    Setting(
        "otlp_traces_resource",
        Kind(pair, "NAME=VALUE", is_list=True),
        "what all spans say of this server, such as deployment.environment.name=production",
        serve_only=True,
        unset="service.name=freehold",
    ),
    Setting("max_body_bytes", _SIZE, "largest request body", "4M", serve_only=True),
    Setting(
        "state_dir",
        _FOLDER,
        "folder for keys, usage, files and batches; default: state in the folder of the model store",
        serve_only=True,
    ),
    Setting("max_file_bytes", _SIZE, "largest uploaded file", "200M", serve_only=True),
    Setting("max_stored_bytes", _SIZE, "all stored files before no more are taken", "16GiB", serve_only=True),
    Setting("max_num_batch_reqs", integer(1, 4096), "requests of batches that run or wait", "32", serve_only=True),
    Setting(
        "warmup_prefixes",
        _FILE,
        "JSON lines of prefixes that are computed at start and stay cached, for all keys",
        serve_only=True,
        unset="none",
    ),
    Setting(
        "tool_call_parser",
        choice(get_args(ToolCallParserName)),
        "how the model writes calls of tools; auto: as its chat template shows",
        "auto",
        serve_only=True,
    ),
    Setting(
        "enable_auto_tool_choice",
        Kind(switch, "{true,false}"),
        "the model may decide whether it calls tools",
        "true",
        serve_only=True,
    ),
    Setting(
        "reasoning_parser",
        choice(get_args(ReasoningParserName)),
        "how the model writes its reasoning; auto: as chat template and vocabulary show",
        "auto",
        serve_only=True,
    ),
    Setting(
        "record",
        choice(get_args(RecordMode)),
        "keep requests on disk: lengths, times and hashes, or everything, to be replayed. Keys may say otherwise",
        "off",
        serve_only=True,
    ),
    Setting(
        "record_dir",
        _FOLDER,
        "folder of the recording; default: recording in the folder of --state-dir",
        serve_only=True,
    ),
    Setting("record_sample", number(0.0, 1.0, "SHARE"), "share of requests that is recorded", "1", serve_only=True),
    Setting(
        "record_bytes",
        size_from(1 << 20),
        "disk space for the recording, at least 1MiB; the oldest records go",
        "1GiB",
        serve_only=True,
    ),
    Setting("record_age", _SPAN, "how long records are kept, such as 12h or 7d", "7d", serve_only=True),
    Setting("max_num_queued_reqs", integer(1, 1 << 20), "requests that may wait", "1024", serve_only=True),
    Setting(
        "max_num_queued_tokens",
        integer(1),
        "tokens of prompts that may wait to be computed; default: any number",
        serve_only=True,
        unset="any number",
    ),
    Setting(
        "log_format", choice(get_args(LogFormat)), "lines for people, or a JSON object each", "pretty", serve_only=True
    ),
    Setting("log_level", choice(("debug", "info", "warning", "error")), "how much to log", "info", serve_only=True),
)
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
