"""What spans say of requests of every kind: asked and answered, cut short, failed, refused."""

import json
import logging
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.server.anthropic_client import client as anthropic_client
from tests.server.conftest import starting
from tests.server.families import QWEN, family
from tests.server.running import Server, Start
from tests.server.test_batches import ended, line, submit, wait_until_open
from tests.server.test_engine_process import PROGRAM
from tests.server.test_lifecycle import SLOW, gate, raw_request, wait_until
from tests.server.test_tools import OSLO, TOOLS
from tests.server.traced import Traced, receiving_at_once, stages_of

from freehold.backends.script import FailStep
from freehold.config import EngineConfig, TracingConfig
from freehold.engine.remote import ProcessEngine
from freehold.files.vocabulary import TextAssets
from freehold.grammar.compiler import GrammarCompiler
from freehold.logs import JsonFormatter

STAGES = ["queue", "prefill", "decode"]
LEFT_BEHIND = {
    "gen_ai.system", "gen_ai.prompt", "gen_ai.completion", "gen_ai.usage.prompt_tokens",
    "gen_ai.usage.completion_tokens", "gen_ai.usage.cache_creation.input_tokens", "gen_ai.openai.request.seed",
}  # fmt: skip
CANARY = "kanarienvogel"


@pytest.fixture(scope="module")
def traced(text: TextAssets) -> Iterator[Traced]:
    """A model that thinks and calls tools. Nobody has asked for content, and no span has any."""
    with receiving_at_once() as receiver, starting(text) as start:
        model = family(text, QWEN, added=("<think>", "</think>"))
        yield Traced(start(model, tracing=TracingConfig(endpoint=receiver.url)), receiver)
        assert len({span.span_id for span in receiver.spans}) == len(receiver.spans) > 0
        for span in receiver.spans:
            assert not LEFT_BEHIND & span.attributes.keys()
            assert span.begun_s <= span.ended_s
            assert CANARY not in repr(span)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_a_span_with_its_stages(traced: Traced, stream: bool) -> None:
    traced.server.says(f"a few {CANARY} words")
    messages = [{"role": "system", "content": CANARY}, *traced.server.messages]
    asked = {"temperature": 0, "max_tokens": 70, "top_p": 0.5, "top_k": 3, "seed": 9, "stop": ["x", "y"], "user": "me"}
    answer = traced.chat(f"chat-{stream}", stream=stream, messages=messages, **asked)
    assert answer.status_code == 200
    span, within = traced.request(f"chat-{stream}")
    assert (span.name, span.kind, span.status) == ("chat test", "SPAN_KIND_SERVER", "STATUS_CODE_UNSET")
    assert span.parent_id == ""
    assert [one.name for one in within] == ["tokenize", *STAGES]
    assert {one.kind for one in within} == {"SPAN_KIND_INTERNAL"}
    moments = [span.begun_s, *(moment for one in within for moment in (one.begun_s, one.ended_s)), span.ended_s]
    assert moments == sorted(moments), "one stage after the other, within the request"
    say = span.attributes
    expected = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "freehold", "gen_ai.request.model": "test",
        "gen_ai.request.max_tokens": 70, "gen_ai.request.temperature": 0.0, "gen_ai.request.top_p": 0.5,
        "gen_ai.request.top_k": 3, "gen_ai.request.seed": 9, "gen_ai.request.stop_sequences": ["x", "y"],
        "gen_ai.response.model": "test", "gen_ai.response.finish_reasons": ["stop"],
        "server.address": "127.0.0.1", "server.port": traced.server.port, "http.request.method": "POST",
        "http.route": "/v1/chat/completions", "http.response.status_code": 200,
        "user.id": "me", "freehold.service_class": "interactive",
    }  # fmt: skip
    assert expected.items() <= say.items()
    assert say.get("gen_ai.request.stream", False) is stream
    assert ("gen_ai.response.time_to_first_chunk" in say) is stream
    assert say["gen_ai.response.id"].startswith("chatcmpl-")
    assert not {"error.type", "gen_ai.request.choice.count", "gen_ai.output.type", "session.id"} & say.keys()
    assert {one.attributes["user.id"] for one in within} == {"me"}, "Langfuse looks for it on each span"
    assert span.resource["service.name"] == "freehold"


def test_latencies_are_those_of_the_stages(traced: Traced) -> None:
    traced.server.says(SLOW, 40, SLOW, 41, SLOW, 42)
    traced.chat("latencies")
    span, within = traced.request("latencies")
    seconds = {one.name: one.ended_s - one.begun_s for one in within}
    say = span.attributes
    assert say["gen_ai.latency.time_in_queue"] == pytest.approx(seconds["queue"], abs=1e-5)
    assert say["gen_ai.latency.time_in_model_prefill"] == pytest.approx(seconds["prefill"], abs=1e-5)
    assert say["gen_ai.latency.time_in_model_decode"] == pytest.approx(seconds["decode"], abs=1e-5)
    assert say["gen_ai.latency.e2e"] == pytest.approx(span.ended_s - span.begun_s, abs=1e-5)
    assert seconds["prefill"] >= SLOW.seconds
    assert seconds["prefill"] + seconds["decode"] >= 3 * SLOW.seconds
    first_s = say["gen_ai.latency.time_to_first_token"]
    assert seconds["queue"] + seconds["prefill"] <= first_s < say["gen_ai.latency.e2e"]


def test_a_model_has_the_name_that_it_was_asked_by(start: Start) -> None:
    with receiving_at_once() as receiver:
        server = start(model_aliases=("other",), tracing=TracingConfig(endpoint=receiver.url))
        server.says("ok")
        Traced(server, receiver).chat("alias", model="other")
        span, _ = receiver.request("alias")
        assert span.name == "chat other"
        assert (span.attributes["gen_ai.request.model"], span.attributes["gen_ai.response.model"]) == ("other", "test")


def test_a_line_of_the_log_names_its_trace(traced: Traced, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    traced.server.says("ok")
    traced.chat("logged")
    span, _ = traced.request("logged")
    wait_until(lambda: "logged POST" in caplog.text)
    (record,) = [record for record in caplog.records if record.getMessage().startswith("logged POST")]
    assert json.loads(JsonFormatter().format(record))["trace_id"] == span.trace_id


def test_a_wait_is_seen_as_one(start: Start) -> None:
    with receiving_at_once() as receiver, gate() as held, ThreadPoolExecutor(2) as pool:
        server = start(engine={"max_num_seqs": 1}, tracing=TracingConfig(endpoint=receiver.url))
        traced = Traced(server, receiver)
        server.says(held, "ok")
        first = pool.submit(traced.chat, "first")
        wait_until(lambda: server.engine.num_live == 1)
        second = pool.submit(traced.chat, "second")
        wait_until(lambda: server.engine.num_live == 2)
        held.event.set()
        assert first.result().status_code == second.result().status_code == 200
        decoded = next(one for one in traced.request("first")[1] if one.name == "decode")
        queued = next(one for one in traced.request("second")[1] if one.name == "queue")
        assert queued.ended_s >= decoded.ended_s - 1e-6, "it waits until the first has ended"
        assert queued.begun_s < decoded.begun_s


def test_tokens_are_those_of_usage(traced: Traced) -> None:
    """In and out, reasoning, cached; what was asked to stay cached and wasn't there has been written."""
    traced.server.says("<think>", "long thoughts", "</think>", "answer")
    messages = [{"role": "system", "content": "be brief " * 40}, *traced.server.messages]
    for moment in ("first", "again"):
        usage = traced.chat(moment, prompt_cache_key="talk", messages=messages).json()["usage"]
        span, within = traced.request(moment)
        say, cached = span.attributes, usage["prompt_tokens_details"]["cached_tokens"]
        reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
        assert reasoning > 0
        assert (cached > 40) == (moment == "again")
        assert say["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
        assert say["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
        assert say["gen_ai.usage.reasoning.output_tokens"] == reasoning
        assert say["gen_ai.usage.cache_read.input_tokens"] == cached
        assert say["gen_ai.usage.cache_write.input_tokens"] == usage["prompt_tokens"] - cached
        assert (say["session.id"], "gen_ai.conversation.id" in say) == ("talk", False)
        prefill = next(one for one in within if one.name == "prefill")
        assert prefill.attributes["gen_ai.usage.cache_read.input_tokens"] == cached
        priced = json.loads(say["langfuse.observation.usage_details"])
        assert priced.pop("total") == usage["total_tokens"] == sum(priced.values())
        assert (priced["input_cached_tokens"], priced["output_reasoning_tokens"]) == (cached, reasoning)


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_are_counted_and_not_shown(traced: Traced, stream: bool) -> None:
    traced.server.says(f'<tool_call>\n{{"name": "weather", "arguments": {OSLO}}}\n</tool_call>')
    traced.chat(f"tools-{stream}", tools=TOOLS, stream=stream)
    say = traced.request(f"tools-{stream}")[0].attributes
    assert say["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert say["freehold.num_tool_calls"] == 1
    assert "Oslo" not in repr(say)
    assert "weather" not in repr(say)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_compiling_has_a_span_of_its_own(traced: Traced, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_it, slow_s = GrammarCompiler.compile, 0.2

    def compile_slowly(*args: Any, **fields: Any) -> Any:
        time.sleep(slow_s)
        return compile_it(*args, **fields)

    monkeypatch.setattr(GrammarCompiler, "compile", compile_slowly)
    traced.server.says("{}")
    asks = {"messages": traced.server.messages} if "chat" in path else {"prompt": traced.server.hi}
    answer = traced.post(
        path, f"compiled-{path.count('/')}", response_format={"type": "json_object"}, max_tokens=9, **asks
    )
    assert answer.status_code == 200, answer.text
    _, within = traced.request(f"compiled-{path.count('/')}")
    assert [one.name for one in within] == ["tokenize", "compile", *STAGES]
    tokenize, compiling, queue = within[:3]
    assert compiling.ended_s - compiling.begun_s >= slow_s
    assert tokenize.ended_s <= compiling.begun_s < compiling.ended_s <= queue.begun_s


@pytest.mark.parametrize("stream", [False, True])
def test_each_answer_has_its_stages(traced: Traced, stream: bool) -> None:
    traced.server.says("ok")
    traced.complete(f"many-{stream}", prompt=[traced.server.hi, "Hi #0", "x"], n=2, max_tokens=3, stream=stream)
    span, within = traced.request(f"many-{stream}")
    assert span.name == "text_completion test"
    assert span.attributes["gen_ai.request.choice.count"] == 2
    assert span.attributes["http.route"] == "/v1/completions"
    assert len(span.attributes["gen_ai.response.finish_reasons"]) == 6
    for index in range(6):
        assert stages_of(within, index) == STAGES
    assert [one.name for one in within].count("tokenize") == 1


def test_a_message_of_anthropics_is_a_chat(traced: Traced) -> None:
    traced.server.says("ok")
    messages: Any = traced.server.messages
    answer = anthropic_client(traced.server).messages.create(
        model="test", max_tokens=9, messages=messages, system=CANARY, stop_sequences=["x"],
        extra_body={"temperature": 0.5}, metadata={"user_id": "someone"}, extra_headers={"x-request-id": "message"},
    )  # fmt: skip
    span, within = traced.request("message")
    assert span.name == "chat test"
    assert stages_of(within) == STAGES
    expected = {
        "gen_ai.request.max_tokens": 9, "gen_ai.request.temperature": 0.5, "gen_ai.request.stop_sequences": ["x"],
        "gen_ai.response.id": answer.id, "gen_ai.usage.output_tokens": answer.usage.output_tokens,
        "user.id": "someone", "http.route": "/v1/messages",
    }  # fmt: skip
    assert expected.items() <= span.attributes.items()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_leaves_a_span_that_says_where(traced: Traced, stream: bool) -> None:
    traced.server.says(*[SLOW, 40] * 4000, ends=False)
    body = {"stream": stream, "max_tokens": 4000}
    connection = raw_request(traced.server, body, headers={"x-request-id": f"left-{stream}"})
    if stream:
        received = b""
        while received.count(b"data: ") < 3:
            received += connection.recv(4096)
    else:
        wait_until(lambda: traced.server.engine.num_live == 1)
    connection.close()
    span, within = traced.request(f"left-{stream}")
    assert (span.status, span.attributes["error.type"]) == ("STATUS_CODE_UNSET", "cancelled")
    assert span.attributes["http.response.status_code"] == 499
    assert span.attributes["gen_ai.response.finish_reasons"] == ["error"]
    assert span.attributes["langfuse.observation.level"] == "WARNING"
    stages = stages_of(within)
    assert stages == STAGES[: len(stages)]
    assert stages == STAGES or not stream
    assert traced.server.service.tracing is not None
    assert not traced.server.service.tracing._unfinished


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_a_failure_is_an_error(traced: Traced, stream: bool, n: int) -> None:
    traced.server.says("so", FailStep(), "far")
    traced.chat(f"failed-{stream}-{n}", stream=stream, n=n)
    span, within = traced.request(f"failed-{stream}-{n}")
    assert span.status == "STATUS_CODE_ERROR"
    assert span.attributes["error.type"] == "step_failed"
    assert span.attributes["http.response.status_code"] == (200 if stream else 500)
    assert span.attributes["gen_ai.response.finish_reasons"] == ["error"] * n
    assert span.attributes["langfuse.observation.level"] == "ERROR"
    assert stages_of(within) == STAGES


def test_an_engine_that_died_told_no_stages(text: TextAssets) -> None:
    config = EngineConfig(model_path=Path("scripted"), backend="scripted")
    with receiving_at_once() as receiver, ThreadPoolExecutor(1) as pool:
        engine = ProcessEngine.start(config, program=PROGRAM)
        server = Server(text, config, handle=engine, tracing=TracingConfig(endpoint=receiver.url))
        answer = pool.submit(Traced(server, receiver).chat, "died", max_tokens=4000)
        wait_until(lambda: server.engine.num_live == 1)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        assert answer.result().status_code == 503
        span, within = receiver.request("died")
        server.stop()
    assert (span.status, span.attributes["error.type"]) == ("STATUS_CODE_ERROR", "engine_died")
    assert [one.name for one in within] == ["tokenize"]


def test_a_refusal_is_no_error_of_the_servers(traced: Traced) -> None:
    for request_id, body, code in (
        ("unknown", {"nobody_knows": CANARY}, "unknown_field"),
        ("model", {"model": CANARY}, "model_not_found"),
        ("hot", {"temperature": 700}, "invalid_value"),
        ("long", {"messages": [{"role": "user", "content": CANARY * 20_000}]}, "context_length_exceeded"),
    ):
        status = traced.chat(request_id, **body).status_code
        span, within = traced.request(request_id)
        assert (span.name, span.status) == ("chat test", "STATUS_CODE_UNSET")
        assert span.attributes["error.type"] == code
        assert span.attributes["http.response.status_code"] == status
        assert not stages_of(within)


def test_only_requests_that_generate_are_traced(start: Start) -> None:
    with receiving_at_once() as receiver:
        server = start(tracing=TracingConfig(endpoint=receiver.url), api_keys=("a-secret-key",))
        traced, headers = Traced(server, receiver), {"x-api-key": "a-secret-key"}
        server.says("ok")
        for path in ("/livez", "/readyz", "/health", "/metrics", "/v1/models", "/openapi.json", "/v1/chat/completions"):
            server.http.get(path, headers=headers)
        for path in ("/tokenize", "/apply-template", "/v1/messages/count_tokens", "/v1/nothing"):
            server.http.post(path, headers=headers, json={"model": "test", "messages": server.messages})
        assert traced.chat("stranger").status_code == 401
        assert traced.chat("mine", headers).status_code == 200
        traced.request("mine")
        assert [one.name for one in receiver.spans if not one.parent_id] == ["chat test"]


def test_lines_of_a_batch_are_traced(start: Start, tmp_path: Path) -> None:
    with receiving_at_once() as receiver:
        server = start(tracing=TracingConfig(endpoint=receiver.url), state_dir=tmp_path)
        wait_until_open(server)
        server.says("ok")
        batch = ended(server, submit(server, [line(f"line {n}", prompt=server.hi, max_tokens=n) for n in (1, 2)]))
        assert batch.status == "completed"
        for number in (1, 2):
            span = receiver.named(lambda one, n=number: one.attributes.get("gen_ai.request.max_tokens") == n)
            assert stages_of(receiver.within(span)) == STAGES
            assert span.attributes["freehold.service_class"] == "batch"
            assert "server.address" not in span.attributes
