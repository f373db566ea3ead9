"""The load over HTTP: the client's reading of streams, the sums, and whole runs against a small model."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace

import http_servers
import numpy as np
import pytest
from http_client import Answer, AnswerError, complete
from http_load import Level, prompts_of, run_level, summary
from http_servers import Server, running
from http_sessions import NUM_OUTPUT, NUM_SHARED, NUM_TURNS, Work, run_sessions

from freehold.files.tensors import DType
from freehold.synth import PRESETS, write_checkpoint

VOCAB_SIZE = PRESETS["tiny"].vocab_size


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    config = replace(PRESETS["tiny"], max_position=4096)
    write_checkpoint(config, path, format="gguf", dtype=DType.Q4_0, seed=0)
    with running(http_servers.freehold(path, 1, "--kv-cache-memory-bytes", "64m")) as started:
        yield started


def stream_of(*events: object) -> bytes:
    """A stream of events, with empty comments between them as servers send them."""
    return (
        b"".join(b"data: " + json.dumps(event).encode() + b"\n\n: ping\n\n" for event in events) + b"data: [DONE]\n\n"
    )


async def answer_of(status: str, body: bytes, chunk_size: int, num_output: int) -> Answer:
    """Ask a server that answers with this, in chunks of some size."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for start in range(0, len(body), chunk_size):
            part = body[start : start + chunk_size]
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    fake = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with fake:
        return await complete(fake.sockets[0].getsockname()[1], [1, 2], num_output, {})


USAGE = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3, "prompt_tokens_details": None}}


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 10_000])
def test_events_are_read_however_they_are_cut(chunk_size: int) -> None:
    events = [{"choices": [{"text": "", "token_ids": [5, 6]}]}, {"choices": [{"text": "x", "token_ids": [7]}]}, USAGE]
    answer = asyncio.run(answer_of("200 OK", stream_of(*events), chunk_size, 3))
    assert answer.token_ids == [5, 6, 7]
    assert (answer.num_prompt_tokens, answer.num_output_tokens, answer.num_cached_tokens) == (2, 3, 0)
    # Tokens count, not events: two events brought three.
    assert len(answer.gaps_s) == 1
    assert 0 < answer.ttft_s <= answer.latency_s


def test_llama_servers_ids_are_read() -> None:
    events = [{"choices": [{"text": "a"}], "__verbose": {"tokens": [9, 8, 7]}}, USAGE]
    assert asyncio.run(answer_of("200 OK", stream_of(*events), 100, 3)).token_ids == [9, 8, 7]


@pytest.mark.parametrize(
    ("status", "events", "words"),
    [
        ("503 Service Unavailable", [], "503"),
        ("200 OK", [{"error": {"message": "out of luck"}}], "out of luck"),
        ("200 OK", [{"choices": [{"text": "a", "token_ids": [1]}]}, USAGE], "4 tokens were asked for and 3 came"),
        ("200 OK", [], "0 came"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(status: str, events: list[object], words: str) -> None:
    with pytest.raises(AnswerError, match=words):
        asyncio.run(answer_of(status, stream_of(*events), 100, 4))


def test_sums_over_answers() -> None:
    answers = [
        Answer(0.0, [1.0, 1.5, 2.5], [1, 2, 3], 10, 3, 4),
        Answer(1.0, [4.0, 4.1], [1, 2], 20, 2, 0),
    ]
    found = summary(answers, 5.0)
    assert found["output_throughput"] == 1.0
    assert (found["total_input_tokens"], found["total_output_tokens"], found["cached_tokens"]) == (30, 5, 4)
    assert found["p50_ttft_ms"] == pytest.approx(2000)
    assert found["p99_ttft_ms"] == pytest.approx(np.percentile([1, 3], 99) * 1000)
    assert found["p50_itl_ms"] == pytest.approx(500)
    assert found["max_itl_ms"] == pytest.approx(1000)
    assert found["p50_tpot_ms"] == pytest.approx((750 + 100) / 2)


def test_a_level_is_answered_in_full(server: Server) -> None:
    level = Level(concurrency=3, num_requests=7, spread_s=0.0, num_prompt=20, num_output=6)
    prompts = prompts_of(level, VOCAB_SIZE, "one")
    assert len({tuple(prompt) for prompt in prompts}) == 7
    found = asyncio.run(run_level(server, level, prompts))
    assert (found["completed"], found["total_input_tokens"], found["total_output_tokens"]) == (7, 140, 42)
    assert found["cached_tokens"] == 0
    assert 0 < found["p50_ttft_ms"] <= found["p99_ttft_ms"] <= found["max_e2el_ms"]


def test_a_spread_delays_the_clients(server: Server) -> None:
    level = Level(concurrency=4, num_requests=4, spread_s=0.8, num_prompt=8, num_output=2)
    found = asyncio.run(run_level(server, level, prompts_of(level, VOCAB_SIZE, "spread")))
    assert found["duration"] > 0.6
    assert found["p99_ttft_ms"] < 600


def test_sessions_reuse_what_they_share(server: Server) -> None:
    found = asyncio.run(run_sessions(server, Work(num_sessions=2, concurrency=1, vocab_size=VOCAB_SIZE)))
    assert found["completed"] == 2 * NUM_TURNS
    assert found["total_output_tokens"] == 2 * NUM_TURNS * NUM_OUTPUT
    # The second session's beginning, and all of each session but its new tokens, was there.
    assert found["cached_tokens"] > 2 * (NUM_TURNS - 1) * NUM_SHARED + NUM_SHARED


def test_memory_and_start_are_told(server: Server) -> None:
    assert 0 < server.first_token_s < 60
    assert 50 << 20 < server.memory_bytes() <= server.memory_bytes("VmHWM")
