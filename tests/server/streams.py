"""Reading server-sent events strictly, and folding streams into what a plain reply would say."""

import json
from typing import Any

import httpx


def events(response: httpx.Response) -> list[str]:
    """Data of each server-sent event of a finished response."""
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    blocks = response.text.split("\n\n")[:-1]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [block.removeprefix("data: ") for block in blocks]


def chunks(response: httpx.Response) -> list[dict[str, Any]]:
    """Events of a stream that went well."""
    assert response.status_code == 200, response.text
    data = events(response)
    assert data[-1] == "[DONE]"
    assert data.count("[DONE]") == 1
    parsed = [json.loads(event) for event in data[:-1]]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in parsed}) == 1
    return parsed


def lasting(usage: dict[str, Any]) -> dict[str, Any]:
    """The counts that don't depend on what was asked before: all but what was reused of the prompt."""
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert 0 <= cached < usage["prompt_tokens"], "the last token of a prompt is always computed"
    return {name: value for name, value in usage.items() if name != "prompt_tokens_details"}


def fold_chat(response: httpx.Response) -> list[dict[str, Any]]:
    """Choices of a chat streamed with ids and usage; checks the stream's form on the way."""
    *parts, last = chunks(response)
    choices: dict[int, dict[str, Any]] = {}
    for chunk in parts:
        assert chunk["usage"] is None
        for choice in chunk["choices"]:
            index, delta = choice["index"], choice["delta"]
            if index not in choices:
                assert delta == {"role": "assistant", "content": ""}, "the role comes first"
                choices[index] = {"content": "", "token_ids": [], "finish_reason": None}
                continue
            assert "role" not in delta
            assert choices[index]["finish_reason"] is None, "nothing comes after the end"
            choices[index]["content"] += delta.get("content", "")
            choices[index]["token_ids"] += choice.get("token_ids", [])
            choices[index]["finish_reason"] = choice["finish_reason"]
    assert last["choices"] == []
    return [{**choices[index], "usage": lasting(last["usage"])} for index in sorted(choices)]


def plain_chat(response: httpx.Response) -> list[dict[str, Any]]:
    """Choices of a plain chat, in the same form."""
    assert response.status_code == 200, response.text
    body = response.json()
    return [
        {
            "content": choice["message"]["content"],
            "token_ids": choice["token_ids"],
            "finish_reason": choice["finish_reason"],
            "usage": lasting(body["usage"]),
        }
        for choice in body["choices"]
    ]
