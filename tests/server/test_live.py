"""``GET /debug/live``: what the server tells of itself, on a real socket."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
from tests.server.running import Server, Start

from freehold.backends.script import Pause
from freehold.serve.live.schema import LiveAnswer

Json = dict[str, Any]


def live(server: Server, **query: Any) -> Json:
    response = server.http.get("/debug/live", params=query)
    assert response.status_code == 200, response.text
    msgspec.json.decode(response.content, type=LiveAnswer, strict=True)
    parsed: Json = response.json()
    return parsed


def until(server: Server, holds: Callable[[Json], bool], timeout_s: float = 30.0) -> Json:
    end_s = time.monotonic() + timeout_s
    while not holds(found := live(server)):
        assert time.monotonic() < end_s, found
        time.sleep(0.1)
    return found


def test_an_idle_server_says_so(start: Start) -> None:
    server = start(engine={"max_num_seqs": 3, "max_num_queued_reqs": 7})
    found = live(server)
    assert found["binding"]["code"] == "idle"
    assert found["server"]["model"] == "test"
    limits = found["server"]["limits"]
    assert (limits["max_num_seqs"], limits["max_num_queued_reqs"]) == (3, 7)
    assert found["requests"] == {"num_live": 0, "live": [], "ended": []}


def test_requests_are_listed_with_their_stages(start: Start) -> None:
    server = start()
    server.says("one", Pause(0.2), "two")
    assert server.chat(stream=True).status_code == 200
    found = until(server, lambda found: found["latencies"][0]["ttft"]["count"] == 1)
    [line] = found["requests"]["ended"]
    assert (line["surface"], line["stage"], line["status"], line["outcome"]) == ("chat", "ended", 200, "stop")
    assert 0 < line["tokenized_s"] <= line["queued_s"] <= line["first_token_s"] < line["ended_s"]
    assert line["num_prompt_tokens"] > 10
    assert line["num_output_tokens"] == 3
    assert "one" not in server.http.get("/debug/live").text
