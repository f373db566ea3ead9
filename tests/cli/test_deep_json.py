"""JSON nested as deep as a trap, wherever the commands read what others wrote: one sentence, no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from freehold.cli import batch
from freehold.errors import ConfigError
from freehold.loadtest.workloads.lines import json_rows

DEEP = '{"prompt": ' + 50_000 * "[" + 50_000 * "]" + "}"


@pytest.mark.parametrize(("arguments", "words"), [
    (("bench", "--show", "FILE"), "no result"),
    (("bench", "--base-url", "http://127.0.0.1:9", "--extra-body", DEEP), "--extra-body can't be"),
    (("synth", "OUT", "--sizes", "FILE"), "doesn't describe a model"),
], ids=["result", "body", "sizes"])  # fmt: skip
def test_deep_json_is_refused(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    file = tmp_path / "deep.jsonl"
    file.write_text(DEEP)
    places = {"FILE": str(file), "OUT": str(tmp_path / "out.gguf")}
    command = [sys.executable, "-m", "freehold", *(places.get(part, part) for part in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr[-500:]
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_deep_lines_are_refused_by_number(tmp_path: Path) -> None:
    file = tmp_path / "deep.jsonl"
    file.write_text(f"{{}}\n{DEEP}\n")
    with pytest.raises(ConfigError, match="line 2 is no JSON"):
        list(json_rows(file))
    with pytest.raises(ConfigError, match="line 2 is no prompt"):
        batch._of_json(DEEP, "line 2")
