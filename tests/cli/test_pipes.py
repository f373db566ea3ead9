"""Commands whose output nobody reads to its end, as in ``freehold record ls | head -1``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.observe.recordings import record_one, recorder

NUM_REQUESTS = 300
"""Their list is longer than what Python gathers before it writes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipes") / "recording"
    with recorder(folder) as writing:
        for number in range(NUM_REQUESTS):
            record_one(writing, f"r{number}")
    return folder


def without_reader(*arguments: str, with_errors: bool = False) -> tuple[int, str]:
    """Run a command into a pipe that is closed at its other end. Returns its exit code, and what it says of it."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "freehold", *arguments],
            stdout=writing,
            stderr=writing if with_errors else subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize(
    "arguments", [["record", "ls", "--limit", "1000"], ["record", "ls", "--limit", "1"], ["record", "export"]]
)
def test_records_that_nobody_reads(folder: Path, arguments: list[str]) -> None:
    code, said = without_reader(*arguments, str(folder))
    assert code == 141
    assert "rror" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["limits", "--help"]])
def test_nobody_reads_anything(arguments: list[str]) -> None:
    code, _ = without_reader(*arguments, with_errors=True)
    assert code == 141


def test_what_went_wrong_is_said_all_the_same(tmp_path: Path) -> None:
    code, said = without_reader("record", "ls", str(tmp_path / "none"))
    assert code == 2
    assert said.startswith("freehold: there is no recording")
