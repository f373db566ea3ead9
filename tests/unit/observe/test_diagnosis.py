"""The sentence that names what limits a server: by table, and by what must hold for any numbers."""

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.observe.diagnosis import (
    FEW,
    KV_ROOM,
    Diagnosis,
    Numbers,
    diagnose,
)
from freehold.settings import SETTINGS_BY_NAME

QUIET = {
    "num_running": 4, "num_waiting": 0, "kv_used": 0.2, "max_num_seqs": 32, "num_waiting_rows": 0,
    "num_waiting_blocks": 0, "num_waiting_grammars": 0, "num_preparing": 0, "num_first_tokens": 0, "num_decoding": 4,
    "step_tokens": 512, "ttft_s": 0.2, "tokenize_s": 0.01, "prefill_s": 0.1, "overhead": 0.02, "idle": 0.4,
    "server_cpu": 0.1, "num_slow_clients": 0,
}  # fmt: skip
"""A server with some load and nothing that limits it."""

CASES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "nothing", "nothing binds: 4 of 32 run, KV 20% used"),
    ({"num_running": 0, "num_decoding": 0, "idle": 1.0}, "idle", "idle: nothing runs and nothing waits"),
    ({"why_not_ready": "the engine hangs", "num_running": 0}, "not_ready", "not ready: the engine hangs"),
    (
        {"num_running": 32, "num_waiting": 9, "num_waiting_rows": 9, "kv_used": 0.41},
        "rows",
        "queueing: max_num_seqs reached (32 of 32 run, 9 wait), KV 41% used: raise --max-num-seqs",
    ),
    (
        {"num_running": 32, "num_waiting": 9, "num_waiting_rows": 9, "kv_used": 0.41, "num_rejected": 3},
        "rows",
        "(32 of 32 run, 9 wait, 3 turned away)",
    ),
    ({"num_running": 32, "num_waiting": 9, "num_waiting_rows": 9, "kv_used": 0.95}, "kv_and_rows", "raise --kv-"),
    ({"num_waiting": 1, "num_waiting_blocks": 1, "kv_used": 0.97}, "kv_full", "1 request waits for blocks (4 running"),
    ({"num_preemptions": 1, "kv_used": 0.8}, "kv_full", "running requests lost their blocks once"),
    (
        {"num_preemptions": 12, "recomputed": 0.4, "num_waiting": 3, "num_waiting_blocks": 3, "kv_used": 0.99},
        "kv_thrashing",
        "KV full: thrashing: running requests lost their blocks 12 times, 40% of what is computed had been computed",
    ),
    (
        {"num_preemptions": 2, "recomputed": 0.05, "num_waiting": 3, "num_waiting_blocks": 3},
        "kv_full",
        "KV full: running requests lost their blocks 2 times, 3 requests wait for blocks (4 running",
    ),
    # An urgent request took a row of somebody else's.
    ({"num_preemptions": 1, "num_running": 32, "num_waiting": 1, "num_waiting_rows": 1}, "rows", "--max-num-seqs"),
    (
        {"num_first_tokens": 4, "longest_prompt": 6000},
        "long_prompt",
        "a long prompt holds up others' first token (6000 tokens, 512 fit in a step, 3 others wait)",
    ),
    ({"num_first_tokens": 1, "longest_prompt": 6000}, "nothing", ""),
    ({"num_first_tokens": 4, "longest_prompt": 500}, "nothing", ""),
    ({"ttft_s": 4.0, "prefill_s": 3.0}, "prefill_beside_answers", "takes 3.0 s of the 4.0 s to the first token"),
    ({"ttft_s": 4.0, "prefill_s": 3.0, "num_decoding": 0.1}, "prefill", "raise --max-num-batched-tokens"),
    ({"ttft_s": 0.9, "prefill_s": 0.8}, "nothing", ""),
    ({"ttft_s": 4.0, "prefill_s": 1.0}, "nothing", ""),
    ({"ttft_s": 4.0, "tokenize_s": 2.5, "prefill_s": 1.0}, "tokenizing", "2.5 s of 4.0 s"),
    ({"num_running": 0, "num_preparing": 2, "ttft_s": None}, "tokenizing", "2 now"),
    ({"num_waiting": 3, "num_waiting_grammars": 3}, "grammars", "3 requests wait until the grammar"),
    ({"num_slow_clients": 1}, "slow_clients", "clients read slowly: 1 client leaves unread what is there"),
    ({"num_running": 0, "num_slow_clients": 2}, "slow_clients", "2 clients leave unread"),
    ({"server_cpu": 0.97}, "server_cpu", "CPU: the server's process takes 97% of a core"),
    ({"idle": 0.01, "overhead": 0.5}, "engine_overhead", "CPU: 50% of the engine's time"),
    ({"idle": 0.01}, "compute", "CPU: the engine computes without a pause (4 run"),
    # What servers tell that are not this one.
    ({"max_num_seqs": None, "num_waiting_rows": None, "num_waiting": 5}, "rows", "(4 run, 5 wait)"),
    ({"max_num_seqs": 4, "num_waiting_rows": None, "num_waiting": 5}, "rows", "(4 of 4 run, 5 wait)"),
    ({"max_num_seqs": 32, "num_waiting_rows": None, "num_waiting": 5}, "nothing", ""),
    ({"num_waiting_rows": None, "num_waiting_blocks": None, "num_preemptions": 2}, "kv_full", "2 times"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "code", "words"), CASES)
def test_numbers_and_what_is_said_of_them(changes: dict[str, Any], code: str, words: str) -> None:
    found = diagnose(Numbers(**{**QUIET, **changes}))
    assert (found.code, words in found.sentence) == (code, True), found.sentence


def test_each_code_is_in_the_table() -> None:
    assert {code for _, code, _ in CASES} == set(Diagnosis.__annotations__["code"].__args__)


SHARES = st.floats(0, 1)
FEW_REQUESTS = st.one_of(st.just(0.0), st.floats(0, 100))
SECONDS = st.floats(0, 1000)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "kv_used": SHARES,
    "why_not_ready": st.sampled_from(["", "", "", "the engine hangs"]),
    "num_preemptions": FEW_REQUESTS,
    "recomputed": SHARES,
    "max_num_seqs": st.integers(1, 4096),
    "longest_prompt": st.integers(1, 10**6),
    "step_tokens": st.integers(1, 10**6),
    "overhead": SHARES,
    "idle": SHARES,
    "server_cpu": st.floats(0, 4),
    **dict.fromkeys(("ttft_s", "tokenize_s", "prefill_s"), SECONDS),
}
OPTIONAL = {field.name for field in fields(Numbers) if "None" in str(field.type)}
NUMBERS = st.builds(
    Numbers,
    **{
        field.name: st.none() | KINDS.get(field.name, FEW_REQUESTS)
        if field.name in OPTIONAL
        else KINDS.get(field.name, FEW_REQUESTS)
        for field in fields(Numbers)
    },
)


def consistent(numbers: Numbers) -> Numbers:
    """All that wait for something wait."""
    parts = (numbers.num_waiting_rows, numbers.num_waiting_blocks, numbers.num_waiting_grammars)
    return replace(numbers, num_waiting=numbers.num_waiting + sum(part or 0 for part in parts))


@settings(max_examples=200)
@given(NUMBERS.map(consistent))
def test_what_holds_for_any_numbers(numbers: Numbers) -> None:
    """One short sentence; all settings that it names exist; no remedy makes worse what the numbers show, and nothing
    that is bad goes unsaid."""
    found = diagnose(numbers)
    sentence = found.sentence
    assert set(re.findall(r"--[a-z-]+", sentence)) == {SETTINGS_BY_NAME[name].flag for name in found.settings}
    assert 0 < len(sentence) < 260
    assert not re.search(r"\n|\bnan\b|\binf\b|None|  |\(\)", sentence)

    lacks_blocks = (numbers.num_waiting_blocks or 0) >= FEW
    if "raise --max-num-seqs" in sentence:
        assert numbers.num_waiting >= FEW
        assert not lacks_blocks, "more rows need more blocks"
        assert numbers.kv_used < KV_ROOM, "more rows need more blocks"
    if found.severity == "ok":
        assert not numbers.why_not_ready
        assert not lacks_blocks
        assert (numbers.num_waiting_rows or 0) < FEW
        assert (numbers.num_slow_clients or 0) < FEW
    assert (found.code == "not_ready") == bool(numbers.why_not_ready)
    if found.code == "idle":
        assert numbers.num_running + numbers.num_waiting < FEW
