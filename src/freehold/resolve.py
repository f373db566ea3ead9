"""Flags, environment, configuration file and hardware become frozen configuration here, once.

The only file that reads the environment. `SETTINGS` is the one list: a row is a flag (``--max-num-seqs``), a variable
(``FREEHOLD_MAX_NUM_SEQS``) and a key of the TOML file that ``--config`` names (``max_num_seqs``). The first that gives
a value wins, in this order: flag, environment, file, default. What no row knows is refused, with the nearest names.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from freehold.config import ActivationName, BackendName, EngineConfig, EnginePlace, IsaName, KVDtypeName, ServeConfig
from freehold.errors import ConfigError, ResourceError
from freehold.machine import Machine, read_machine

PREFIX = "FREEHOLD_"
DEFAULT_MODEL = "smollm2"

DEFAULT_KV_BYTES = 512 << 20
"""Default KV cache: enough for some full-length requests of a small model, and untouched blocks cost nothing."""
MIN_KV_BYTES = 16 << 20
OVERHEAD_BYTES = 192 << 20
"""Interpreter, libraries, tokenizer, activations: what a process needs besides weights and KV cache."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DECIMAL_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: key in the configuration file; the flag has dashes, the variable the prefix and capitals.
        parse: makes the value from its text; raises ValueError that says what is accepted.
        help: one line for ``--help``.
        default: text of the default; None if `resolve` works it out.
        aliases: shorter flags that other servers use.
        serve_only: meaningless without a server.
    """

    name: str
    parse: Callable[[str], Any]
    help: str
    default: str | None = None
    aliases: tuple[str, ...] = ()
    serve_only: bool = False

    @property
    def is_switch(self) -> bool:
        """It is on or off: as a flag without a value, ``--name`` or ``--no-name``."""
        return self.parse is _switch

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


@dataclass(frozen=True, slots=True)
class Value:
    """A resolved value and where it came from, for people."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """Everything that start-up needs. `values` is for ``--show-config``, in the order of `SETTINGS`."""

    engine: EngineConfig
    serve: ServeConfig
    values: Mapping[str, Value]


def _integer(low: int, high: int = 1 << 40, multiple_of: int = 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,15}", text) or not low <= int(text) <= high or int(text) % multiple_of:
            step = f", a multiple of {multiple_of}" if multiple_of > 1 else ""
            raise ValueError(f"a whole number from {low} to {high}{step}")
        return int(text)

    return parse


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return number

    return parse


def parse_size(text: str) -> int:
    """Bytes from text such as ``512M``, ``2GiB`` (powers of 1024), ``2GB`` (powers of 1000) or a plain number."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-z]*)", text.strip().lower())
    unit = match and (_DECIMAL_UNITS.get(match[2]) or _UNITS.get(match[2].removesuffix("ib").removesuffix("b")))
    if not match or not unit:
        raise ValueError("a size such as 512M, 2GiB or a number of bytes")
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def format_size(num_bytes: int) -> str:
    """Bytes for people: ``512 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{num_bytes} B"


def _choice(options: Iterable[str]) -> Callable[[str], str]:
    names = tuple(options)

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return parse


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _text(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("a name without control characters")
    return text


SETTINGS: tuple[Setting, ...] = (
    Setting("model", _text, "store name, path, or Hugging Face id", DEFAULT_MODEL, ("-m",)),
    Setting("home", Path, "folder of the model store"),
    Setting(
        "max_model_len", _integer(1), "prompt plus output tokens of a request; default: the model's", aliases=("-c",)
    ),
    Setting("max_num_seqs", _integer(1, 4096), "requests that run in one step", "64", ("-np",)),
    Setting("max_num_batched_tokens", _integer(1, 1 << 20), "tokens computed in one step", "512"),
    Setting("memory_utilization", _number(0.05, 1.0), "share of the memory limit that may be used", "0.9"),
    Setting("kv_cache_memory_bytes", parse_size, "KV cache, such as 512M or 2GiB; default: what fits, at most 512 MiB"),
    Setting("kv_cache_dtype", _choice(get_args(KVDtypeName)), "numeric format of the KV cache", "bf16"),
    Setting("block_size", _integer(16, 1024, 16), "tokens in a KV block", "32"),
    Setting("enable_prefix_caching", _switch, "reuse keys and values computed before for the same beginning", "true"),
    Setting("activations", _choice(get_args(ActivationName)), "numeric format of activations", "float"),
    Setting(
        "threads", _integer(1, 1024), "threads that compute; default: the cores this process may use", None, ("-t",)
    ),
    Setting("isa", _choice(get_args(IsaName)), "highest instruction set to use; default: the processor's"),
    Setting("backend", _choice(get_args(BackendName)), "what computes", "cpu"),
    Setting("stall_timeout", _number(1, 86400), "seconds without a finished step after which it is not ready", "60"),
    Setting(
        "engine",
        _choice(get_args(EnginePlace)),
        "where the engine runs: in a process of its own, or in a thread of the server",
        "process",
        serve_only=True,
    ),
    Setting("host", _text, "address to listen on", "127.0.0.1", serve_only=True),
    Setting("port", _integer(0, 65535), "TCP port; 0 picks a free one", "8000", serve_only=True),
    Setting("served_model_name", _text, "model name in the API; default: the model's name", serve_only=True),
    Setting(
        "shutdown_timeout", _number(0, 86400), "seconds that running requests may finish in", "30", serve_only=True
    ),
    Setting("max_body_bytes", parse_size, "largest request body", "4M", serve_only=True),
    Setting("max_num_queued_reqs", _integer(1, 1 << 20), "requests that may wait", "1024", serve_only=True),
    Setting("log_level", _choice(("debug", "info", "warning", "error")), "how much to log", "info", serve_only=True),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_CONFIG_VARIABLE = PREFIX + "CONFIG"


def home_directory() -> Path:
    """Folder of the model store: ``FREEHOLD_HOME``, or ``freehold`` in the user's cache folder."""
    return _home(os.environ)


def serve_config(flags: Mapping[str, Any], config: Path | None = None, machine: Machine | None = None) -> Resolved:
    """Resolve everything that ``freehold serve`` needs.

    Args:
        flags: values by setting name, text or typed; None means that the flag was not given.
        config: the TOML file; None means the one that ``FREEHOLD_CONFIG`` names, if any.
        machine: limits that defaults come from; None reads this machine's.

    Raises:
        ConfigError: an unknown name or an unusable value.
        ModelNotFoundError: no such model in the store.
        ResourceError: the memory budget is too small.
    """
    values = _collect(flags, os.environ, config)
    limits = machine or read_machine()
    engine = _engine(values, limits)
    model = str(values["model"].value)
    if "served_model_name" not in values:
        values["served_model_name"] = Value(_served_name(model), "the model's name")
    serve = ServeConfig(
        host=values["host"].value,
        port=values["port"].value,
        served_model_name=values["served_model_name"].value,
        engine=values["engine"].value,
        shutdown_timeout_s=values["shutdown_timeout"].value,
        max_body_bytes=values["max_body_bytes"].value,
        max_num_queued_reqs=values["max_num_queued_reqs"].value,
        log_level=values["log_level"].value,
    )
    ordered = {setting.name: values[setting.name] for setting in SETTINGS if setting.name in values}
    return Resolved(engine=engine, serve=serve, values=ordered)


def lookup(name: str, flags: Mapping[str, Any], config: Path | None = None) -> Value:
    """One setting that doesn't depend on the machine, and where it came from.

    Raises:
        ConfigError: an unknown name or an unusable value, of any setting.
    """
    return _collect(flags, os.environ, config)[name]


def table(values: Mapping[str, Value]) -> str:
    """Settings, their values and sources, one a line."""
    rows = [(name, _shown(name, value.value), value.source) for name, value in values.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {source}" for name, value, source in rows)


def engine_config(
    *,
    model: str | Path = DEFAULT_MODEL,
    config: Path | None = None,
    machine: Machine | None = None,
    **overrides: Any,
) -> EngineConfig:
    """Resolve the settings of an engine without a server, for the Python API.

    Args:
        model: store name, path or Hugging Face id.
        config: a TOML file, as for `serve_config`.
        overrides: values by setting name, as in ``threads=2``; they win over the environment. None means not given.

    Raises as `serve_config` does.
    """
    return _engine(_collect({"model": model, **overrides}, os.environ, config), machine or read_machine())


def _shown(name: str, value: Any) -> str:
    setting = _BY_NAME[name]
    if setting.is_switch:
        return str(value).lower()
    return format_size(value) if setting.parse is parse_size else str(value)


def _home(environ: Mapping[str, str]) -> Path:
    if given := environ.get(_BY_NAME["home"].variable):
        return Path(given).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "freehold"


def _collect(flags: Mapping[str, Any], environ: Mapping[str, str], config: Path | None) -> dict[str, Value]:
    """Every value that a flag, the environment, the file or a fixed default gives."""
    given: dict[str, tuple[Any, str]] = {s.name: (s.default, "default") for s in SETTINGS if s.default is not None}
    variables = {s.variable: s.name for s in SETTINGS}
    config_path = config or (Path(environ[_CONFIG_VARIABLE]) if environ.get(_CONFIG_VARIABLE) else None)
    if config_path is not None:
        for key, value in _read_file(config_path).items():
            name = key.replace("-", "_")
            _require_known(name, _BY_NAME, f"key {key!r} in {config_path}")
            given[name] = (value, f"{config_path}")
    for variable, value in environ.items():
        if variable.startswith(PREFIX) and variable != _CONFIG_VARIABLE:
            _require_known(variable, variables, f"environment variable {variable}")
            given[variables[variable]] = (value, variable)
    for name, value in flags.items():
        _require_known(name, _BY_NAME, f"setting {name!r}")
        if value is not None:
            given[name] = (value, _BY_NAME[name].flag)
    values = {name: Value(_parse(_BY_NAME[name], raw, source), source) for name, (raw, source) in given.items()}
    values.setdefault("home", Value(_home(environ), "default"))
    return values


def _parse(setting: Setting, raw: Any, source: str) -> Any:
    if (isinstance(raw, bool) and not setting.is_switch) or not isinstance(raw, str | int | float | Path):
        raise ConfigError(f"{setting.name} can't be {raw!r} (from {source})")
    try:
        return setting.parse(str(raw))
    except ValueError as error:
        raise ConfigError(f"{setting.name} can't be {str(raw)!r} (from {source}): it is {error}") from None


def _require_known(name: str, known: Iterable[str], what: str) -> None:
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3)
        raise ConfigError(f"unknown {what}" + (f"; did you mean {' or '.join(near)}?" if near else ""))


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"can't read the configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} is not TOML: {error}") from None


def _served_name(model: str) -> str:
    """The name clients use: a path loses its folders and its ending."""
    path = Path(model)
    if path.suffix == ".gguf":
        return path.stem
    return path.resolve().name if path.is_dir() else model


def _engine(values: dict[str, Value], machine: Machine) -> EngineConfig:
    """Work out what nobody set, note where it came from in `values`, and freeze."""
    # Brings numpy along, which `freehold --help` can do without.
    from freehold.files import store

    home: Path = values["home"].value
    model_path = store.locate(str(values["model"].value), home)
    if "threads" not in values:
        values["threads"] = Value(machine.num_cores, machine.cores_from)
    memory_limit_bytes = int(machine.memory_bytes * values["memory_utilization"].value) - OVERHEAD_BYTES
    values["kv_cache_memory_bytes"] = _kv_cache(values, machine, memory_limit_bytes - _weight_file_bytes(model_path))

    def optional(name: str) -> Any:
        return values[name].value if name in values else None

    return EngineConfig(
        model_path=model_path,
        backend=values["backend"].value,
        isa=optional("isa"),
        activations=values["activations"].value,
        num_threads=values["threads"].value,
        kv_cache_bytes=values["kv_cache_memory_bytes"].value,
        kv_cache_dtype=values["kv_cache_dtype"].value,
        max_model_len=optional("max_model_len"),
        max_num_seqs=values["max_num_seqs"].value,
        max_num_batched_tokens=values["max_num_batched_tokens"].value,
        block_size=values["block_size"].value,
        prefix_caching=values["enable_prefix_caching"].value,
        cache_dir=home / "hashes",
        memory_limit_bytes=memory_limit_bytes,
        stall_timeout_s=values["stall_timeout"].value,
    )


def _weight_file_bytes(model_path: Path) -> int:
    """Bytes of the files that hold weights: close to what they take in memory, as they keep their numeric format."""
    if model_path.is_dir():
        return sum(path.stat().st_size for path in model_path.glob("*.safetensors"))
    return model_path.stat().st_size


def _kv_cache(values: Mapping[str, Value], machine: Machine, room: int) -> Value:
    """The KV cache that was asked for or that fits into `room` bytes.

    Raises:
        ResourceError: nothing useful fits; says which setting would help. The engine knows the model's shape and
            checks the rest.
    """
    wanted = values.get("kv_cache_memory_bytes")
    if wanted is not None and (wanted.value <= room or room >= MIN_KV_BYTES):
        return wanted
    if room >= MIN_KV_BYTES:
        return Value(min(DEFAULT_KV_BYTES, room), "what fits, at most 512 MiB")
    utilization = values["memory_utilization"].value
    needed = int(machine.memory_bytes * utilization) - room + MIN_KV_BYTES
    share = -(-needed * 100 // max(1, machine.memory_bytes)) / 100
    remedy = (
        f"set --memory-utilization {share:g}" if share <= 1 else f"give it {format_size(needed)} or a smaller model"
    )
    raise ResourceError(
        f"the model doesn't fit: of {format_size(machine.memory_bytes)} ({machine.memory_from}), memory_utilization "
        f"{utilization:g} allows {format_size(int(machine.memory_bytes * utilization))}, and with a KV cache of "
        f"{format_size(MIN_KV_BYTES)} it needs {format_size(needed)}: {remedy}"
    )
