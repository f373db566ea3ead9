"""Limits of keys over HTTP: reserved when a request is let in, settled however it ends, told in OpenAI's headers."""

import csv
import io
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.running import Server, Start
from tests.server.streams import chunks
from tests.server.test_bad_requests import access_line
from tests.server.test_keys import make_key
from tests.server.test_lifecycle import SLOW, gate, raw_request, wait_until

from freehold.access import key_table, usage
from freehold.access.database import connect, path_in
from freehold.access.keys import KeyId, KeyLimits, Scope
from freehold.access.usage import Usage
from freehold.backends.script import FailStep, Pause
from freehold.serve.operation.metrics import exposition, gather


class Limited:
    """A server, and a client with a key of these limits."""

    def __init__(self, server: Server, state: Path, scope: Scope | None = None, **limits: int) -> None:
        key, secret = make_key(state, f"limited {limits}", scope=scope or Scope(), limits=KeyLimits(**limits))
        self.key_id, self.state, self.server = key.key_id, state, server
        server.service.gatekeeper.reload()
        wait_until(lambda: server.service.gatekeeper.recognize(secret) is not None)
        self.headers = {"x-api-key": secret}
        self.secret = secret

    @property
    def meter(self) -> Any:
        return self.server.service.gatekeeper.meter(self.key_id)

    def chat(self, **fields: Any) -> httpx.Response:
        body = {"model": "test", "messages": self.server.messages, **fields}
        return self.server.http.post("/v1/chat/completions", headers=self.headers, json=body)

    def spent(self) -> int:
        """Tokens that count now."""
        limit: int = self.meter.tokens.limit - self.meter.tokens.remaining(time.monotonic())
        return limit

    def has_written(self, outcomes: list[tuple[str, int]]) -> bool:
        """Whether the ledger on disk has so many requests of each outcome."""
        return [(outcome, used.requests) for outcome, used in self.written()] == outcomes

    def written(self) -> list[tuple[str, Usage]]:
        """Outcomes and sums in the ledger on disk."""
        with closing(connect(path_in(self.state))) as connection:
            return [
                (account.outcome, used) for account, used in usage.read(connection) if account.key_id == self.key_id
            ]


@pytest.fixture
def limited(start: Start, tmp_path: Path) -> Callable[..., Limited]:
    server = start(state_dir=tmp_path)
    server.says("ok")
    return lambda **given: Limited(server, tmp_path, **given)


def error_of(response: httpx.Response) -> tuple[int, str, str]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return response.status_code, error["type"], error["code"]


def test_every_answer_tells_what_is_left(limited: Callable[..., Limited]) -> None:
    client = limited(requests_per_minute=6, tokens_per_minute=1000)
    answers = [
        client.chat(max_tokens=5),
        client.chat(max_tokens=5, stream=True),
        client.chat(max_tokens="many"),
        client.server.http.get("/v1/models", headers=client.headers),
        client.server.http.get("/nothing", headers=client.headers),
        client.server.http.post("/debug/profile", headers=client.headers, json={}),
        client.chat(max_tokens=5),
        client.chat(max_tokens=5),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 200, 404, 403, 200, 429]
    for answer in answers:
        assert answer.headers["x-ratelimit-limit-requests"] == "6"
        assert answer.headers["x-ratelimit-limit-tokens"] == "1000"
        assert {f"x-ratelimit-{what}-{of}" for what in ("remaining", "reset") for of in ("requests", "tokens")} < set(
            answer.headers
        )
    left = [int(answer.headers["x-ratelimit-remaining-requests"]) for answer in answers]
    assert left == [5, 4, 3, 2, 1, 1, 0, 0], "what is forbidden takes no place"
    used = answers[0].json()["usage"]["total_tokens"]
    assert answers[0].headers["x-ratelimit-remaining-tokens"] == str(1000 - used), "settled before it is told"


def test_too_many_a_minute(limited: Callable[..., Limited]) -> None:
    client = limited(requests_per_minute=2)
    assert [client.chat().status_code for _ in range(2)] == [200, 200]
    refused = client.chat()
    assert error_of(refused) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert 50 <= int(refused.headers["retry-after"]) <= 61
    assert refused.headers["x-ratelimit-reset-requests"].startswith(("1m", "59", "58"))


def test_however_many_come_at_once_as_many_get_in_as_may(limited: Callable[..., Limited]) -> None:
    client = limited(requests_per_minute=7, concurrent_requests=4)
    with gate() as closed, ThreadPoolExecutor(40) as pool:
        client.server.says(closed, "ok")
        first = [pool.submit(client.chat) for _ in range(20)]
        wait_until(lambda: sum(future.done() for future in first) == 16)
        closed.event.set()
        client.server.says("ok")
        second = [pool.submit(client.chat) for _ in range(40)]
        statuses = [future.result().status_code for future in (*first, *second)]
    assert statuses.count(200) == 7
    assert statuses.count(429) == 53
    assert client.meter.num_running == 0


def test_tokens_at_once_are_exact(limited: Callable[..., Limited]) -> None:
    """Thirty-two requests that each reserve the same: as many run as fit into the limit."""
    client = limited(tokens_per_minute=1000)
    prompt_tokens = client.chat(max_tokens=1).json()["usage"]["prompt_tokens"]
    before = client.spent()
    with gate() as closed, ThreadPoolExecutor(32) as pool:
        client.server.says(closed, "ok")
        running = [pool.submit(client.chat, max_tokens=100) for _ in range(32)]
        fits = (1000 - before) // (prompt_tokens + 100)
        wait_until(lambda: sum(future.done() for future in running) == 32 - fits)
        assert client.spent() == before + fits * (prompt_tokens + 100)
        closed.event.set()
        answers = [future.result() for future in running]
    used = sum(answer.json()["usage"]["total_tokens"] for answer in answers if answer.status_code == 200)
    assert client.spent() == before + used
    assert {answer.status_code for answer in answers} == {200, 429}


def test_n_answers_reserve_n_times_max_tokens(limited: Callable[..., Limited]) -> None:
    client = limited(tokens_per_minute=200)
    never = client.chat(max_tokens=50, n=4)
    assert error_of(never) == (400, "invalid_request_error", "exceeds_key_limit")
    assert never.json()["error"]["param"] == "max_tokens"
    done = client.chat(max_tokens=10, n=4)
    assert done.status_code == 200
    assert client.spent() == done.json()["usage"]["total_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_pays_for_what_was_done(limited: Callable[..., Limited], stream: bool) -> None:
    client = limited(tokens_per_minute=10_000)
    server = client.server
    server.says(*[SLOW, 40] * 4000, ends=False)
    before = server.engine.ledger().published_ids
    connection = raw_request(server, {"max_tokens": 4000, "stream": stream}, headers=client.headers)
    wait_until(lambda: server.engine.num_live == 1)
    assert client.spent() > 4000
    wait_until(lambda: server.engine.ledger().published_ids > before + 3)
    connection.close()
    wait_until(lambda: client.meter.num_running == 0)
    assert 10 < client.spent() < 500
    wait_until(lambda: bool(client.written()))
    ((outcome, used),) = client.written()
    assert outcome == "cancelled"
    assert used.num_tokens == client.spent()
    assert used.output_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_is_charged_only_for_tokens_that_came(limited: Callable[..., Limited], stream: bool) -> None:
    client = limited(tokens_per_minute=10_000)
    client.server.says("one two", Pause(0.01), FailStep(), "three")
    answer = client.chat(max_tokens=4000, stream=stream)
    assert answer.status_code == (200 if stream else 500)
    wait_until(lambda: client.meter.num_running == 0)
    spent = client.spent()
    assert 2 < spent < 100
    client.server.says(FailStep(), "never")
    client.chat(max_tokens=4000)
    assert client.spent() == spent
    wait_until(lambda: sum(used.requests for _, used in client.written()) == 2)
    assert {outcome for outcome, _ in client.written()} == {"failed"}


@pytest.mark.parametrize("ends", ["is revoked", "expires"])
def test_a_key_that_ends_while_it_streams(
    limited: Callable[..., Limited], monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """What runs goes on and is paid for as it was used; nothing new is let in."""
    client = limited(tokens_per_minute=10_000, concurrent_requests=2)
    server, gatekeeper, meter = client.server, client.server.service.gatekeeper, client.meter
    with ThreadPoolExecutor(1) as pool, gate() as held:
        server.says("one ", held, "two ", "three")
        asked = {"stream": True, "max_tokens": 4000, "stream_options": {"include_usage": True}}
        streaming = pool.submit(partial(client.chat, **asked))
        wait_until(lambda: server.engine.num_live == 1)
        assert meter.spent(meter.clocks.today()) > 4000
        if ends == "is revoked":
            with closing(connect(path_in(client.state))) as connection:
                key_table.revoke(connection, client.key_id, now_s=time.time())
        else:
            old = gatekeeper._keys[client.key_id]
            monkeypatch.setitem(gatekeeper._keys, client.key_id, msgspec.structs.replace(old, expires_s=time.time()))
        wait_until(lambda: server.http.get("/v1/models", headers=client.headers).status_code == 401)
        assert client.chat(max_tokens=1).status_code == 401
        held.event.set()
        *said, last = chunks(streaming.result())
    assert said[-1]["choices"][0]["finish_reason"] == "stop"
    assert "".join(part["choices"][0]["delta"].get("content") or "" for part in said) == "one two three"
    wait_until(lambda: ("completed", 1) in [(outcome, used.requests) for outcome, used in client.written()])
    assert meter.num_running == 0
    assert meter.spent(meter.clocks.today()) == last["usage"]["total_tokens"]
    [used] = [used for outcome, used in client.written() if outcome == "completed"]
    assert used.num_tokens == last["usage"]["total_tokens"]


def test_budgets_are_spent_for_the_day_and_survive_a_restart(start: Start, tmp_path: Path) -> None:
    _, secret = make_key(tmp_path, "daily", limits=KeyLimits(tokens_per_day=200))
    body = {"model": "test", "max_tokens": 20}
    used = 0
    for _ in range(2):
        server = start(state_dir=tmp_path)
        server.says("ok")
        while True:
            answer = server.http.post(
                "/v1/chat/completions", headers={"x-api-key": secret}, json={**body, "messages": server.messages}
            )
            if answer.status_code == 429:
                break
            used += answer.json()["usage"]["total_tokens"]
        assert error_of(answer) == (429, "rate_limit_error", "insufficient_quota")
        assert answer.headers["x-should-retry"] == "false"
        assert 0 < int(answer.headers["retry-after"]) <= 86_400
        server.stop()
        server.stop = lambda: None  # type: ignore[method-assign]
    assert 100 < used <= 200


def test_the_official_client_waits_and_comes_again(start: Start, tmp_path: Path) -> None:
    """It heeds Retry-After of limits a minute, and doesn't try again when a budget is spent."""
    server = start(state_dir=tmp_path)
    server.says("ok")
    client = Limited(server, tmp_path, tokens_per_day=100)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=client.secret, max_retries=5) as official:
        began_s = time.monotonic()
        ask = partial(official.chat.completions.create, model="test", messages=server.messages, max_tokens=20)
        while server.service.gatekeeper.meter(client.key_id).spent("2") < 50:
            ask()
        with pytest.raises(openai.RateLimitError) as caught:
            [ask() for _ in range(10)]
        assert caught.value.code == "insufficient_quota"
        assert time.monotonic() - began_s < 20


def test_the_ledger_adds_up_to_what_answers_say(limited: Callable[..., Limited]) -> None:
    client = limited()
    server = client.server
    totals = Usage()
    server.says("a few words and then some")
    kinds = ({}, {"n": 3}, {"stop": "words"}, {"max_tokens": 2}, {"logprobs": True}, {"stream": True})
    for fields in kinds * 3:
        if fields.get("stream"):
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key=client.secret) as official:
                *_, last = official.chat.completions.create(
                    model="test", messages=server.messages, stream=True, stream_options={"include_usage": True}
                )
            told = last.usage.model_dump()
        else:
            told = client.chat(**fields).json()["usage"]
        details = told["prompt_tokens_details"], told["completion_tokens_details"]
        totals.add(
            Usage(
                1, told["prompt_tokens"], details[0]["cached_tokens"], told["completion_tokens"],
                details[1]["reasoning_tokens"],
            )
        )  # fmt: skip
    assert client.chat(temperature="hot").status_code == 400
    wait_until(lambda: sum(used.requests for _, used in client.written()) == totals.requests + 1)
    assert client.written() == [("completed", totals), ("refused", Usage(1))]


def metrics(server: Server, headers: dict[str, str] | None = None) -> dict[tuple[str, ...], float]:
    """Values by name and label values."""
    answer = server.http.get("/metrics", headers=headers)
    assert answer.status_code == 200
    return {
        (
            sample.name,
            *(value for name, value in sample.labels.items() if name not in {"model_name", "engine"}),
        ): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_metrics_say_what_happened(limited: Callable[..., Limited]) -> None:
    client = limited()
    server = client.server
    _, secret = make_key(client.state, "scraper", scope=Scope(endpoints=("metrics",)))
    scraper = {"x-api-key": secret}
    wait_until(lambda: server.http.get("/metrics", headers=scraper).status_code == 200)
    assert server.http.get("/metrics", headers=client.headers).status_code == 403
    assert server.http.get("/metrics").status_code == 401
    done = [client.chat(max_tokens=1), client.chat(), client.chat(n=2)]
    client.chat(temperature="hot")
    found = metrics(server, scraper)
    usages = [answer.json()["usage"] for answer in done]
    assert found["vllm:prompt_tokens_total",] == sum(told["prompt_tokens"] for told in usages)
    assert found["vllm:generation_tokens_total",] == sum(told["completion_tokens"] for told in usages)
    assert found["vllm:request_success_total", "stop"] == 3
    assert found["vllm:request_success_total", "length"] == 1
    assert found["vllm:request_success_total", "tool_calls"] == 0
    assert found["freehold:requests_total", "completed"] == 3
    assert found["freehold:requests_total", "refused"] == 1
    assert found["freehold:key_requests_total", client.key_id, "completed"] == 3
    assert found["freehold:key_tokens_total", client.key_id, "prompt"] == found["vllm:prompt_tokens_total",]
    assert found["vllm:admission_rejections_total", "invalid_api_key"] >= 1
    assert found["freehold:ready",] == 1
    assert found["vllm:num_requests_running",] == found["vllm:num_requests_waiting",] == 0
    assert found["process_open_fds",] > 3


def test_whoever_refuses_a_request_it_is_counted_listed_and_logged_as_its_keys(
    limited: Callable[..., Limited], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clients = {
        "rate_limit_exceeded": limited(requests_per_minute=3),
        "exceeds_key_limit": limited(tokens_per_minute=1),
        "endpoint_not_allowed": limited(scope=Scope(endpoints=("tokenize",))),
    }
    for code, client in clients.items():
        answers = [client.chat() for _ in range(5)]
        refused = [answer for answer in answers if answer.status_code >= 400]
        assert {error_of(answer)[2] for answer in refused} == {code}
        outcomes = [("completed", 5 - len(refused))] if len(refused) < 5 else []
        outcomes += [("refused", len(refused))]
        wait_until(partial(client.has_written, outcomes))
        for answer in refused:
            assert f"key={client.key_id}" in access_line(caplog, answer.headers["x-request-id"])
        sums = client.server.service.counts.used
        counted = {outcome: used.requests for (key_id, outcome), used in sums.items() if key_id == client.key_id}
        assert counted == dict(outcomes)
        name = client.server.service.gatekeeper.name_of(client.key_id)
        ended = client.server.service.board.requests.lines(0.0, None).ended
        assert [line.outcome for line in ended if line.key == name and line.status >= 400] == [code] * len(refused)


def test_many_keys_take_the_event_loop_a_moment(start: Start) -> None:
    """Of a scrape of ten thousand keys only the reading happens there; it is written in a thread."""
    server = start()
    for number in range(10_000):
        server.service.counts.used[KeyId(f"key-{number}"), "completed"] = Usage(1, 2, 3, 4, 5)
    began_s = time.thread_time()
    gathered = gather(server.service)
    read_s = time.thread_time() - began_s
    assert exposition(gathered).count(b"\n") > 50_000
    assert read_s < 1.0
    assert metrics(server)["freehold:key_tokens_total", "key-7", "output"] == 4


def test_running_and_waiting_are_told_apart(start: Start) -> None:
    server = start(engine={"max_num_seqs": 2})
    server.says(*[SLOW, 40] * 60, ends=False)

    def told() -> tuple[float, ...]:
        found = metrics(server)
        reasons = [found["freehold:queue_reason", reason] for reason in ("rows", "tokens", "blocks", "leader")]
        kinds = [found["vllm:num_requests_waiting_by_reason", kind] for kind in ("capacity", "deferred")]
        return (found["vllm:num_requests_running",], found["vllm:num_requests_waiting",], *reasons, *kinds)

    with ThreadPoolExecutor(5) as pool:
        running = [pool.submit(server.chat, max_tokens=25) for _ in range(5)]
        wait_until(lambda: told() == (2, 3, 3, 0, 0, 0, 3, 0))
        assert all(future.result().status_code == 200 for future in running)
    wait_until(lambda: told() == (0,) * 8)


def test_what_clients_make_up_never_becomes_a_label(start: Start) -> None:
    """T21: the number of series stays the same, whatever models, keys, paths and ids are sent."""
    server = start(api_keys=("operators-key",))
    headers = {"x-api-key": "operators-key"}

    def provoke(number: int) -> None:
        made_up = f"made-up-{number}"
        server.http.post("/v1/completions", headers=headers, json={"model": made_up, "prompt": "x"})
        server.http.get(f"/{made_up}", headers=headers)
        server.http.get("/v1/models", headers={"x-api-key": made_up, "x-request-id": made_up})
        server.http.post("/v1/completions", headers=headers, json={"model": "test", "prompt": "x", made_up: 1})

    provoke(0)
    metrics(server, headers)
    before = metrics(server, headers).keys()
    for number in range(1, 200):
        provoke(number)
    assert metrics(server, headers).keys() == before
    assert not any("made-up" in part for name in before for part in name)


def test_usage_is_shown_by_command(limited: Callable[..., Limited]) -> None:
    from click.testing import CliRunner

    from freehold.cli.commands import app

    client = limited()
    told = [client.chat().json()["usage"] for _ in range(3)]
    client.chat(temperature="hot")
    wait_until(lambda: len(client.written()) == 2)
    day = client.server.service.gatekeeper.meter(client.key_id)
    assert day is not None
    arguments = ["usage", "--by", "day,key,model", "--csv", "--state-dir", str(client.state)]
    done = CliRunner().invoke(app, arguments)
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert row["day"] == day.clocks.today()
    assert (row["key"], row["name"], row["model"]) == (client.key_id, "limited {}", "test")
    assert (row["requests"], row["completed"], row["refused"], row["cancelled"], row["failed"]) == (
        "4",
        "3",
        "1",
        "0",
        "0",
    )
    assert int(row["prompt_tokens"]) == sum(one["prompt_tokens"] for one in told)
    assert int(row["output_tokens"]) == sum(one["completion_tokens"] for one in told)
    table = CliRunner().invoke(app, ["usage", "--state-dir", str(client.state), "--key", client.key_id]).stdout
    assert table.splitlines()[0].split() == [name for name in row if name not in {"day", "model"}]
    assert table.splitlines()[1].split()[0] == client.key_id
    empty = CliRunner().invoke(app, ["usage", "--until", "2020-01-01", "--state-dir", str(client.state)])
    assert empty.stdout == "no usage\n"


def test_metrics_are_true_while_requests_come_and_go(start: Start) -> None:
    """N1, N3: when all is over, requests and tokens are those that clients saw, exactly."""
    server = start(engine={"max_num_seqs": 4, "max_num_queued_reqs": 6})
    server.says("some words", Pause(0.002), " and more")
    statuses: list[int] = []
    tokens: list[int] = []
    lock = threading.Lock()

    def ask(number: int) -> None:
        answer = server.chat(max_tokens=1 + number % 9)
        with lock:
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                tokens.append(answer.json()["usage"]["completion_tokens"])

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(ask, range(200)))
    found = metrics(server)
    assert found["freehold:requests_total", "completed"] == statuses.count(200)
    assert found["freehold:requests_total", "refused"] == statuses.count(429)
    assert found.get(("vllm:admission_rejections_total", "queue_full"), 0) == statuses.count(429)
    assert found["vllm:generation_tokens_total",] == sum(tokens)
