"""Tools, as the official client sees them: what may be called, what must be, and how an answer that calls ends."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from tests.server.conftest import starting
from tests.server.families import TEMPLATES, family
from tests.server.running import Server, Start
from tests.server.streams import chunks

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.files.vocabulary import TextAssets
from freehold.serve.chat.prompt import warn_of_hidden_tools
from freehold.serve.toolcalls.formats import PYTHON_TAG

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]
NAMED = {"type": "function", "function": {"name": "weather"}}
OSLO = '{"city": "Oslo", "days": 2}'
WRITTEN = {
    "hermes": f'<tool_call>\n{{"name": "weather", "arguments": {OSLO}}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n"
    "</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    "llama3_json": f'{{"name": "weather", "parameters": {OSLO}}}',
    "mistral": f"[TOOL_CALLS]weather[ARGS]{OSLO}",
    "mistral_old": f'[TOOL_CALLS][{{"name": "weather", "arguments": {OSLO}}}]',
    "json": f'{{"name": "weather", "arguments": {OSLO}}}',
}


CONTROLS = {"llama3_json": (PYTHON_TAG,)}
"""Tokens that models of a family have."""


@pytest.fixture(scope="module")
def servers(text: TextAssets) -> Iterator[dict[str, Server]]:
    """A server of each family."""
    with starting(text) as start:
        yield {
            name: start(family(text, TEMPLATES.get(name), controls=CONTROLS.get(name, ())), reasoning_parser="none")
            for name in WRITTEN
        }


@pytest.fixture(params=list(WRITTEN))
def caller(request: pytest.FixtureRequest, servers: dict[str, Server]) -> tuple[Server, str]:
    """A server, and a call as its model writes it."""
    return servers[request.param], WRITTEN[request.param]


@pytest.fixture
def hermes(servers: dict[str, Server]) -> Server:
    return servers["hermes"]


def streamed_choice(server: Server, **fields: Any) -> dict[str, Any]:
    """The one choice of a chat, folded from its stream as clients do it."""
    content, reasoning, calls, reason = "", "", list[dict[str, Any]](), None
    for chunk in chunks(server.chat(stream=True, **fields)):
        [choice] = chunk["choices"]
        delta = choice["delta"]
        content += delta.get("content") or ""
        reasoning += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls", []):
            if call["index"] == len(calls):
                calls.append({"id": call["id"], "type": call["type"], **call["function"]})
            else:
                assert "id" not in call
                assert "name" not in call["function"]
                calls[call["index"]]["arguments"] += call["function"]["arguments"]
        reason = choice["finish_reason"] or reason
    return {"content": content, "reasoning": reasoning, "calls": calls, "reason": reason}


def plain_choice(server: Server, **fields: Any) -> dict[str, Any]:
    response = server.chat(**fields)
    assert response.status_code == 200, response.text
    [choice] = response.json()["choices"]
    message = choice["message"]
    calls = [{"id": call["id"], "type": call["type"], **call["function"]} for call in message.get("tool_calls", [])]
    assert message["content"] is not None or calls
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning_content", ""),
        "calls": calls,
        "reason": choice["finish_reason"],
    }


def without_ids(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice whose calls have lost their ids, which must differ."""
    ids = [call["id"] for call in choice["calls"]]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    return {**choice, "calls": [(call["type"], call["name"], call["arguments"]) for call in choice["calls"]]}


def both(server: Server, **fields: Any) -> dict[str, Any]:
    """A choice that comes out the same streamed and whole."""
    plain = without_ids(plain_choice(server, **fields))
    assert without_ids(streamed_choice(server, **fields)) == plain
    return plain


def test_each_family_calls(caller: tuple[Server, str]) -> None:
    server, written = caller
    server.says(written)
    choice = both(server, tools=TOOLS)
    assert choice == {
        "content": "",
        "reasoning": "",
        "calls": [("function", "weather", OSLO)],
        "reason": "tool_calls",
    }


def test_without_tools_calls_are_text(caller: tuple[Server, str]) -> None:
    server, written = caller
    server.says(written)
    for fields in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": None}):
        choice = both(server, **fields)
        assert (choice["content"], choice["calls"], choice["reason"]) == (written, [], "stop")


CHOICES = [("auto", "tool_calls"), ("required", "tool_calls"), (NAMED, "stop"), (None, "tool_calls")]


@pytest.mark.parametrize(("choice", "reason"), CHOICES)
def test_finish_reasons(caller: tuple[Server, str], choice: Any, reason: str) -> None:  # tool-06
    server, written = caller
    server.says(written)
    fields = {"tools": TOOLS, **({} if choice is None else {"tool_choice": choice})}
    assert both(server, **fields)["reason"] == reason


def test_truncated_calls_end_with_length(caller: tuple[Server, str]) -> None:  # tool-03, tool-07
    server, written = caller
    ids = server.says("Well. " + written)
    step = 1 if written == WRITTEN["hermes"] else 3
    for limit in range(1, len(ids), step):
        choice = both(server, tools=TOOLS, max_tokens=limit)
        arguments = "".join(call[2] for call in choice["calls"])
        assert OSLO.startswith(arguments)
        assert choice["reason"] == "length"
        if not choice["calls"]:
            assert ("Well. " + written).startswith(choice["content"])


def test_an_answer_cannot_end_within_a_call(caller: tuple[Server, str]) -> None:
    server, written = caller
    server.says(written[: written.index("city") + len("city")])
    choice = both(server, tools=TOOLS, max_tokens=400)
    [(_, name, arguments)] = choice["calls"]
    assert name == "weather"
    assert arguments.startswith('{"city"')
    assert choice["reason"] == "length" or isinstance(json.loads(arguments)["city"], str)


def test_arguments_come_as_they_are_generated(hermes: Server) -> None:  # tool-08
    story = "once upon a time " * 100
    ids = hermes.says(f'<tool_call>{{"name": "weather", "arguments": {{"city": "{story}"}}}}</tool_call>')
    parts = chunks(hermes.chat(stream=True, tools=TOOLS))
    places = [index for index, part in enumerate(parts) if part["choices"][0]["delta"].get("tool_calls")]
    assert places[0] < 3, "nothing came while the call's head was read, then it comes at once"
    assert len(places) > 0.9 * len(ids) - 20


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45"])
def test_strings_between_tags_come_as_they_are_generated(servers: dict[str, Server], name: str) -> None:  # tool-08
    ids = servers[name].says(WRITTEN[name].replace("Oslo", "once upon a time " * 100))
    parts = chunks(servers[name].chat(stream=True, tools=TOOLS))
    places = [index for index, part in enumerate(parts) if part["choices"][0]["delta"].get("tool_calls")]
    assert places[0] < 3, "nothing came while the call's head was read, then it comes at once"
    assert len(places) > 0.8 * len(ids) - 20


def test_one_call_at_most(hermes: Server) -> None:
    ids = hermes.says(WRITTEN["hermes"] + "\n" + WRITTEN["hermes"] + " Done.")
    choice = both(hermes, tools=TOOLS)
    assert (len(choice["calls"]), choice["content"], choice["reason"]) == (2, "Done.", "tool_calls")
    choice = both(hermes, tools=TOOLS, parallel_tool_calls=False)
    assert (len(choice["calls"]), choice["content"], choice["reason"]) == (1, "", "tool_calls")
    used = hermes.chat(tools=TOOLS, parallel_tool_calls=False, return_token_ids=True).json()
    assert used["choices"][0]["token_ids"] == ids[: used["usage"]["completion_tokens"]]
    assert used["usage"]["completion_tokens"] < len(ids) / 2


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_forced_calls_match_the_schema_whatever_the_model_says(caller: tuple[Server, str], choice: Any) -> None:
    server, _ = caller
    server.says("I would rather tell a story about a fox.")
    answer = both(server, tools=TOOLS, tool_choice=choice, max_tokens=400, parallel_tool_calls=False)
    assert answer["content"] == ""
    [(_, name, arguments)] = answer["calls"]
    if answer["reason"] != "length":
        decoded = json.loads(arguments)
        assert isinstance(decoded, dict)
        if name == "weather":
            assert isinstance(decoded["city"], str)


STRICT = [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}, NOW]


@pytest.mark.parametrize("tools", [TOOLS, STRICT], ids=["tools", "strict"])
def test_calls_are_right_where_the_model_decides(caller: tuple[Server, str], tools: list[Any]) -> None:
    """A call with a wrong argument becomes one with a right one; what isn't a call is left as it is."""
    server, written = caller
    for text in ('{"name": "Bob", "days": []}', "A fox met {a} hare < [ 1", '["weather"]', '{"name": "weathervane"}'):
        server.says(text)
        assert both(server, tools=tools) == both(server)
    server.says(written)
    assert both(server, tools=tools)["calls"] == [("function", "weather", OSLO)]
    server.says("two".join(written.rsplit("2", 1)))
    choice = both(server, tools=tools, max_tokens=300, parallel_tool_calls=False)
    assert "two" not in choice["calls"][0][2]
    assert choice["reason"] == "length" or isinstance(json.loads(choice["calls"][0][2])["days"], int)


def test_an_answer_that_names_a_tool_is_a_call_if_it_begins_so(servers: dict[str, Server]) -> None:
    for name in ("json", "llama3_json"):
        servers[name].says('{"type": "function", "name": "weather", "days": 3}')
        assert [call[1] for call in both(servers[name], tools=TOOLS, max_tokens=200)["calls"]] == ["weather"]
        servers[name].says('See: {"name": "weather", "days": 3}')
        assert both(servers[name], tools=TOOLS)["content"] == 'See: {"name": "weather", "days": 3}'


def test_schemas_that_cannot_be_enforced_allow_any_object_where_the_model_decides(hermes: Server) -> None:
    """Theirs alone: other functions keep to their schemas."""
    lists = {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"minLength": 1}]}}}
    odd = {"type": "object", "properties": {"a": {"format": "no-such-format"}}}
    tools = [WEATHER]
    tools += [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in (("f", odd), ("g", lists))]
    for name in ("f", "g"):
        hermes.says(f'<tool_call>\n{{"name": "{name}", "arguments": {{"a": [1, "x"]}}}}\n</tool_call>')
        assert both(hermes, tools=tools)["calls"] == [("function", name, '{"a": [1, "x"]}')]
    hermes.says(WRITTEN["hermes"].replace('"days": 2', '"days": "two"'))
    assert '"two"' not in both(hermes, tools=tools, max_tokens=200)["calls"][0][2]
    strict = [{"type": "function", "function": {"name": "f", "parameters": odd, "strict": True}}]
    refused = hermes.chat(tools=strict)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_schema")
    assert refused.json()["error"]["param"].startswith("tools[0].function.parameters")


def test_a_call_or_the_form_where_both_are_asked_for(caller: tuple[Server, str]) -> None:
    server, written = caller
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    server.says('{"n": 5}')
    assert both(server, tools=TOOLS, response_format=form)["content"] == '{"n": 5}'
    server.says(written)
    assert both(server, tools=TOOLS, response_format=form)["calls"] == [("function", "weather", OSLO)]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": NAMED}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [*TOOLS, NOW]}, "tools[2].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f\n"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0]"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "f", "wild": 1}}]}, "tools[0].function.wild"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]}, "tools"),
        ({"tools": "weather"}, "tools"),
        ({"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)
def test_wrong_tools_are_refused_by_name(server: Server, fields: dict[str, Any], param: str) -> None:
    response = server.chat(**fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(param)
    assert "matching regex" not in response.text


def test_schemas_that_cannot_be_enforced_are_refused_where_they_would_be(server: Server) -> None:
    server.says("ok")
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "no-such-format"}}}
    tools = [NOW, {"type": "function", "function": {"name": "f", "parameters": schema}}]
    assert server.chat(tools=tools).status_code == 200
    response = server.chat(tools=tools, tool_choice="required")
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith("tools")


def test_auto_can_be_turned_off(start: Start) -> None:
    server = start(enable_auto_tool_choice=False)
    server.says("ok")
    for fields in ({}, {"tool_choice": "auto"}):
        response = server.chat(tools=TOOLS, **fields)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "tool_choice")
    assert server.chat(tools=TOOLS, tool_choice="required", max_tokens=200).status_code == 200
    assert server.chat(tools=TOOLS, tool_choice="none").status_code == 200


def test_a_parser_can_be_chosen(start: Start, text: TextAssets) -> None:
    server = start(family(text, TEMPLATES["llama3_json"]), tool_call_parser="hermes")
    server.says(WRITTEN["hermes"])
    assert both(server, tools=TOOLS)["reason"] == "tool_calls"


def test_a_template_that_shows_no_tools_is_refused_them(start: Start, text: TextAssets) -> None:
    server = start(text, tool_call_parser="hermes")
    response = server.chat(tools=TOOLS)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tools")
    assert "--tool-call-parser json" in response.json()["error"]["message"]


def test_markup_that_is_control_tokens(start: Start, text: TextAssets) -> None:
    server = start(family(text, TEMPLATES["mistral"], controls=("[TOOL_CALLS]", "[ARGS]")))
    controls = {literal: token.token_id for literal, token in server.tokenizer.vocabulary.controls.items()}
    server.says("Well. ", controls["[TOOL_CALLS]"], "weather", controls["[ARGS]"], OSLO)
    choice = both(server, tools=TOOLS)
    assert (choice["content"], choice["calls"]) == ("Well.", [("function", "weather", OSLO)])
    forced = server.chat(tools=TOOLS, tool_choice="required", return_token_ids=True, max_tokens=50).json()["choices"][0]
    assert forced["token_ids"][0] == controls["[TOOL_CALLS]"]
    assert len(forced["message"]["tool_calls"][0]["id"]) == 9
    server.says(controls["[TOOL_CALLS]"], " nothing")
    assert both(server, tools=TOOLS, max_tokens=200)["calls"], "what opens a call is followed by one"


HISTORY = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": OSLO}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
]


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45"])
def test_history_is_written_between_tags(servers: dict[str, Server], name: str) -> None:
    prompt = servers[name].post("/apply-template", messages=HISTORY, tools=TOOLS).json()["prompt"]
    assert WRITTEN[name] in prompt
    assert "<|im_start|>tool\nrain<|im_end|>" in prompt


def test_history_is_written_by_the_template(hermes: Server) -> None:
    prompt = hermes.post("/apply-template", messages=HISTORY, tools=TOOLS).json()["prompt"]
    assert WRITTEN["hermes"].replace(OSLO, '{"city": "Oslo", "days": 2}') in prompt
    assert "<|im_start|>tool\nrain<|im_end|>" in prompt
    assert '"name": "now"' in prompt.split("<|im_end|>")[0]


def test_history_without_a_template_for_it_is_told_in_words(server: Server) -> None:
    prompt = server.post("/apply-template", messages=HISTORY, tools=TOOLS).json()["prompt"]
    assert '{"name": "weather", "arguments": {"city":"Oslo","days":2}}<|im_end|>' in prompt
    assert "<|im_start|>user\nResult of weather:\nrain<|im_end|>" in prompt
    assert prompt.count('"name":"now"') == 1
    system = prompt.split("<|im_end|>")[0]
    assert system.startswith("<|im_start|>system\nYou can call these functions:")
    asked = [{"role": "system", "content": "Be brief."}, *HISTORY]
    assert "Be brief.\n\nYou can call" in server.post("/apply-template", messages=asked, tools=TOOLS).json()["prompt"]


def test_templates_that_take_no_system_message_have_tools_in_the_users(start: Start, text: TextAssets) -> None:
    template = "{%- for m in messages -%}{%- if m.role == 'system' -%}{{ raise_exception('no system') }}{%- endif -%}"
    server = start(family(text, template + "<{{ m.role }}>{{ m.content }}{%- endfor -%}"))
    prompt = server.post("/apply-template", messages=HISTORY[:1], tools=TOOLS).json()["prompt"]
    assert prompt.startswith("<user>You can call these functions:")
    assert prompt.endswith("\n\nWeather?")
    refused = server.post("/apply-template", messages=[{"role": "system", "content": "x"}], tools=TOOLS)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "template_refused")


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm45"])
def test_official_client_streams_and_parses(servers: dict[str, Server], name: str) -> None:
    server = servers[name]
    server.says("Let me see. " + WRITTEN[name])
    with server.openai.chat.completions.stream(model="test", messages=server.messages, tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    assert "content.delta" in kinds
    message = final.choices[0].message
    assert message.content == "Let me see."
    assert message.tool_calls is not None
    assert (message.tool_calls[0].function.name, message.tool_calls[0].function.arguments) == ("weather", OSLO)
    weather = pydantic.create_model("Weather", city=(str, ...), days=(int, ...))
    strict = openai.pydantic_function_tool(weather, name="weather")
    parsed = server.openai.chat.completions.parse(model="test", messages=server.messages, tools=[strict])
    assert parsed.choices[0].message.tool_calls is not None
    assert parsed.choices[0].message.tool_calls[0].function.parsed_arguments == weather(city="Oslo", days=2)


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_the_real_model_calls_with_valid_arguments(
    start: Start, smollm2_path: Path, choice: Any, temperature: float
) -> None:
    server = start(handle=Engine.start(EngineConfig(model_path=smollm2_path, max_model_len=1024)))
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo for two days?"}]
    asked: dict[str, Any] = {
        "model": "test", "messages": messages, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False,
        "max_tokens": 300, "temperature": temperature, "seed": 5,
    }  # fmt: skip
    answer = server.openai.chat.completions.create(**asked)
    [call] = answer.choices[0].message.tool_calls
    if answer.choices[0].finish_reason != "length":
        arguments = json.loads(call.function.arguments)
        assert set(arguments) <= ({"city", "days"} if call.function.name == "weather" else set())
        assert call.function.name == "now" or isinstance(arguments["city"], str)
    with server.openai.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion().choices[0]
    [same] = streamed.message.tool_calls or []
    assert (same.function.name, same.function.arguments) == (call.function.name, call.function.arguments)
    assert streamed.finish_reason == answer.choices[0].finish_reason


@pytest.mark.parametrize(
    ("template", "parser", "warns"),
    [
        (None, "glm45", True), (None, "hermes", True), (None, "json", False), (None, "auto", False),
        ("hermes", "hermes", False), ("hermes", "auto", False),
    ],
)  # fmt: skip
def test_a_parser_that_refuses_all_tools_is_told_at_the_start(
    start: Start, text: TextAssets, caplog: pytest.LogCaptureFixture, template: str | None, parser: Any, warns: bool
) -> None:
    server = start(family(text, TEMPLATES[template]) if template else text, tool_call_parser=parser)
    warn_of_hidden_tools(server.service)
    warnings = [record.getMessage() for record in caplog.records if record.name == "freehold.serve.chat.prompt"]
    assert len(warnings) == warns
    assert all(f"--tool-call-parser {parser} needs" in warning for warning in warnings)
    assert server.chat(tools=TOOLS).status_code == (400 if warns else 200)
