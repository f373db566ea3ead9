"""Whose trace a request becomes a part of, and whether it is traced at all, as W3C's headers say."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind
from tests.server.conftest import starting
from tests.server.running import Start
from tests.server.traced import Traced, receiving_at_once, stages_of

from freehold.config import TracingConfig
from freehold.files.vocabulary import TextAssets

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


@pytest.fixture(scope="module")
def traced(text: TextAssets) -> Iterator[Traced]:
    with receiving_at_once() as receiver, starting(text) as start:
        server = start(tracing=TracingConfig(endpoint=receiver.url))
        server.says("ok")
        yield Traced(server, receiver)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_a_part_of_its_agents_trace(traced: Traced, stream: bool) -> None:
    """An agent and its tool trace themselves with the official SDK; what they ask of the server stands among it."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=traced.receiver.url)))
    tracer = provider.get_tracer("agent")
    names = [f"{moment}-{stream}" for moment in ("plan", "sum")]
    with tracer.start_as_current_span("invoke_agent planner") as agent:
        calls = []
        for name in names:
            with tracer.start_as_current_span(f"chat {name}", kind=SpanKind.CLIENT) as call:
                headers: dict[str, str] = {}
                inject(headers)
                assert traced.chat(name, headers, stream=stream).status_code == 200
                calls.append(call)
            with tracer.start_as_current_span("execute_tool weather"):
                pass
    provider.shutdown()
    trace_id = f"{agent.get_span_context().trace_id:032x}"
    for name, call in zip(names, calls, strict=True):
        span, within = traced.request(name)
        sent = traced.receiver.named(lambda one, c=call: one.span_id == f"{c.get_span_context().span_id:016x}")
        assert (span.trace_id, span.parent_id, span.is_parent_remote) == (trace_id, sent.span_id, True)
        assert {one.trace_id for one in within} == {trace_id}
        assert stages_of(within) == ["queue", "prefill", "decode"]
        assert sent.begun_s <= span.begun_s < sent.ended_s, "the same clock, and the request is within what asked"
    in_trace = [one for one in traced.receiver.spans if one.trace_id == trace_id]
    roots = [one.name for one in in_trace if not one.parent_id]
    assert roots == ["invoke_agent planner"]
    assert len(in_trace) == 1 + 2 * (1 + 1 + 1 + 4)


def test_tracestate_is_passed_on(traced: Traced) -> None:
    traced.chat("state", {"traceparent": SAMPLED, "tracestate": "vendor=x,other=y"})
    span, within = traced.request("state")
    assert (span.trace_id, span.parent_id) == (TRACE, PARENT)
    assert {one.trace_state for one in (span, *within)} == {"vendor=x,other=y"}


NO_PARENTS = [
    "nonsense", "", "-", "---", "00", "00-", f"00-{TRACE}", f"00-{TRACE}-", f"00-{TRACE}-{PARENT}",
    f"00-{TRACE}-{PARENT}-",
    f"-{TRACE}-{PARENT}-01", f"0-{TRACE}-{PARENT}-01", f"000-{TRACE}-{PARENT}-01", f"zz-{TRACE}-{PARENT}-01",
    f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{'g' * 32}-{PARENT}-01",
    f"00-{TRACE}-{'g' * 16}-01", f"00-{TRACE[1:]}-{PARENT}-01", f"00-{TRACE}a-{PARENT}-01",
    f"00-{TRACE}-{PARENT[1:]}-01",
    f"00-{TRACE}-{PARENT}a-01", f"00-{TRACE}-{PARENT}-1", f"00-{TRACE}-{PARENT}-001", f"00-{TRACE}-{PARENT}-zz",
    f"00-{TRACE}-{PARENT}-01-more", f"00_{TRACE}_{PARENT}_01", f"00-{TRACE}-{PARENT}-01,00-{TRACE}-{PARENT}-01",
    f"00-{TRACE}--{PARENT}-01", f"00-{PARENT}-{TRACE}-01", f"00-{TRACE.upper()}x-{PARENT}-01",
    "00-" + "é" * 32 + f"-{PARENT}-01", "\xff" * 55, "x" * 8000,
]  # fmt: skip


@pytest.mark.parametrize("parent", NO_PARENTS, ids=range(len(NO_PARENTS)))
def test_a_parent_that_is_none_begins_a_trace(traced: Traced, parent: str) -> None:
    name = f"wrong-{len(parent)}-{hash(parent)}"
    assert traced.chat(name, {"traceparent": parent.encode("latin-1")}).status_code == 200  # type: ignore[dict-item]
    span, _ = traced.request(name)
    assert (span.parent_id, span.trace_id == TRACE) == ("", False)


@pytest.mark.parametrize("state", ["", "=", "a=b,a=c", "x" * 5000, ",".join(f"k{n}=v" for n in range(100)), "\xe9=1"])
def test_a_tracestate_that_is_none_leaves_the_parent(traced: Traced, state: str) -> None:
    name = f"state-{len(state)}-{hash(state)}"
    headers: Any = {"traceparent": SAMPLED, "tracestate": state.encode("latin-1")}
    assert traced.chat(name, headers).status_code == 200
    assert traced.request(name)[0].parent_id == PARENT


def test_of_two_parents_none_counts(traced: Traced) -> None:
    headers = [("traceparent", SAMPLED), ("traceparent", f"00-{TRACE[::-1]}-{PARENT}-01"), ("x-request-id", "twins")]
    body = {"model": "test", "messages": traced.server.messages}
    assert traced.server.http.post("/v1/chat/completions", json=body, headers=httpx.Headers(headers)).status_code == 200
    assert traced.request("twins")[0].parent_id == ""


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_who_brings_a_trace_decides_and_else_the_ratio_does(start: Start, ratio: float) -> None:
    with receiving_at_once() as receiver:
        traced = Traced(start(tracing=TracingConfig(endpoint=receiver.url, ratio=ratio)), receiver)
        traced.server.says("ok")
        for name, headers in (("plain", {}), ("no", {"traceparent": UNSAMPLED}), ("yes", {"traceparent": SAMPLED})):
            assert traced.chat(name, headers).status_code == 200
        traced.request("yes")
        found = {one.attributes["gen_ai.request.id"] for one in receiver.spans if one.kind == "SPAN_KIND_SERVER"}
        assert found == ({"plain", "yes"} if ratio else {"yes"})


def test_a_ratio_takes_about_its_share(start: Start) -> None:
    with receiving_at_once() as receiver:
        server = start(tracing=TracingConfig(endpoint=receiver.url, ratio=0.5))
        traced = Traced(server, receiver)
        server.says("ok")
        for number in range(60):
            traced.complete(f"{number}", max_tokens=1)
        traced.chat("last", {"traceparent": SAMPLED})
        traced.request("last")
        num_taken = sum(one.name == "text_completion test" for one in receiver.spans)
        assert 10 < num_taken < 50, "one in a million servers draws more unevenly"
