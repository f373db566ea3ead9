"""Configuration files: the same settings as TOML and as YAML, as strictly, with the place of what is wrong."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from freehold import config_file, resolve
from freehold.errors import ConfigError
from freehold.machine import Machine

MACHINE = Machine(
    num_cores=2,
    cores_from="processor affinity",
    memory_bytes=8 << 30,
    memory_from="the machine",
    available_bytes=8 << 30,
    processor="Made Up 3000",
    isa_levels=("generic",),
)


def entries(path: Path, text: str | bytes) -> dict[str, Any]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return {entry.key: entry.value for entry in config_file.read(path)}


TOML = """
# Where it listens.
port = 8080
host = "0.0.0.0"
memory_utilization = 0.5
kv_cache_memory_bytes = "1GiB"
served-model-name = ["small", "default"]
profile = true
record = "off"
shutdown_timeout = "12"
"""
YAML = """
# Where it listens.
port: 8080
host: 0.0.0.0
memory_utilization: 0.5
kv_cache_memory_bytes: 1GiB
served-model-name:
  - small
  - default
profile: true
record: off
shutdown_timeout: "12"
"""


def test_both_kinds_say_the_same(tmp_path: Path) -> None:
    toml = entries(tmp_path / "a.toml", TOML)
    for name in ("a.yaml", "a.yml", "A.YAML"):
        assert entries(tmp_path / name, YAML) == toml
    assert entries(tmp_path / "a.yaml", '{"port": 8080, "profile": false}') == {"port": 8080, "profile": False}
    assert entries(tmp_path / "a.yaml", "# nothing\n") == entries(tmp_path / "a.toml", "") == {}


@pytest.mark.parametrize(
    "text",
    ["off", "on", "yes", "no", "y", "1:30", "12:30", "2027-01-31", "1_000", "0b11", "0o8", "-0x10", "1e", "<<", "="],
)
def test_words_of_old_yaml_are_words(tmp_path: Path, text: str) -> None:
    assert entries(tmp_path / "a.yaml", f"record: {text}") == {"record": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10), ("-010", -10), ("+08", 8), ("00", 0), ("0o10", 8), ("0x1F", 31), ("010.5", 10.5), ("1e3", 1000.0),
        ("!!int 010", 10), ("!!float 08", 8.0), ("-.inf", float("-inf")), ("TRUE", True), ("!!bool False", False),
    ],
)  # fmt: skip
def test_numbers_and_switches_are_those_of_yaml_1_2(tmp_path: Path, text: str, value: Any) -> None:
    found = entries(tmp_path / "a.yaml", f"a: {text}\nb: [{text}]")
    assert (found["a"], type(found["a"])) == (value, type(value))
    assert found["b"] == [value]


@pytest.mark.parametrize(
    "text", ["!!bool yes", "!!bool off", "!!int 1:30", "!!int 0b11", "!!int 1_000", "!!float 1:3.5"]
)
def test_tags_dont_bring_old_yaml_back(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"in .*a\.yaml, line 2, is no (bool|int|float) in YAML 1\.2; leave its tag"):
        entries(tmp_path / "a.yaml", f"host: x\na: {text}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port: 1\nport: 2", r"'port' in .*a\.yaml, line 2 was given already"),
        ("max_num_seqs: 1\n\nmax-num-seqs: 2", r"'max-num-seqs' in .*line 3 was given already, as 'max_num_seqs'"),
        ("host: ::1\nport:", r"'port' in .*line 2 has no value"),
        ("host: x\n1: 2", r"key 1 in .*line 2 is no name"),
        ("[host]: x", r"key \['host'\] in .*line 1 is no name"),
        ("- port", r"a\.yaml holds no settings"),
        ("port 1", r"a\.yaml holds no settings"),
        ("port: [1", r"a\.yaml is not YAML.*line 1"),
        ("port: 1\n  host: x", r"a\.yaml is not YAML.*line 2"),
        ("port: 1\n---\nport: 2", r"a\.yaml is not YAML.*another document"),
        ("port: !!python/object/apply:os.getcwd []", r"a\.yaml is not YAML.*python/object"),
        ("port: *nothing", r"a\.yaml is not YAML.*nothing"),
        (b"port: \xff", r"a\.yaml is not text"),
        ("port: \x07", r"a\.yaml is not YAML"),
        ("a: " + "[" * 5000, r"a\.yaml"),
        ("a: " + "9" * 5000, r"a\.yaml"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        entries(tmp_path / "a.yaml", text)


def test_settings_are_as_strict_as_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    for text, said in (
        ("host: x\nmax_num_seq: 3", r"'max_num_seq' in .*a\.yaml, line 2; did you mean max_num_seqs"),
        ("host: x\nport: many", r"port can't be 'many' \(from .*a\.yaml, line 2\)"),
        ("port: {a: 1}", r"port can't be .* \(from .*line 1\)"),
        ("port: true", "port can't be 'True'"),
        ("x: &x {host: a}\n<<: *x", "'x' in"),
        ("served_model_name: &n [*n]", r"a\.yaml is not YAML.*recursive"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            resolve.settings_without_model({}, file, MACHINE)
    file.write_text("host: 127.0.0.1\n\nport: 4321\n")
    values = resolve.settings_without_model({}, file, MACHINE)
    assert (values["port"].value, values["port"].source) == (4321, f"{file}, line 3")


def test_keys_given_twice_under_two_spellings_are_refused_in_toml_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'max-num-seqs' in .*a\.toml was given already, as 'max_num_seqs'"):
        entries(tmp_path / "a.toml", "max_num_seqs = 1\nmax-num-seqs = 2\n")


def test_yaml_is_loaded_for_yaml_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(TOML)
    code = (
        f"import sys; from pathlib import Path; from freehold import config_file; config_file.read(Path({str(file)!r}))"
    )
    subprocess.run([sys.executable, "-c", code + "; sys.exit('yaml' in sys.modules)"], check=True, timeout=60)
