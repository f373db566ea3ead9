"""Settings from flags, environment, file and hardware."""

from dataclasses import replace
from pathlib import Path

import pytest

from freehold import resolve
from freehold.cli.settings_table import settings_table
from freehold.config import EngineConfig
from freehold.errors import ConfigError, ModelNotFoundError, ResourceError
from freehold.machine import Machine
from freehold.setting_kinds import format_span, parse_size, parse_span
from freehold.settings import SETTINGS

GIB = 1 << 30
MACHINE = Machine(
    num_cores=6,
    cores_from="processor affinity",
    memory_bytes=16 * GIB,
    memory_from="the machine's memory",
    available_bytes=8 * GIB,
    processor="Made Up 3000",
    isa_levels=("generic",),
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.setenv("FREEHOLD_HOME", str(tmp_path / "home"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(bytes(1000))
    return path


def test_defaults(model: Path) -> None:
    resolved = resolve.serve_config({"model": str(model)}, machine=MACHINE)
    assert resolved.engine.model_path == model
    assert resolved.engine.num_threads == 6
    assert resolved.engine.kv_cache_bytes == 512 << 20
    assert resolved.engine.memory_limit_bytes is not None
    assert resolved.engine.memory_limit_bytes < 0.9 * 16 * GIB
    assert resolved.serve.host == "127.0.0.1"
    assert resolved.serve.engine == "process"
    assert resolved.serve.served_model_name == "tiny"
    assert resolved.values["threads"].source == "processor affinity"
    assert resolved.values["port"].source == "default"


def test_an_empty_variable_counts_as_unset(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FREEHOLD_HOME")
    unset = resolve.serve_config({"model": str(model)}, machine=MACHINE)
    for setting in SETTINGS:
        monkeypatch.setenv(setting.variable, "")
    assert resolve.serve_config({"model": str(model)}, machine=MACHINE) == unset


@pytest.mark.parametrize(("backend", "activations"), [("cpu", "int8"), ("reference", "float"), ("scripted", "float")])
def test_activations_follow_the_backend_unless_asked_for(model: Path, backend: str, activations: str) -> None:
    flags = {"model": str(model), "backend": backend}
    assert resolve.serve_config(flags, machine=MACHINE).engine.activations == activations
    asked = resolve.serve_config({**flags, "activations": "float"}, machine=MACHINE)
    assert (asked.engine.activations, asked.values["activations"].source) == ("float", "--activations")


def test_flag_beats_environment_beats_file(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "freehold.toml"
    file.write_text('model = "nowhere"\nport = 1\nmax-num-seqs = 3\nblock_size = 64\n')
    monkeypatch.setenv("FREEHOLD_PORT", "2")
    monkeypatch.setenv("FREEHOLD_MAX_NUM_SEQS", "4")
    resolved = resolve.serve_config({"model": str(model), "port": "3", "host": None}, file, MACHINE)
    assert (resolved.serve.port, resolved.values["port"].source) == (3, "--port")
    assert (resolved.engine.max_num_seqs, resolved.values["max_num_seqs"].source) == (4, "FREEHOLD_MAX_NUM_SEQS")
    assert (resolved.engine.block_size, resolved.values["block_size"].source) == (64, str(file))


def test_every_setting_can_come_from_each_place(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FREEHOLD_HOME")
    texts = {
        "model": str(model),
        "home": str(tmp_path),
        "max_model_len": "77",
        "memory_utilization": "0.5",
        "kv_cache_memory_bytes": "64M",
        "kv_cache_dtype": "f32",
        "activations": "int8",
        "isa": "generic",
        "scheduling_policy": "fcfs",
        "tool_call_parser": "mistral",
        "enable_auto_tool_choice": "false",
        "reasoning_parser": "qwen3",
        "backend": "reference",
        "engine": "thread",
        "host": "0.0.0.0",
        "api_key": "a-secret-of-32",
        "allow_no_key": "true",
        "served_model_name": "mine",
        "max_body_bytes": "1M",
        "log_level": "debug",
        "log_format": "json",
        "allowed_origins": "https://example.org",
        "unknown_fields": "warn",
        "enable_prefix_caching": "false",
        "threads": "3",
        "packed_cache": "always",
        "profile": "true",
        "warmup_prefixes": str(model),
        "state_dir": str(tmp_path),
        "otlp_traces_endpoint": "http://127.0.0.1:4318",
        "otlp_traces_headers": "authorization=Basic eA==",
        "otlp_traces_ratio": "0.5",
        "otlp_traces_content": "true",
        "otlp_traces_convention": "latest",
        "otlp_traces_resource": "service.name=mine",
        "record": "metadata",
        "record_dir": str(tmp_path),
        "record_sample": "0.5",
        "record_bytes": "32M",
        "record_age": "12h",
    }
    texts = {setting.name: texts.get(setting.name, "32") for setting in SETTINGS}
    from_flags = resolve.serve_config(texts, machine=MACHINE)
    file = tmp_path / "all.toml"
    file.write_text("".join(f"{name} = {text!r}\n" for name, text in texts.items()))
    from_file = resolve.serve_config({}, file, MACHINE)
    yaml = tmp_path / "all.yaml"
    yaml.write_text("".join(f"{name}: {text}\n" for name, text in texts.items()))
    from_yaml = resolve.serve_config({}, yaml, MACHINE)
    assert (from_yaml.engine, from_yaml.serve) == (from_file.engine, from_file.serve)
    for setting in SETTINGS:
        monkeypatch.setenv(setting.variable, texts[setting.name])
    from_environment = resolve.serve_config({}, machine=MACHINE)
    assert from_flags.engine == from_file.engine == from_environment.engine
    assert from_flags.serve == from_file.serve == from_environment.serve
    assert from_flags.engine.max_model_len == 77
    assert from_flags.engine.prefix_caching is False
    assert from_flags.engine.profile is from_flags.serve.profile is True
    assert from_flags.engine.scheduling_policy == "fcfs"
    assert from_flags.engine.kv_cache_bytes == 64 << 20
    assert {value.source for value in from_environment.values.values()} == {s.variable for s in SETTINGS}


@pytest.mark.parametrize(
    ("text", "values"),
    [('"a-first-key"', 1), ('"a-first-key, a-second-key"', 2), ('["a-first-key", "a-second-key,a-third-key"]', 3)],
)
def test_lists_can_be_written_in_several_ways(model: Path, tmp_path: Path, text: str, values: int) -> None:
    file = tmp_path / "lists.toml"
    file.write_text(f"api_key = {text}\nserved-model-name = {text}\n")
    resolved = resolve.serve_config({"model": str(model)}, file, MACHINE)
    names = ("a-first-key", "a-second-key", "a-third-key")[:values]
    assert resolved.serve.api_keys == names
    assert (resolved.serve.served_model_name, *resolved.serve.model_aliases) == names
    assert "first" not in next(row for row in settings_table(resolved.values).splitlines() if row.startswith("api_key"))


@pytest.mark.parametrize("text", ["[1]", "[true]", '["a-first-key", ""]', "{}", "[]", '[["a-first-key"]]'])
def test_lists_of_something_else_are_refused(model: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "lists.toml"
    file.write_text(f"api_key = {text}\n")
    with pytest.raises(ConfigError, match="api_key"):
        resolve.serve_config({"model": str(model)}, file, MACHINE)


@pytest.mark.parametrize("value", ["auto", "always", "never"])
def test_packed_weights_lie_in_the_store_if_anywhere(model: Path, tmp_path: Path, value: str) -> None:
    engine = resolve.engine_config(model=model, home=tmp_path, packed_cache=value, machine=MACHINE)
    assert engine.packed_cache == value
    assert engine.packed_dir == (None if value == "never" else tmp_path / "packed")
    assert engine.packed_cache_bytes == 32 << 30


def test_unknown_names_are_refused_with_near_ones(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "freehold.toml"
    file.write_text("max_num_seq = 3\n")
    with pytest.raises(ConfigError, match=r"'max_num_seq' in .*did you mean max_num_seqs"):
        resolve.serve_config({"model": str(model)}, file, MACHINE)
    with pytest.raises(ConfigError, match=r"prot.*did you mean port"):
        resolve.serve_config({"prot": "1"}, machine=MACHINE)
    monkeypatch.setenv("FREEHOLD_PROT", "1")
    with pytest.raises(ConfigError, match=r"FREEHOLD_PROT.*did you mean FREEHOLD_PORT"):
        resolve.serve_config({"model": str(model)}, machine=MACHINE)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("port", text) for text in ("-1", "65536", "8000.0", "http", "", "１２", True, [1])),
        *(("threads", text) for text in ("0", "many")),
        *(("block_size", text) for text in ("8", "24", "2048")),
        *(("memory_utilization", text) for text in ("0", "1.1", "nan", "inf", "half")),
        *(("kv_cache_memory_bytes", text) for text in ("12X", "M", "-5M", "1e9", "inf")),
        *(("record_bytes", text) for text in ("0", "1", "1023K", "-1G")),
        *(("isa", text) for text in ("sse", "AVX2", "")),
        *(("shutdown_timeout", text) for text in ("-1", "forever")),
        ("host", "a\nb"),
        ("log_level", "loud"),
        *(("enable_prefix_caching", text) for text in ("yes", "1", "", 1, [True])),
    ],
)
def test_unusable_values_are_refused_by_name(model: Path, name: str, text: object) -> None:
    with pytest.raises(ConfigError, match=name):
        resolve.serve_config({"model": str(model), name: text}, machine=MACHINE)


def test_a_recording_has_room_for_its_segments(model: Path) -> None:
    def max_bytes(text: str) -> int:
        return resolve.serve_config({"model": str(model), "record_bytes": text}, machine=MACHINE).serve.record.max_bytes

    assert max_bytes("1MiB") == 1 << 20
    with pytest.raises(ConfigError, match="at least 1 MiB"):
        max_bytes("1023K")


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("512M", 512 << 20), ("2GiB", 2 << 30), ("2gb", 2 * 10**9), ("1.5k", 1536), ("7", 7), ("1 TiB", 1 << 40)],
)
def test_sizes(text: str, num_bytes: int) -> None:
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["model = [", "port = 1\nport = 2", b"\xff\xfe"])
def test_file_that_is_not_toml(model: Path, tmp_path: Path, text: str | bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        resolve.serve_config({"model": str(model)}, file, MACHINE)


def test_spans_are_shown_as_they_are_read() -> None:
    for text, shown in (
        ("7d", "7d"),
        ("1w", "7d"),
        ("36h", "36h"),
        ("48h", "2d"),
        ("90m", "90m"),
        ("999999s", "999999s"),
    ):
        assert format_span(parse_span(text)) == shown
        assert parse_span(shown) == parse_span(text)


def test_file_that_is_missing(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothere\.toml"):
        resolve.serve_config({"model": str(model)}, tmp_path / "nothere.toml", MACHINE)


def test_settings_can_be_shown_without_a_model() -> None:
    values = resolve.settings_without_model({"port": "7"}, machine=MACHINE)
    assert list(values) == [setting.name for setting in SETTINGS], "every setting has a row"
    rows = settings_table(values).splitlines()
    assert all(len(row.split()) >= 3 for row in rows), rows
    assert values["port"] == resolve.Value(7, "--port")
    assert values["isa"].value == values["max_model_len"].value == "auto"


@pytest.mark.parametrize("threads", [13, 1000])
def test_far_more_threads_than_cores_are_refused(model: Path, threads: int) -> None:
    for work in (resolve.serve_config, resolve.settings_without_model):
        with pytest.raises(ConfigError, match=rf"{threads} \(from --threads\).* 6 cores .*at most 12"):
            work({"model": str(model), "threads": str(threads)}, machine=MACHINE)
    assert resolve.engine_config(model=model, threads=12, machine=MACHINE).num_threads == 12


def test_only_near_names_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FREEHOLD_FOO", "1")
    monkeypatch.setenv("FREEHOLD_PROT", "1")
    monkeypatch.setenv("FREEHOLD_PORT", "many")
    faults = sorted(resolve.environment_faults())
    assert len(faults) == 3
    assert "'many' (from FREEHOLD_PORT)" in faults[0]
    assert faults[1] == "unknown environment variable FREEHOLD_FOO; `freehold serve --help` lists the settings"
    assert "did you mean FREEHOLD_PORT?" in faults[2]


def test_missing_model() -> None:
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        resolve.serve_config({"model": "no-such-model"}, machine=MACHINE)


def test_little_memory_shrinks_the_kv_cache(model: Path) -> None:
    engine = resolve.engine_config(model=model, machine=replace(MACHINE, memory_bytes=400 << 20))
    assert resolve.MIN_KV_BYTES <= engine.kv_cache_bytes < 512 << 20


def test_too_little_memory_names_a_setting_that_works(model: Path) -> None:
    small = replace(MACHINE, memory_bytes=230 << 20)
    with pytest.raises(ResourceError, match=r"--memory-utilization (0\.\d+)") as caught:
        resolve.engine_config(model=model, machine=small)
    share = str(caught.value).split("--memory-utilization ")[1]
    assert isinstance(resolve.engine_config(model=model, machine=small, memory_utilization=share), EngineConfig)


def test_far_too_little_memory_says_how_much_is_needed(model: Path) -> None:
    with pytest.raises(ResourceError, match=r"give it 208(\.[0-9])? MiB"):
        resolve.engine_config(model=model, machine=replace(MACHINE, memory_bytes=100 << 20))


def test_a_switch_may_be_typed_or_text(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "freehold.toml"
    file.write_text("enable-prefix-caching = false\n")
    assert resolve.serve_config({"model": str(model)}, file, MACHINE).engine.prefix_caching is False
    assert resolve.serve_config({"model": str(model)}, machine=MACHINE).engine.prefix_caching is True
    for value in (False, "false", "False"):
        engine = resolve.engine_config(model=model, machine=MACHINE, enable_prefix_caching=value)
        assert engine.prefix_caching is False


def test_engine_config_takes_typed_overrides(model: Path) -> None:
    engine = resolve.engine_config(model=model, machine=MACHINE, threads=2, memory_utilization=0.5, max_model_len=None)
    assert engine.num_threads == 2
    with pytest.raises(ConfigError, match="treads"):
        resolve.engine_config(model=model, machine=MACHINE, treads=2)
