"""The time of day is set back, or forward: nothing that lasts some time ends, opens or waits because of it."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import starting
from tests.server.running import Server
from tests.server.streams import chunks
from tests.server.test_batches import ended, line, results, submit, wait_until_open
from tests.server.test_key_limits import Limited, metrics
from tests.server.test_lifecycle import gate, wait_until
from tests.server.test_prefix_cache import LONG, SMALL, cached, others

from freehold.access import gatekeeper
from freehold.access.clocks import Clocks
from freehold.access.keys import Scope
from freehold.files.vocabulary import TextAssets

HOUR_S = 3600.0
LONGER = [pytest.param(jump_s, marks=pytest.mark.slow) for jump_s in (HOUR_S, -48 * HOUR_S)]
JUMPS = pytest.mark.parametrize("jump_s", [-HOUR_S, *LONGER])


class WallClock:
    """The time of day, which can be set; the monotonic clock stays."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._real = time.time

    def __call__(self) -> float:
        return self._real() + self.ahead_s


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    monkeypatch.setattr(gatekeeper, "Clocks", lambda: Clocks(wall_s=clock))
    return clock


@pytest.fixture
def server(text: TextAssets, tmp_path: Path, wall: WallClock) -> Iterator[Server]:
    assert not wall.ahead_s
    with starting(text) as start:
        server = start(state_dir=tmp_path, engine=SMALL)
        wait_until_open(server)
        yield server


@JUMPS
def test_rates_answers_and_durations_heed_no_jump(
    server: Server, wall: WallClock, tmp_path: Path, jump_s: float
) -> None:
    client = Limited(server, tmp_path, requests_per_minute=4, tokens_per_minute=1000)
    with ThreadPoolExecutor(1) as pool, gate() as held:
        server.says("one ", held, "two")
        streaming = pool.submit(client.chat, stream=True, max_tokens=20)
        wait_until(lambda: server.engine.num_live == 1)
        before = client.spent()
        wall.ahead_s = jump_s
        assert client.spent() == before > 0, "what counted still counts"
        held.event.set()
        said = [chunk["choices"][0] for chunk in chunks(streaming.result())]
    assert "".join(choice["delta"].get("content") or "" for choice in said) == "one two"
    assert said[-1]["finish_reason"] == "stop"
    server.says("ok")
    answers = [client.chat(max_tokens=5) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert abs(answers[0].json()["created"] - time.time()) < 60
    assert 0 < int(answers[-1].headers["retry-after"]) <= 61
    check_durations(server, Limited(server, tmp_path, Scope(is_admin=True)).headers)


def check_durations(server: Server, headers: dict[str, str]) -> None:
    """Of what the server has seen so far, nothing took an hour, or less than no time."""
    told = metrics(server, headers)
    sums = {name: value for (name, *_), value in told.items() if name.endswith("seconds_sum")}
    assert len(sums) > 5
    assert all(0 <= value < 60 for value in sums.values()), sums
    answer = server.http.get("/debug/live", headers=headers).json()
    lines = answer["requests"]["ended"]
    assert len(lines) >= 4
    assert all(0 <= line["ended_s"] < 60 for line in lines), lines
    assert 0 <= answer["now"]["engine_age_s"] < 60


@JUMPS
def test_pins_last_as_long_as_they_should(server: Server, wall: WallClock, jump_s: float) -> None:
    server.says("ok")
    server.complete(prompt=LONG, max_tokens=4, prompt_cache_key="mine")
    wall.ahead_s = jump_s
    others(server, 200)
    num_cached, num_prompt = cached(server.complete(prompt=LONG, max_tokens=4).json())
    assert num_cached > num_prompt - 33


@JUMPS
def test_a_batch_goes_on(server: Server, wall: WallClock, jump_s: float) -> None:
    with gate() as held:
        server.says("one ", held, "two")
        batch = submit(server, [line("a", prompt=server.hi), line("b", prompt=server.hi)])
        wait_until(lambda: server.engine.num_live > 0)
        wall.ahead_s = jump_s
        held.event.set()
        batch = ended(server, batch)
    assert batch.status == "completed", batch
    later = submit(server, [line("c", prompt=server.hi)])
    assert ended(server, later).status == "completed"
    listed: list[Any] = list(server.openai.batches.list())
    assert [each.id for each in listed] == [later.id, batch.id], "the newest first, whatever the clock said"
    assert set(results(server, batch.output_file_id)) == {"a", "b"}
