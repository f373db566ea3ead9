"""A stream that has nothing to say yet says that it is still there."""

import json
import threading

import pytest
from tests.server.running import Server

from freehold.backends.script import Gate
from freehold.serve import reply


@pytest.mark.parametrize("num_silences", [0, 3])
def test_silence_is_broken(server: Server, monkeypatch: pytest.MonkeyPatch, num_silences: int) -> None:
    monkeypatch.setattr(reply, "HEARTBEAT_S", 0.05)
    gate = threading.Event()
    server.says("before", Gate(gate), " after")
    comments, texts = 0, []
    if not num_silences:
        gate.set()
    body = {"messages": server.messages, "stream": True}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith(":"):
                comments += 1
                if comments == num_silences:
                    gate.set()
            elif line.startswith("data: {"):
                texts += [choice["delta"].get("content", "") for choice in json.loads(line[6:])["choices"]]
    assert "".join(texts) == "before after"
    assert comments >= num_silences
    assert line in {"", "data: [DONE]"}


def test_the_official_client_doesnt_mind(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "HEARTBEAT_S", 0.01)
    gate = threading.Event()
    server.says("a", Gate(gate), "b")
    threading.Timer(0.2, gate.set).start()
    stream = server.openai.chat.completions.create(model="test", messages=server.messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "ab"
