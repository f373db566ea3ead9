"""Flags, environment, configuration file and hardware become frozen configuration here, once.

The only file that reads the environment. A row of `freehold.settings.SETTINGS` is a flag (``--max-num-seqs``), a
variable (``FREEHOLD_MAX_NUM_SEQS``) and a key of the file that ``--config`` names (``max_num_seqs``), TOML or YAML.
The first that gives a value wins, in this order: flag, environment, file, default. What no row knows is refused, with
the nearest names.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from freehold import config_file, record_settings, tracing_settings
from freehold.config import EngineConfig, ServeConfig
from freehold.errors import ConfigError, ResourceError
from freehold.machine import Machine, read_machine
from freehold.setting_kinds import format_size
from freehold.settings import DEFAULT_MODEL, PREFIX, SETTINGS, SETTINGS_BY_NAME, Setting

DEFAULT_KV_BYTES = 512 << 20
"""Default KV cache: enough for some full-length requests of a small model, and untouched blocks cost nothing."""
MIN_KV_BYTES = 16 << 20
OVERHEAD_BYTES = 192 << 20
"""Interpreter, libraries, tokenizer, activations: what a process needs besides weights and KV cache."""


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


MAX_THREADS_PER_CORE = 2
"""Hyperthreads of a core; tokens come no faster with more threads than cores, and far slower with many more."""

_CONFIG_VARIABLE = PREFIX + "CONFIG"

COMPLETION_VARIABLE = f"_{PREFIX}COMPLETE"
"""By which a shell asks how a command line may go on."""


def home_directory(given: Path | None = None) -> Path:
    """Folder of the model store: `given`, else ``FREEHOLD_HOME``, else ``freehold`` in the user's cache folder.

    Raises:
        ConfigError: a file has that name.
    """
    setting = SETTINGS_BY_NAME["home"]
    return Path(_parse(setting, given or _home(os.environ), setting.flag if given else setting.variable))


def serve_config(flags: Mapping[str, Any], config: Path | None = None, machine: Machine | None = None) -> Resolved:
    """Resolve everything that ``freehold serve`` needs.

    Args:
        flags: values by setting name, text or typed; None means that the flag was not given.
        config: the TOML or YAML file; None means the one that ``FREEHOLD_CONFIG`` names, if any.
        machine: limits that defaults come from; None reads this machine's.

    Raises:
        ConfigError: an unknown name or an unusable value.
        ModelNotFoundError: no such model in the store.
        ResourceError: the memory budget is too small.
    """
    values = _collect(flags, os.environ, config)
    limits = machine or read_machine()
    engine = _engine(values, limits)
    _set_served_names(values)
    plain = {name: value.value for name, value in values.items()}
    serve = ServeConfig(
        host=values["host"].value,
        port=values["port"].value,
        served_model_name=values["served_model_name"].value[0],
        model_aliases=values["served_model_name"].value[1:],
        allowed_origins=_optional(values, "allowed_origins") or (),
        request_timeout_s=_optional(values, "request_timeout"),
        unknown_fields=values["unknown_fields"].value,
        engine=values["engine"].value,
        profile=values["profile"].value,
        api_keys=_optional(values, "api_key") or (),
        allow_no_key=values["allow_no_key"].value,
        shutdown_timeout_s=values["shutdown_timeout"].value,
        max_body_bytes=values["max_body_bytes"].value,
        state_dir=values["state_dir"].value,
        max_file_bytes=values["max_file_bytes"].value,
        max_stored_bytes=values["max_stored_bytes"].value,
        max_num_batch_reqs=values["max_num_batch_reqs"].value,
        warmup_prefixes=_optional(values, "warmup_prefixes"),
        tool_call_parser=values["tool_call_parser"].value,
        enable_auto_tool_choice=values["enable_auto_tool_choice"].value,
        reasoning_parser=values["reasoning_parser"].value,
        tracing=tracing_settings.tracing_config(plain),
        record=record_settings.record_config(plain, engine.model_path),
        log_level=values["log_level"].value,
        log_format=values["log_format"].value,
    )
    # A server refuses what would wait too long; offline, whoever asks waits.
    engine = msgspec.structs.replace(
        engine,
        max_num_queued_reqs=values["max_num_queued_reqs"].value,
        max_num_queued_tokens=_optional(values, "max_num_queued_tokens"),
        profile=values["profile"].value,
    )
    return Resolved(engine=engine, serve=serve, values=_in_order(values))


def settings_without_model(
    flags: Mapping[str, Any], config: Path | None = None, machine: Machine | None = None
) -> Mapping[str, Value]:
    """What `serve_config` would resolve, for ``--show-config``, where the model isn't there to be measured.

    Raises:
        ConfigError: an unknown name or an unusable value.
    """
    values = _collect(flags, os.environ, config)
    _set_activations(values)
    _set_threads(values, machine or read_machine())
    return _in_order(values)


def address() -> tuple[str, int]:
    """Host and port that `freehold serve` would listen on, whatever is wrong with other variables.

    Raises:
        ConfigError: an unusable value.
    """
    names = {SETTINGS_BY_NAME["host"].variable, SETTINGS_BY_NAME["port"].variable, _CONFIG_VARIABLE}
    values = _collect({}, {name: value for name, value in os.environ.items() if name in names}, None)
    return values["host"].value, values["port"].value


def served_names() -> tuple[str, ...]:
    """Names under which `freehold serve` would serve its model.

    Raises:
        ConfigError: an unusable value.
    """
    values = _collect({}, os.environ, None)
    _set_served_names(values)
    names: tuple[str, ...] = values["served_model_name"].value
    return names


def can_draw() -> bool:
    """Whether the terminal can be drawn on: ``TERM`` doesn't say that it can't."""
    return os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def wants_colors() -> bool:
    """``NO_COLOR`` isn't set (no-color.org)."""
    return not os.environ.get("NO_COLOR")


def is_shell_completing() -> bool:
    """Whether a shell wants to know how a command line may go on, and no command run."""
    return COMPLETION_VARIABLE in os.environ


def environment_faults() -> list[str]:
    """What is wrong with the ``FREEHOLD_…`` variables, one sentence a variable."""
    faults = []
    for variable, value in os.environ.items():
        try:
            _collect({}, {variable: value}, None)
        except ConfigError as error:
            faults.append(str(error))
    return faults


def client_key() -> str:
    """The key that commands send to a running server: the first in ``FREEHOLD_API_KEY``; empty if there is none.

    Raises:
        ConfigError: an unusable value.
    """
    variable = SETTINGS_BY_NAME["api_key"].variable
    given = os.environ.get(variable)
    keys: tuple[str, ...] = _parse(SETTINGS_BY_NAME["api_key"], given, variable) if given else ()
    return keys[0] if keys else ""


def lookup(name: str, flags: Mapping[str, Any], config: Path | None = None) -> Value:
    """One setting that doesn't depend on the machine, and where it came from.

    Raises:
        ConfigError: an unknown name or an unusable value, of any setting.
    """
    return _collect(flags, os.environ, config)[name]


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
        config: a TOML or YAML file, as for `serve_config`.
        overrides: values by setting name, as in ``threads=2``; they win over the environment. None means not given.

    Raises as `serve_config` does.
    """
    return _engine(_collect({"model": model, **overrides}, os.environ, config), machine or read_machine())


def _optional(values: Mapping[str, Value], name: str) -> Any:
    return values[name].value if name in values else None


def _in_order(values: Mapping[str, Value]) -> dict[str, Value]:
    """Every setting, in the order of `SETTINGS`; those without a value say what happens instead."""
    return {s.name: values.get(s.name) or Value(s.unset, "default") for s in SETTINGS}


def _home(environ: Mapping[str, str]) -> Path:
    if given := environ.get(SETTINGS_BY_NAME["home"].variable):
        return Path(given).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "freehold"


def _collect(flags: Mapping[str, Any], environ: Mapping[str, str], config: Path | None) -> dict[str, Value]:
    """Every value that a flag, the environment, the file or a fixed default gives."""
    given: dict[str, tuple[Any, str]] = {s.name: (s.default, "default") for s in SETTINGS if s.default is not None}
    given |= {name: (raw, variable) for name, raw, variable in tracing_settings.given(environ)}
    variables = {s.variable: s.name for s in SETTINGS}
    config_path = config or (Path(environ[_CONFIG_VARIABLE]) if environ.get(_CONFIG_VARIABLE) else None)
    if config_path is not None:
        for entry in config_file.read(config_path):
            name = entry.key.replace("-", "_")
            _require_known(name, SETTINGS_BY_NAME, f"key {entry.key!r} in {entry.source}")
            given[name] = (entry.value, entry.source)
    for variable, value in environ.items():
        if variable.startswith(PREFIX) and variable != _CONFIG_VARIABLE:
            _require_known(variable, variables, f"environment variable {variable}")
            if value:  # an empty variable is one that nobody set
                given[variables[variable]] = (value, variable)
    for name, value in flags.items():
        _require_known(name, SETTINGS_BY_NAME, f"setting {name!r}")
        if value is not None:
            given[name] = (value, SETTINGS_BY_NAME[name].flag)
    values = {name: Value(_parse(SETTINGS_BY_NAME[name], raw, source), source) for name, (raw, source) in given.items()}
    values.setdefault("home", Value(_home(environ), "default"))
    values.setdefault("state_dir", Value(values["home"].value / "state", "in the model store"))
    values.setdefault("record_dir", Value(values["state_dir"].value / "recording", "in the folder of state"))
    return values


def _parse(setting: Setting, raw: Any, source: str) -> Any:
    if setting.kind.is_list:
        given = raw if isinstance(raw, list | tuple) else [raw]
        items = [item for some in given for item in (some.split(",") if isinstance(some, str) else [some])]
        if not items:
            raise ConfigError(f"{setting.name} is an empty list (from {source}); leave it out or name at least one")
        return tuple(_parse_one(setting, item, source) for item in items)
    return _parse_one(setting, raw, source)


def _parse_one(setting: Setting, raw: Any, source: str) -> Any:
    shown = "what was given" if setting.is_secret else repr(str(raw))
    if (isinstance(raw, bool) and not setting.is_switch) or not isinstance(raw, str | int | float | Path):
        raise ConfigError(f"{setting.name} can't be {shown} (from {source})")
    try:
        return setting.kind.parse(str(raw).strip() if setting.kind.is_list else str(raw))
    except ValueError as error:
        raise ConfigError(f"{setting.name} can't be {shown} (from {source}): it is {error}") from None


def _require_known(name: str, known: Iterable[str], what: str) -> None:
    names = list(known)
    if name not in names:
        # The prefix that all variables share would make every one of them near.
        stems = {known_name.removeprefix(PREFIX): known_name for known_name in names}
        near = [stems[stem] for stem in difflib.get_close_matches(name.removeprefix(PREFIX), stems, n=3)]
        raise ConfigError(
            f"unknown {what}; "
            + (f"did you mean {' or '.join(near)}?" if near else "`freehold serve --help` lists the settings")
        )


def _set_served_names(values: dict[str, Value]) -> None:
    name = _served_name(str(values["model"].value))
    values.setdefault("served_model_name", Value((name,), "the model's name"))


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

    _set_activations(values)
    _set_threads(values, machine)
    home: Path = values["home"].value
    model_path = store.locate(str(values["model"].value), home)
    memory_limit_bytes = int(machine.memory_bytes * values["memory_utilization"].value) - OVERHEAD_BYTES
    values["kv_cache_memory_bytes"] = _kv_cache(values, machine, memory_limit_bytes - _weight_file_bytes(model_path))

    return EngineConfig(
        model_path=model_path,
        backend=values["backend"].value,
        isa=_optional(values, "isa"),
        activations=values["activations"].value,
        num_threads=values["threads"].value,
        kv_cache_bytes=values["kv_cache_memory_bytes"].value,
        kv_cache_dtype=values["kv_cache_dtype"].value,
        max_model_len=_optional(values, "max_model_len"),
        max_num_seqs=values["max_num_seqs"].value,
        max_num_batched_tokens=values["max_num_batched_tokens"].value,
        itl_target_ms=values["itl_target_ms"].value,
        block_size=values["block_size"].value,
        scheduling_policy=values["scheduling_policy"].value,
        prefix_caching=values["enable_prefix_caching"].value,
        cache_dir=home / "hashes",
        packed_dir=None if values["packed_cache"].value == "never" else store.packed_directory(home),
        packed_cache=values["packed_cache"].value,
        packed_cache_bytes=values["packed_cache_bytes"].value,
        memory_limit_bytes=memory_limit_bytes,
        stall_timeout_s=values["stall_timeout"].value,
    )


def _set_activations(values: dict[str, Value]) -> None:
    """The fast format if its divergence is known to be small: docs/performance.md has it for the CPU backend."""
    backend = values["backend"].value
    values.setdefault("activations", Value("int8" if backend == "cpu" else "float", f"best for the {backend} backend"))


def _set_threads(values: dict[str, Value], machine: Machine) -> None:
    """As many threads as cores, unless a number was asked for.

    Raises:
        ConfigError: far more than can run at a time: they would wait for each other at every step.
    """
    asked = values.setdefault("threads", Value(machine.num_cores, machine.cores_from))
    most = MAX_THREADS_PER_CORE * machine.num_cores
    if asked.value > most:
        raise ConfigError(
            f"threads can't be {asked.value} (from {asked.source}): this process may use {machine.num_cores} cores "
            f"({machine.cores_from}); set at most {most}, or leave --threads out for {machine.num_cores}"
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
