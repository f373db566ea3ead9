"""Standard streams that are closed, or that nobody reads: commands work, and end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import processes

TIMEOUT_S = 60.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "freehold", *arguments]


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(closed: str, tmp_path: Path) -> None:
    environment = {**os.environ, "FREEHOLD_HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *command("list")], capture_output=True, text=True, timeout=TIMEOUT_S,
        env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_fails_ends_whoever_reads_its_last_word() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    process = processes.start(command("serve", "/nowhere/none.gguf"), stderr=writer)
    os.close(writer)
    try:
        assert process.wait(TIMEOUT_S) == 2
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def test_a_long_last_word_is_whole() -> None:
    path = "/nowhere/" + "x" * 9000
    done = subprocess.run(command("serve", path), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("freehold: ")
    assert done.stderr.endswith("\n")


@pytest.mark.parametrize("unbuffered", [(), ("-u",)])
@pytest.mark.parametrize("arguments", [("--version",), ("bench", "--help"), ("experiment", "ls")])
def test_output_that_cannot_be_written_is_told(arguments: tuple[str, ...], unbuffered: tuple[str, ...]) -> None:
    """Less than Python gathers before it writes, and more."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, *unbuffered, "-m", "freehold", *arguments], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "freehold: can't write the output: No space left on device\n")


@pytest.mark.parametrize("arguments", [("serve", "/nowhere/none.gguf"), ("serve", "--nonsense")])
def test_errors_that_cannot_be_written_still_show_in_the_exit_code(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(command(*arguments), stderr=full, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
