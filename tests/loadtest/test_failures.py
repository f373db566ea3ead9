"""Requests that fail are counted under their names and kept out of latencies, and the run goes on."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.loadtest.runs import Run, StubServer, bench

from freehold.errors import ConfigError, ResourceError
from freehold.loadtest.client.failures import FailedRequestError

Against = Callable[..., Run]

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "dropped before the first token": ({"drop_at": 0}, "dropped"),
    "dropped within the answer": ({"drop_at": 5, "gap_s": 0.002}, "dropped"),
    "too many requests": ({"status": 429}, "http_429"),
    "server error": ({"status": 500, "first_s": 0.02}, "http_500"),
    "no JSON": ({"fault": "garbage", "fault_at": 3}, "malformed"),
    "no HTTP": ({"fault": "http"}, "malformed"),
    "error within the stream": ({"fault": "error", "fault_at": 3}, "error_event"),
    "no end": ({"fault": "cut", "fault_at": 3}, "incomplete"),
    "no end, with the connection": ({"fault": "cut", "fault_at": 3, "is_chunked": False}, "incomplete"),
    "no chunk": ({"fault": "chunk", "fault_at": 3}, "malformed"),
    "a head without an end": ({"head_bytes": 400_000}, "malformed"),
    "elsewhere": ({"status": 307, "headers": {"Location": "https://other/v1"}}, "http_307"),
    "draining": ({"status": 503, "headers": {"Retry-After": "5", "Connection": "close"}}, "http_503"),
    "too late": ({"stall_at": 2, "stall_s": 30}, "timeout"),
}


@pytest.mark.parametrize(("behaviour", "name"), FAULTS.values(), ids=FAULTS)
def test_failures_are_named_counted_and_kept_out_of_latencies(
    against: Against, behaviour: dict[str, Any], name: str
) -> None:
    run = against([{}, behaviour], num_prompts=8, concurrency=8, timeout_s=1.0, limits_ms={"e2el": 900}, lengths=(4, 8))
    point = run.point
    assert (point.completed, point.failed) == (4, 4)
    assert point.error_counts == {name: 4}
    assert point.latencies["e2el"].num == 4
    assert point.latencies["ttft"].num == 4
    assert point.total_output_tokens == 32, "tokens of failed answers don't count"
    assert point.goodput is not None
    assert point.goodput.fraction <= 0.5, "failed requests are in the denominator"
    assert "failures" in {each.code for each in point.invalid}
    assert point.detail is not None
    assert sum(text.startswith(name) for text in point.detail.errors) == 4


def test_the_servers_words_are_kept(against: Against) -> None:
    run = against([{"status": 503}, {"fault": "error"}], num_prompts=2)
    assert all("told to fail" in record.message for record in run.measurement.records)


def test_what_a_refusal_advises_is_kept(against: Against) -> None:
    told = [
        {"status": 429, "headers": {"Retry-After": "7"}},
        {"status": 308, "headers": {"Location": "https://other/v1"}},
    ]
    assert sorted(record.message for record in against(told, num_prompts=2).measurement.records) == [
        "HTTP 308: told to fail; it leads to 'https://other/v1', and none is followed: name that server with "
        "--base-url",
        "HTTP 429: told to fail; Retry-After: 7",
    ]


def test_a_servers_words_control_no_terminal() -> None:
    assert str(FailedRequestError("error_event", "a\x1b[2J\nb")) == "a\\x1b[2J b"


ODDITIES: dict[str, tuple[dict[str, Any], str]] = {
    "no [DONE]": ({"done": False}, "no_done"),
    "too many tokens": ({"counted": 9}, "other_length"),
    "no tokens": ({"counted": 0}, "no_tokens"),
    "negative tokens": ({"counted": -3, "ids": True}, "impossible_usage"),
    "other ids": ({"counted": 7, "ids": True}, "usage_mismatch"),
    "no usage": ({"usage": False}, "unknown_tokens"),
}


@pytest.mark.parametrize(("behaviour", "code"), ODDITIES.values(), ids=ODDITIES)
def test_answers_that_came_whole_but_oddly_are_told(against: Against, behaviour: dict[str, Any], code: str) -> None:
    point = against([{}, behaviour], num_prompts=4, lengths=(4, 8)).point
    assert (point.completed, point.failed) == (4, 0)
    assert code in {each.code for each in (*point.invalid, *point.warnings)}
    (text,) = (each.text for each in (*point.invalid, *point.warnings) if each.code == code)
    assert "2 " in text, "it says how many"
    sound = against(num_prompts=4, lengths=(4, 8)).point
    assert code not in {each.code for each in (*sound.invalid, *sound.warnings)}


def test_a_failed_turn_ends_its_conversation(against: Against) -> None:
    run = against({"status": 500}, num_prompts=2)
    assert run.measurement.num_unasked == 0
    assert run.point.failed == 2


def test_no_server_is_told_before_anything_is_measured(stub: StubServer, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ResourceError, match=r"no server answers at .*; start one with `freehold serve`"):
            bench(stub, tmp_path, base_url=f"http://127.0.0.1:{unused.getsockname()[1]}")


def test_a_warm_up_that_fails_is_told_before_anything_is_measured(against: Against) -> None:
    with pytest.raises(ResourceError, match="told to fail"):
        against({"status": 500}, num_warmups=2)


@pytest.mark.parametrize("url", ["localhost:80", "ftp://x", "http://", "http://x:0", "http://[x"])
def test_what_is_no_url_is_refused(against: Against, url: str) -> None:
    with pytest.raises(ConfigError, match="--base-url"):
        against(base_url=url)
