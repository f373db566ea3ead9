"""The overload benchmark against a small model: what it says of a server is what happened."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import http_servers
import pytest
from http_servers import Server, running
from overload import goodput, measure, parse, percentile
from plain_client import Reply

from freehold.files.tensors import DType
from freehold.synth import PRESETS, write_checkpoint


def reply(status: int, ended_s: float) -> Reply:
    return Reply(status, {}, b"", 0.0, ended_s)


def test_goodput_counts_answers_that_ended_in_the_span() -> None:
    replies = [reply(200, 0.5), reply(200, 1.5), reply(429, 1.5), reply(200, 2.0), reply(0, 1.1), reply(200, 1.0)]
    assert goodput(replies, 1.0, 2.0) == 2.0


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_percentiles(share: float, value: int) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == value


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("models") / "small.gguf"
    write_checkpoint(replace(PRESETS["tiny"], max_position=4096), path, format="gguf", dtype=DType.Q4_0, seed=0)
    options = ("--kv-cache-memory-bytes", "64m", "--max-num-seqs", "2", "--max-num-queued-reqs", "2")
    with running(http_servers.freehold(path, 1, *options)) as started:
        yield started


@pytest.mark.slow
@pytest.mark.alone
def test_three_times_the_load_is_refused_politely(server: Server) -> None:
    work = ("--output-tokens", "400", "--prompt-tokens", "8", "--vocab-size", str(PRESETS["tiny"].vocab_size))
    arguments = parse(["small", "--seconds", "6", "--peak-seconds", "5", *work])
    for _ in range(4):  # clients, refusals and a model that takes no time share the processors, and a peak is luck
        found = asyncio.run(measure(server, arguments))
        if found["goodput_share"] > 0.9:
            break
    assert set(found["statuses"]) == {200, 429}
    assert found["refusals_with_retry_after"] == found["statuses"][429] > 0
    assert found["refusal_p99_ms"] < 100
    assert found["goodput_share"] > 0.9
    assert found["recovery_s"] < 10
