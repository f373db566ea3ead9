"""Files of prompts on the command line, over the scripted backend, which echoes."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sized
from pathlib import Path
from typing import Any

import pytest

from freehold.cli.batch import open_prompts


@pytest.fixture
def run(smollm2_path: Path, tmp_path: Path) -> Any:
    def run(content: str | bytes, *flags: str, name: str = "prompts.txt") -> subprocess.CompletedProcess[str]:
        prompts = tmp_path / name
        prompts.write_bytes(content if isinstance(content, bytes) else content.encode())
        command = [sys.executable, "-m", "freehold", "run", str(smollm2_path), "--backend", "scripted"]
        files = ["--prompts", str(prompts), "--output", str(tmp_path / "answers.jsonl")]
        return subprocess.run(
            [*command, *files, *flags], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
        )

    return run


def answers(path: Path) -> dict[int, str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [line["completion"] for line in lines if line["kind"] == "completion"]
    return {completion["prompt_index"]: completion["text"] for completion in found}


def test_a_prompt_a_line_and_only_what_is_missing_is_answered(run: Any, tmp_path: Path) -> None:
    done = run("one\n\n  two \nthree", "--raw", "--max-tokens", "1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert answers(tmp_path / "answers.jsonl") == {0: "one", 1: "two", 2: "three"}
    before = (tmp_path / "answers.jsonl").read_bytes()
    assert run("one\n\n  two \nthree\nfour", "--raw", "--max-tokens", "1").returncode == 0
    after = (tmp_path / "answers.jsonl").read_bytes()
    assert after.startswith(before)
    assert len(after.splitlines()) == len(before.splitlines()) + 1


def test_json_lines_hold_prompts_or_conversations(run: Any, tmp_path: Path) -> None:
    content = '"one"\n{"prompt": "two"}\n\n{"messages": [{"role": "user", "content": "three"}]}\n'
    done = run(content, "--max-tokens", "60", "--system", "Be short.", name="prompts.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    texts = answers(tmp_path / "answers.jsonl")
    assert list(texts) == [0, 1, 2]
    for text, word in zip(texts.values(), ("one", "two", "three"), strict=True):
        assert "Be short." in text, "the template's text up to its first end"
        assert len(text) > len(word)


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        ("one\n{}\n", "p.jsonl", "line 1 of .*p.jsonl is no prompt"),
        ('"one"\n{}\n', "p.jsonl", "line 2 of .*p.jsonl is no prompt"),
        ('{"text": "x"}\n', "p.jsonl", "line 1 of .*`text`"),
        ('{"prompt": "x", "messages": []}\n{"prompt": "x", "messages": [{}]}\n', "p.jsonl", "line 2 of"),
        (b"ok\n\xff\xfe\n", "p.txt", "line 2 of .*p.txt is not UTF-8"),
    ],
)
def test_lines_that_are_no_prompts_are_named(run: Any, content: Any, name: str, reason: str) -> None:
    import re

    done = run(content, "--max-tokens", "1", name=name)
    assert done.returncode == 2
    assert re.search(reason, done.stderr)
    assert "Traceback" not in done.stderr


def test_prompts_that_fail_are_told_and_show_in_the_exit_code(run: Any, tmp_path: Path) -> None:
    done = run("one\n" + "long " * 9000 + "\nthree\n", "--raw", "--max-tokens", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("freehold: prompt 1: ")
    assert answers(tmp_path / "answers.jsonl") == {0: "one", 2: "three"}


def test_other_parameters_are_refused(run: Any) -> None:
    assert run("one\n", "--max-tokens", "1").returncode == 0
    done = run("one\n", "--max-tokens", "2")
    assert done.returncode == 2
    assert "max_tokens was 1 and is 2" in done.stderr


@pytest.mark.parametrize(
    "flags", [[], ["x", "--prompts", "y"], ["--prompts", "y"], ["--output", "y"], ["x", "--output", "y"]]
)
def test_one_prompt_or_a_file_of_them(flags: list[str], smollm2_path: Path) -> None:
    command = [sys.executable, "-m", "freehold", "run", str(smollm2_path), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "freehold: give PROMPT, or --prompts FILE and --output FILE\n"


@pytest.mark.parametrize("content", ["", "\n  \n\n"])
def test_a_file_without_prompts_is_refused_and_leaves_no_output(run: Any, tmp_path: Path, content: str) -> None:
    done = run(content)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"freehold: {tmp_path}/prompts.txt holds no prompts; write one a line\n"
    assert not (tmp_path / "answers.jsonl").exists()


def test_a_run_with_nothing_left_to_do_says_so(run: Any, tmp_path: Path) -> None:
    for said in ("", f"freehold: nothing was missing; {tmp_path}/answers.jsonl holds all 2 answers\n"):
        done = run("one\n\ntwo", "--raw", "--max-tokens", "1")
        assert (done.returncode, done.stderr) == (0, said)


@pytest.mark.parametrize(("content", "number"), [("one\n\n \t\ntwo", 2), ("one\r\n" * 60, 60), ("\u2003\none", 1)])
def test_prompts_of_a_file_are_counted_before_they_are_read(tmp_path: Path, content: str, number: int) -> None:
    """The progress bar shows what is to come."""
    path = tmp_path / "prompts.txt"
    path.write_text(content)
    prompts = open_prompts(path, [], raw=True)
    assert isinstance(prompts, Sized)
    assert len(prompts) == len(list(prompts)) == number


def test_prompts_of_a_pipe_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("one\ntwo\n",))
    writer.start()
    prompts = open_prompts(path, [], raw=True)
    assert not isinstance(prompts, Sized)
    assert list(prompts) == ["one", "two"]
    writer.join()
