"""Servers whose requests are traced, and the receiver of their traces."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.server.otlp_receiver import Received, Receiver, receiving
from tests.server.running import Server

from freehold.serve.tracing import tracing


@dataclass(frozen=True)
class Traced:
    """A server, and the receiver of its traces."""

    server: Server
    receiver: Receiver

    def chat(self, request_id: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        return self.post("/v1/chat/completions", request_id, headers, **{"messages": self.server.messages, **fields})

    def complete(self, request_id: str, **fields: Any) -> httpx.Response:
        return self.post("/v1/completions", request_id, **{"prompt": self.server.hi, **fields})

    def post(self, path: str, request_id: str, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        """Ask, under a name by which its span is found."""
        named = {"x-request-id": request_id, **(headers or {})}
        return self.server.http.post(path, json={"model": "test", **body}, headers=named)

    def request(self, request_id: str) -> tuple[Received, list[Received]]:
        """The span of a request and those within, once they are there."""
        return self.receiver.request(request_id)


@contextmanager
def receiving_at_once() -> Iterator[Receiver]:
    """A receiver of traces that don't wait for others on their way."""
    with receiving() as receiver, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "LINGER_S", 0.01)
        yield receiver


def stages_of(within: list[Received], index: int = 0) -> list[str]:
    """Stages that one of a request's answers came to."""
    return [one.name for one in within if one.attributes.get("freehold.answer.index") == index]
