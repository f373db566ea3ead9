"""Asking the Messages API with the official client, streamed and whole."""

from typing import Any

import anthropic
from tests.server.running import Server

WEATHER: Any = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
NOW: Any = {"name": "now", "input_schema": {"type": "object", "properties": {}}}
TOOLS = [WEATHER, NOW]


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


OSLO = call("weather", '{"city": "Oslo", "days": 2}')
THOUGHT = "<think>\nThe user greets me.\n</think>\n\n"


_clients: dict[str, anthropic.Anthropic] = {}


def client(server: Server) -> anthropic.Anthropic:
    """The official client; one a server, as making one takes longer than a request."""
    if server.url not in _clients:
        made = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)
        _clients[server.url] = made
    return _clients[server.url]


def close_clients() -> None:
    """Close the connections of all clients that were made."""
    for made in _clients.values():
        made.close()
    _clients.clear()


def asked(server: Server, **fields: Any) -> Any:
    return {"model": "test", "max_tokens": 500, "messages": server.messages, **fields}


def create(server: Server, **fields: Any) -> anthropic.types.Message:
    message: anthropic.types.Message = client(server).messages.create(**asked(server, **fields))
    return message


def stream(server: Server, **fields: Any) -> anthropic.types.Message:
    """The message that the client makes of a stream, whose events are well-formed."""
    check_events(list(client(server).messages.create(**asked(server, **fields), stream=True)))
    with client(server).messages.stream(**asked(server, **fields)) as streamed:
        message: anthropic.types.Message = streamed.get_final_message()
    return message


def check_events(raw: list[Any]) -> None:
    assert [raw[0].type, raw[-2].type, raw[-1].type] == ["message_start", "message_delta", "message_stop"]
    start = raw[0].message
    assert (start.content, start.stop_reason, start.role) == ([], None, "assistant")
    assert start.usage.output_tokens == 0
    open_index, num_blocks = None, 0
    for event in raw[1:-2]:
        if event.type == "content_block_start":
            assert (open_index, event.index) == (None, num_blocks)
            open_index, num_blocks = event.index, num_blocks + 1
        elif event.type == "content_block_delta":
            assert event.index == open_index
        else:
            assert (event.type, event.index) == ("content_block_stop", open_index)
            open_index = None
    assert open_index is None


def lasting(message: anthropic.types.Message) -> dict[str, Any]:
    """What doesn't differ between two answers: ids aside, and what was reused of the prompt."""
    dumped = message.model_dump()
    usage = dumped.pop("usage")
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    ids = [block.pop("id") for block in dumped["content"] if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)
    for block in dumped["content"]:
        block.pop("parsed_output", None)
    counts = {"prompt": prompt, "output": usage["output_tokens"], "details": usage["output_tokens_details"]}
    return {**dumped, "id": None, **counts}


def both(server: Server, **fields: Any) -> anthropic.types.Message:
    """An answer that comes out the same streamed and whole."""
    message = create(server, **fields)
    assert lasting(stream(server, **fields)) == lasting(message)
    return message


def count(server: Server, **fields: Any) -> int:
    num: int = client(server).messages.count_tokens(model="test", **fields).input_tokens
    return num
