"""Prefixes that are warm before anybody asks, and what a wrong file of them is told."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import Server, Start
from tests.server.test_prefix_cache import SMALL, cached, others

from freehold.errors import ConfigError
from freehold.serve.warmup import WarmUp, read_prefixes

SYSTEM = "You know the sea, and you answer with what you know of it. " * 10
MESSAGES: list[Any] = [{"role": "system", "content": SYSTEM}]
TEXT = "Once upon a time there was a harbour. " * 12


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def wait_until_warm(server: Server) -> None:
    deadline = time.monotonic() + 20
    while server.http.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_first_request_of_any_salt_reuses_a_warm_prefix(start: Start, tmp_path: Path) -> None:
    cold, warm = start(), start(warmup_prefixes=written(tmp_path / "p", {"messages": MESSAGES}, {"text": TEXT}))
    wait_until_warm(warm)
    question = [*MESSAGES, {"role": "user", "content": "What is the tide?"}]
    for server in (cold, warm):
        server.says("It comes and goes.")
    for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}):
        expected = cold.chat(messages=question, return_token_ids=True, **salt).json()
        got = warm.chat(messages=question, return_token_ids=True, **salt).json()
        assert cached(expected)[0] == 0
        num_cached, num_prompt = cached(got)
        assert num_cached > num_prompt - 30, "all but the question"
        for part in ("prompt_token_ids", "choices"):
            assert got[part] == expected[part]
        num_cached, _ = cached(warm.complete(prompt=TEXT + "It was old.", **salt).json())
        assert num_cached > 100


def test_nobody_sees_what_another_adds_to_a_warm_prefix(start: Start, tmp_path: Path) -> None:
    """se-10: what is shared is the operator's text; not a token that a client sent."""
    server = start(warmup_prefixes=written(tmp_path / "p", {"text": TEXT}))
    wait_until_warm(server)
    secret = TEXT + "The password is swordfish, and nobody may know it. " * 5
    num_public, _ = cached(server.complete(prompt=secret, cache_salt="a", max_tokens=1).json())
    assert cached(server.complete(prompt=secret, cache_salt="a", max_tokens=1).json())[0] > num_public + 40
    for salt in ({"cache_salt": "b"}, {}, {"cache_salt": "public"}):
        assert cached(server.complete(prompt=secret, **salt, max_tokens=1).json())[0] == num_public


def test_a_warm_prefix_outlives_others(start: Start, tmp_path: Path) -> None:
    server = start(engine=SMALL, warmup_prefixes=written(tmp_path / "p", {"text": TEXT}))
    wait_until_warm(server)
    for round_ in range(3):
        others(server, 1000 * round_)
        assert cached(server.complete(prompt=TEXT + "It was old.", cache_salt=f"{round_}").json())[0] > 90


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"nonsense", "JSON"),
        (b'{"text": 5}', "field text"),
        (b'{"txt": "a"}', "field txt: a prefix has no 'txt'"),
        (b"{}", "field text: text is missing"),
        (b'{"messages": 5}', "field messages"),
        (b'{"messages": [{"role": "nobody", "content": "a"}]}', r"field messages\[0\].role"),
        (b'{"messages": [], "max_tokens": 5}', "field max_tokens"),
        (b'{"text": "a", "messages": []}', "field text"),
        (b'{"text": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "deep"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: bytes, says: str) -> None:
    path = tmp_path / "prefixes.jsonl"
    path.write_bytes(b'{"text": "good"}\r\n\n' + line + b"\n")
    with pytest.raises(ConfigError, match=rf"line 3 of {re.escape(str(path))}.*{says}"):
        read_prefixes(path)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"text": ""}, "line 1 .*empty"),
        ({"text": "word " * 3000}, "line 1 .*(context|tokens)"),
        ({"text": "word " * 600}, "line 1 have more than 512 tokens, 25%"),
    ],
)
def test_a_prefix_that_has_no_room_is_refused(start: Start, tmp_path: Path, line: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        WarmUp(start(engine=SMALL).service, written(tmp_path / "p", line))


def test_the_command_ends_before_it_loads_anything(tmp_path: Path, smollm2_path: Path) -> None:
    path = written(tmp_path / "p", {"text": 5})
    for given, says in (
        ([path], "line 1"),
        ([tmp_path / "none"], "there is none of that name"),
        (["/dev/null"], "that is a folder, a pipe or a device"),
        ([path, "--no-enable-prefix-caching"], "needs the prefix cache"),
    ):
        command = [sys.executable, "-m", "freehold", "serve", smollm2_path, "--warmup-prefixes", *given]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2
        assert says in ended.stderr
        assert "Traceback" not in ended.stderr
