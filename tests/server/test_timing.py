"""T18, N7: how soon an answer comes tells no key what another has asked (se-10)."""

import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests import processes

NUM_PROBES = 2000
PREFIX_TOKENS = 512
KEYS = ("key-of-the-victim", "key-of-the-curious")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server, over a small random model whose prefill can still be timed."""
    folder = tmp_path_factory.mktemp("timing")
    model = folder / "tiny.gguf"
    subprocess.run([sys.executable, "-m", "freehold", "synth", str(model), "--preset", "tiny"], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--port", str(port), "--log-level", "error", "--state-dir", str(folder / "state")]
    for key in KEYS:
        flags += ["--api-key", key]
    process = processes.start([sys.executable, "-m", "freehold", "serve", str(model), *flags])
    url = f"http://127.0.0.1:{port}"
    deadline_s = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{url}/readyz").raise_for_status()
            break
        except httpx.HTTPError:
            assert time.monotonic() < deadline_s
            assert process.poll() is None
            time.sleep(0.05)
    yield url
    process.terminate()
    assert process.wait(30) == 0


def area_under_curve(positives: list[float], negatives: list[float]) -> float:
    """How often a positive is larger than a negative, of all pairs; half for equal ones."""
    ranked = sorted([(value, True) for value in positives] + [(value, False) for value in negatives])
    ranks = sum(rank for rank, (_, is_positive) in enumerate(ranked, start=1) if is_positive)
    num_positives, num_negatives = len(positives), len(negatives)
    return (ranks - num_positives * (num_positives + 1) / 2) / (num_positives * num_negatives)


def seconds(http: httpx.Client, key: str, prompt: list[int]) -> float:
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
    began_s = time.perf_counter()
    answer = http.post("/v1/completions", json=body, headers={"x-api-key": key})
    ended_s = time.perf_counter()
    assert answer.status_code == 200, answer.text
    return ended_s - began_s


def probe(url: str, curious: str, num_probes: int) -> float:
    """The victim asks something new each time; the curious one times that and something that nobody asked."""
    draw = random.Random("timing")
    times: dict[bool, list[float]] = {True: [], False: []}

    def prefix() -> list[int]:
        return [draw.randrange(3, 250) for _ in range(PREFIX_TOKENS)]

    with httpx.Client(base_url=url, timeout=60) as http:
        for _ in range(num_probes // 2):
            asked, unasked = prefix(), prefix()
            seconds(http, KEYS[0], asked)
            guesses: list[tuple[bool, Any]] = [(True, asked), (False, unasked)]
            draw.shuffle(guesses)
            for was_asked, prompt in guesses:
                times[was_asked].append(seconds(http, curious, prompt))
    return area_under_curve(times[False], times[True])


@pytest.mark.slow
@pytest.mark.alone
def test_another_keys_prompts_cant_be_guessed_by_timing(url: str) -> None:  # se-10
    assert 0.45 < probe(url, KEYS[1], NUM_PROBES) < 0.55


@pytest.mark.slow
@pytest.mark.alone
def test_the_same_probes_find_ones_own_prompts(url: str) -> None:
    """So the test above would notice a leak."""
    assert probe(url, KEYS[0], 200) > 0.9
