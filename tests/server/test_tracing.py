"""Traces of requests, as a receiver of OTLP has them."""

from collections.abc import Iterator

import pytest
from tests.server.otlp_receiver import Receiver, receiving
from tests.server.running import Start

from freehold.config import TracingConfig


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_a_span_with_its_stages(start: Start, receiver: Receiver, stream: bool) -> None:
    server = start(tracing=TracingConfig(endpoint=receiver.url))
    server.says("a few words")
    answer = server.chat(stream=stream, temperature=0, max_tokens=7)
    assert answer.status_code == 200
    span, within = receiver.request()
    assert (span.name, span.status, span.parent_id) == ("chat test", "STATUS_CODE_UNSET", "")
    assert [one.name for one in within] == ["tokenize", "queue", "prefill", "decode"]
    moments = [span.begun_s, *(moment for one in within for moment in (one.begun_s, one.ended_s)), span.ended_s]
    assert moments == sorted(moments)
    assert span.attributes["gen_ai.request.max_tokens"] == 7
    assert span.attributes["gen_ai.usage.output_tokens"] == 4
