"""The command line as a person meets it: in a process of its own, by what it prints and how it exits."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from tests import processes

from freehold.cli import commands
from freehold.cli import main as cli
from freehold.errors import ModelFileError

COMMANDS = ("serve", "chat", "run", "pull", "list", "rm", "synth", "doctor", "limits", "profile", "bench", "experiment")
TIMEOUT_S = 120


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of a million weights, made by the command."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    done = freehold("synth", str(path), "--preset", "tiny", "--dtype", "F32", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert "M parameters of llama" in done.stderr
    return path


def freehold(*arguments: str, home: Path | None = None, stdin: str = "", **variables: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FREEHOLD_")}
    if home is not None:
        environment["FREEHOLD_HOME"] = str(home)
    return subprocess.run(
        [sys.executable, "-m", "freehold", *arguments],
        env={**environment, **variables},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def check_user_error(done: Any, *parts: str) -> None:
    """One clear sentence on stderr, nothing on stdout, exit code 2."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("freehold: ")
    assert done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr


def test_help_lists_every_command() -> None:
    done = freehold("--help")
    assert done.returncode == 0
    assert all(f"\n  {command} " in done.stdout for command in COMMANDS)
    assert freehold().stdout == done.stdout
    assert freehold().returncode == 0
    assert freehold("--version").stdout.startswith("freehold 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    done = freehold(command, "--help")
    assert done.returncode == 0
    assert f"freehold {command}" in done.stdout.replace("python -m ", "")
    assert len(done.stdout.splitlines()) > 5


def loaded_modules(*arguments: str) -> set[str]:
    code = "import sys\nfrom freehold.cli.main import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_help_loads_nothing_slow() -> None:
    loaded = loaded_modules("--help")
    assert "click" in loaded
    assert not loaded & {"numpy", "tokenizers", "tqdm", "huggingface_hub", "starlette", "uvicorn", "jinja2", "torch"}


def test_serve_loads_no_downloader_and_no_progress_bar(tiny: Path) -> None:
    code = "import freehold.cli.commands, freehold.serve.server, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"starlette", "uvicorn", "tokenizers"} <= loaded
    assert not loaded & {"tqdm", "huggingface_hub", "requests", "httpx", "torch", "transformers"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("serve", "no-such-model"), ("no-such-model", "freehold pull")),
        (("run", "no-such-model", "Hi"), ("no-such-model",)),
        (("serve", "--port", "many"), ("port", "many", "--port", "0 to 65535")),
        (("serve", "--block-size", "17"), ("block_size", "multiple of 16")),
        (("serve", "--config", "/no/such/file.toml"), ("/no/such/file.toml",)),
        (("serve", "--kv-cache-memory-bytes", "lots"), ("lots", "512M")),
        (("serve", "--isa", "sse2"), ("isa", "sse2", "avx2")),
        (("pull", "no-such-model"), ("no-such-model", "smollm2")),
        (("rm", "no-such-model"), ("no-such-model",)),
        (("rm", "../../etc"), ("../../etc",)),
        (("rm",), ("--packed",)),
        (("rm", "smollm2", "--packed"), ("--packed",)),
        (("synth", "/tmp/x.gguf"), ("--preset", "--sizes")),
        (("synth", "/tmp/x.gguf", "--preset", "huge"), ("huge", "tiny")),
        (("synth", "/tmp/x.gguf", "--preset", "tiny", "--dtype", "Q9"), ("Q9", "BF16")),
        (("chat", "--url", "ftp://x"), ("ftp://x",)),
        (("chat", "--url", "http://[::1"), ("http://[::1",)),
        (("chat", "--url", "http://127.0.0.1:0x50"), ("0x50",)),
        (("chat", "--url", "http://127.0.0.1:1"), ("127.0.0.1:1", "freehold serve")),
        (("chat", "--url", "http://127.0.0.1:1", "--threads", "4"), ("--threads", "--url")),
        (("chat", "one", "--model", "other"), ("'one'", "'other'")),
        (("serve", "one", "--model", "other"), ("'one'", "'other'")),
        (("run", "smollm2", "Hi", "--raw", "--system", "x"), ("--system", "--raw")),
        (("run", "smollm2", ""), ("empty",)),
        (("run", "smollm2", "-"), ("empty",)),
        (("synth", "/no/such/folder/x.gguf", "--preset", "tiny"), ("no folder /no/such/folder",)),
        (("synth", "/tmp/x", "--preset", "tiny", "--dtype", "Q8_0"), ("Q8_0", "safetensors", ".gguf")),
        (("serve", "--threads", "100000"), ("100000", "--threads")),
        (("serve", "--threads", "1000"), ("1000", "cores", "--threads")),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_sentence(home: Path, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    check_user_error(freehold(*arguments, home=home), *parts)


def test_unknown_flag_names_near_ones(home: Path) -> None:
    done = freehold("serve", "--max-num-seq", "3", home=home)
    assert done.returncode == 2
    assert "--max-num-seqs" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_variable_names_near_ones(home: Path) -> None:
    check_user_error(freehold("serve", home=home, FREEHOLD_PROT="1"), "FREEHOLD_PROT", "FREEHOLD_PORT")


def test_unsupported_files(home: Path, tmp_path: Path) -> None:
    garbage = tmp_path / "model.gguf"
    for content in (b"", b"not a model at all", b"GGUF" + bytes(20)):
        garbage.write_bytes(content)
        check_user_error(freehold("serve", str(garbage), "--port", "0", home=home), "model.gguf")
    check_user_error(freehold("serve", str(tmp_path), "--port", "0", home=home), str(tmp_path))
    (tmp_path / "empty").mkdir()
    empty = freehold("serve", str(tmp_path / "empty"), "--port", "0", home=home)
    check_user_error(empty, ".gguf", "config.json", "safetensors")


def test_busy_port(home: Path, tiny: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        check_user_error(freehold("serve", str(tiny), "--port", port, home=home), port, "in use", "--port")
    check_user_error(freehold("serve", str(tiny), "--port", "0", "--host", "192.0.2.1", home=home), "192.0.2.1")
    check_user_error(
        freehold("serve", str(tiny), "--port", "0", "--host", "no.such.host.invalid", home=home), "no.such"
    )


def test_too_little_memory_and_too_long_a_context(home: Path, tiny: Path) -> None:
    serve = ("serve", str(tiny), "--port", "0")
    check_user_error(freehold(*serve, "--kv-cache-memory-bytes", "1k", home=home), "--kv-cache-memory-bytes")
    check_user_error(freehold(*serve, "--kv-cache-memory-bytes", "900T", home=home), "--kv-cache-memory-bytes")
    check_user_error(freehold(*serve, "-c", "100000", home=home), "--max-model-len", "1024")


def test_show_config(home: Path, tiny: Path, tmp_path: Path) -> None:
    config = tmp_path / "freehold.toml"
    config.write_text('block-size = 64\nkv_cache_memory_bytes = "1GiB"\n')
    arguments = ("serve", str(tiny), "--show-config", "--config", str(config), "-np", "7", "-t", "1")
    arguments += ("--no-enable-prefix-caching",)
    done = freehold(*arguments, home=home, FREEHOLD_PORT="1234")
    assert done.returncode == 0, done.stderr
    rows = {row.split()[0]: row.split(maxsplit=2)[1:] for row in done.stdout.splitlines()}
    assert rows["max_num_seqs"] == ["7", "--max-num-seqs"]
    assert rows["threads"] == ["1", "--threads"]
    assert rows["port"] == ["1234", "FREEHOLD_PORT"]
    assert rows["block_size"] == ["64", str(config)]
    assert rows["kv_cache_memory_bytes"][0] == "1"
    assert rows["enable_prefix_caching"] == ["false", "--enable-prefix-caching"]
    assert rows["log_level"] == ["info", "default"]


def test_run_and_chat_with_a_model_in_the_process(home: Path, tiny: Path) -> None:
    run = ("run", str(tiny), "Hello", "--temperature", "0", "--max-tokens", "5")
    first, again = freehold(*run, home=home), freehold(*run, home=home)
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert len(first.stdout) > 1
    from_stdin = freehold("run", str(tiny), "-", *run[3:], home=home, stdin="Hello")
    assert from_stdin.stdout == first.stdout
    chat = freehold("chat", str(tiny), *run[3:], home=home, stdin="Hello\n\n/new\nHello\n/exit\nnever asked\n")
    assert chat.returncode == 0, chat.stderr
    assert chat.stdout == first.stdout * 2
    check_user_error(freehold("run", str(tiny), "Hello", "--max-tokens", "0", home=home), "--max-tokens is 0")
    check_user_error(freehold("run", str(tiny), "long " * 2000, home=home), "1024")


def test_models_by_any_name_from_the_environment(home: Path, tiny: Path) -> None:
    done = freehold("chat", "--max-tokens", "2", home=home, stdin="Hi\n", FREEHOLD_MODEL=str(tiny))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() or done.stdout == "\n"


def test_sizes_file(home: Path, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    values = {
        "family": "llama", "hidden_size": 64, "intermediate_size": 96, "num_layers": 1, "num_heads": 2,
        "num_kv_heads": 1, "head_dim": 32, "vocab_size": 512,
    }  # fmt: skip
    sizes.write_text(json.dumps(values))
    out = tmp_path / "small"
    assert freehold("synth", str(out), "--sizes", str(sizes), "--dtype", "F32", home=home).returncode == 0
    assert (out / "config.json").exists()
    check_user_error(freehold("synth", str(out), "--sizes", str(sizes), "--dtype", "F32", home=home), "exists")
    for change, part in (({"widht": 3}, "widht"), ({"num_layers": "1"}, "num_layers"), ({"family": "gpt"}, "gpt")):
        sizes.write_text(json.dumps({**values, **change}))
        check_user_error(freehold("synth", str(tmp_path / "other"), "--sizes", str(sizes), home=home), part)
    check_user_error(freehold("synth", str(tmp_path / "x.bin"), "--preset", "tiny", home=home), "x.bin", ".gguf")


def test_an_empty_store(home: Path) -> None:
    assert "no models" in freehold("list", home=home).stdout
    done = freehold("doctor", home=home)
    assert done.returncode == 2
    assert "fault: no model is in the store" in done.stdout
    for word in ("processor", "cores", "memory", "disk", "native", "port"):
        assert f"\n{word}" in done.stdout


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (ModelFileError("it is broken"), 2)])
def test_exit_codes(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_context: click.Context) -> None:
        raise error

    monkeypatch.setattr(commands.app, "invoke", fail)
    monkeypatch.setattr(sys, "argv", ["freehold", "list"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == code
    assert capsys.readouterr().err == f"freehold: {str(error) or 'interrupted'}\n"


def test_ctrl_c_while_python_imports_says_no_more_than_later() -> None:
    """It comes with each of the first modules, from the command's own on."""
    for module in ("freehold.cli", "freehold.cli.main", "freehold.errors", "freehold.cli.commands", "click", "json"):
        code = (
            "import os, runpy, signal, sys\n"
            "class Finder:\n"
            "    def find_spec(self, name, path, target=None):\n"
            f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Finder()); sys.modules.pop('json', None)\n"
            "runpy.run_module('freehold', run_name='__main__', alter_sys=True)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "list"], check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert (done.returncode, done.stderr) == (130, "freehold: interrupted\n"), module


def test_control_characters_of_strangers_never_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_context: click.Context) -> None:
        raise ModelFileError("é🙂 \x1b[31m \x07 \x9b2J \u202e \ud800")

    monkeypatch.setattr(commands.app, "invoke", fail)
    monkeypatch.setattr(sys, "argv", ["freehold", "list"])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == "freehold: é🙂 \\x1b[31m \\x07 \\x9b2J \\u202e \\ud800\n"


def test_show_config_fetches_nothing(home: Path) -> None:
    done = freehold("serve", "--show-config", home=home, PIP_INDEX_URL="http://127.0.0.1:1/simple")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "max_model_len" in done.stdout
    assert not home.exists()


def test_what_is_said_must_be_text(home: Path, tiny: Path) -> None:
    for arguments in (("run", str(tiny), "-"), ("chat", str(tiny))):
        done = subprocess.run(
            [sys.executable, "-m", "freehold", *arguments], input=b"caf\xe9\n", capture_output=True, check=False,
            timeout=TIMEOUT_S,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"input is not UTF-8" in done.stderr
        assert done.stderr.count(b"\n") == 1
    done = subprocess.run(
        [sys.executable, "-m", "freehold", "run", str(tiny), b"caf\xe9"], capture_output=True, check=False,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"PROMPT is not UTF-8" in done.stderr


def test_errors_of_a_piped_chat_show_in_its_exit_code(home: Path, tiny: Path) -> None:
    done = freehold("chat", str(tiny), "--max-tokens", "3", home=home, stdin=f"{'long ' * 2000}\nHello\n")
    assert done.returncode == 2
    assert "1024" in done.stderr
    assert done.stdout.strip(), "the second line is answered nevertheless"


def test_commands_of_a_chat(home: Path, tiny: Path) -> None:
    for word in ("/exit", "/quit", "/bye"):
        done = freehold("chat", str(tiny), home=home, stdin=f"/help\n/foo\n{word}\nnever asked\n")
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.count("/new") == 2
        assert "/foo isn't a command" in done.stderr


def test_packed_weights_are_listed_and_removed(home: Path) -> None:
    (home / "packed").mkdir(parents=True)
    (home / "packed" / "x.packed").write_bytes(b"x" * 2048)
    done = freehold("list", home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "packed weights       2 KiB  unusable" in done.stdout
    done = freehold("rm", "--packed", home=home)
    assert (done.returncode, done.stdout) == (0, "removed all packed weights: 2 KiB freed\n")
    assert list((home / "packed").iterdir()) == []
    assert "packed" not in freehold("list", home=home).stdout.replace(str(home), "")


def test_a_store_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for arguments in (("list",), ("pull",), ("rm", "smollm2"), ("serve",), ("run", "smollm2", "Hi")):
        check_user_error(freehold(*arguments, home=file), str(file), "FREEHOLD_HOME")
    check_user_error(freehold("list", "--home", str(file)), str(file), "--home")
    check_user_error(freehold("pull", home=Path("/proc/x")), "/proc/x", "--home or FREEHOLD_HOME")


def test_doctor_tells_all_faults_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = freehold("doctor", home=Path("/proc/x"), FREEHOLD_FOO="1", FREEHOLD_PORT=port)
    assert done.returncode == 2
    faults = [line for line in done.stdout.splitlines() if line.startswith("  fault: ")]
    parts = ("FREEHOLD_HOME", "no model", "FREEHOLD_FOO", "`freehold serve` can't listen")
    assert [part in fault for fault, part in zip(faults, parts, strict=True)] == [True] * 4
    assert "\nnative     computes" in done.stdout
    assert "FREEHOLD_HOME" not in faults[2], "nothing is near"


def test_doctor_with_a_store_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = freehold("doctor", home=tmp_path / "file")
    assert done.returncode == 2
    assert "fault: home can't be" in done.stdout


def test_progress_in_a_pipe_is_a_few_lines(tmp_path: Path) -> None:
    done = freehold("synth", str(tmp_path / "t.gguf"), "--preset", "tiny", "--dtype", "F32")
    assert 1 <= done.stderr.count(" % of ") <= 3
    assert "\r" not in done.stderr


def limit_address_space() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))


@pytest.mark.parametrize("arguments", [("run", "MODEL", "Hi"), ("serve", "MODEL", "--port", "0")])
def test_too_little_memory_is_told_in_one_sentence(home: Path, smollm2_path: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "freehold", *(str(smollm2_path) if word == "MODEL" else word for word in arguments)],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S, preexec_fn=limit_address_space,
    )  # fmt: skip
    check_user_error(done, "memory")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_pip_ends_with_the_pull_that_started_it(home: Path, tmp_path: Path, number: signal.Signals) -> None:
    """pip is pointed at an index that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        environment = {**os.environ, "FREEHOLD_HOME": str(home), "PIP_INDEX_URL": index, "PIP_CONFIG_FILE": os.devnull}
        process = processes.start(
            [sys.executable, "-m", "freehold", "pull"], env=environment, stderr=subprocess.DEVNULL
        )
        try:
            silent.settimeout(TIMEOUT_S)
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(TIMEOUT_S)
                assert connection.recv(1 << 16), "pip asks"
                process.send_signal(number)
                process.wait(TIMEOUT_S)
                while connection.recv(1 << 16):
                    pass  # the connection ends with pip
        finally:
            process.kill()
            process.wait()
    expected = {signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}
    assert process.returncode == expected[number]


def test_a_list_of_models_is_printable_whatever_the_home_is_called(tmp_path: Path) -> None:
    home = tmp_path / "a\x1b[31mb"
    directory = home / "models" / "x"
    directory.mkdir(parents=True)
    (directory / "x.gguf").write_bytes(b"GGUF")
    manifest = {"name": "x", "source": "s", "entry": "x.gguf", "size_bytes": 4, "files": {"x.gguf": "0"}, "format": 1}
    (directory / "model.json").write_text(json.dumps(manifest))
    done = freehold("list", home=home)
    assert done.returncode == 0
    assert "a\\x1b[31mb" in done.stdout
    assert "\x1b" not in done.stdout
