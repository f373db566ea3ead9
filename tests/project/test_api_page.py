"""docs/api.md lists what the server has."""

import re
from pathlib import Path

from freehold.serve.endpoints import ENDPOINTS
from freehold.serve.messages.schema import MessagesRequest
from freehold.serve.schema import ChatRequest, CompletionRequest

PAGE = (Path(__file__).parents[2] / "docs/api.md").read_text()


def test_every_endpoint_is_listed() -> None:
    listed = set(re.findall(r"`((?:GET|POST|DELETE) /[^`]*)`", PAGE.partition("## ")[0]))
    served = {f"{endpoint.method} {endpoint.template}" for endpoint in ENDPOINTS}
    assert listed == served


def test_every_field_that_does_nothing_is_listed() -> None:
    section = PAGE.partition("## Fields that do nothing")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| (`/[^|]*) \| (`[^|]*) \|$", section, re.MULTILINE))
    fields = [set(re.findall(r"`([^`]*)`", cell)) for cell in listed.values()]
    assert fields == [set(ChatRequest.ignored), set(MessagesRequest.ignored)]
    assert CompletionRequest.ignored == ChatRequest.ignored
    others = {endpoint.body for endpoint in ENDPOINTS if endpoint.body} - {
        ChatRequest,
        CompletionRequest,
        MessagesRequest,
    }
    assert not any(body.ignored for body in others)
