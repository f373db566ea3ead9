"""Structured output over HTTP, as the official client asks for it."""

import json
import time
from typing import Any

import openai
import pytest
from tests.server.running import Server
from tests.server.streams import fold_chat, plain_chat

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def answer(server: Server, **fields: Any) -> openai.types.chat.chat_completion.Choice:
    return server.openai.chat.completions.create(model="test", messages=server.messages, **fields).choices[0]


def text_of(server: Server, **fields: Any) -> str:
    choice = answer(server, **fields)
    assert choice.finish_reason == "stop"
    assert choice.message.content is not None
    return choice.message.content


def test_an_answer_that_follows_the_schema_is_left_alone(server: Server) -> None:
    said = '{"name": "Ada", "age": 36}'
    ids = server.says(said)
    whole = server.chat(response_format=JSON_SCHEMA, return_token_ids=True).json()["choices"][0]
    assert whole["message"]["content"] == said
    assert whole["token_ids"] == ids


def test_an_answer_that_does_not_is_kept_to_it(server: Server) -> None:
    server.says("Sure! Her name is Ada, and she is 36.")
    value = json.loads(text_of(server, response_format=JSON_SCHEMA, max_tokens=200))
    assert value.keys() == {"name", "age"}
    assert isinstance(value["age"], int)
    assert len(value["name"]) <= 10


def test_the_answer_ends_where_the_text_is_complete(server: Server) -> None:
    """js-11: nothing may follow, whatever the model would like."""
    server.says('{"name": "Ada", "age": 36}', *[server.tokenizer.encode("\n")[0]] * 50)
    assert text_of(server, response_format=JSON_SCHEMA).endswith("36}")


def test_white_space_is_bounded(server: Server) -> None:
    """js-11."""
    server.says("{", *[server.tokenizer.encode(" ")[0]] * 300)
    text = text_of(server, response_format=JSON_SCHEMA, max_tokens=500)
    assert max(len(gap) for gap in text.split('"')[0::2]) <= 30
    assert json.loads(text).keys() == {"name", "age"}


@pytest.mark.parametrize("escape", ["\\u12", "\\u27t", "\\uD83D", "\\uDE00", "\\x", "\n", "\t", "\0", "\x7f"])
def test_strings_hold_no_broken_escapes_and_no_control_characters(server: Server, escape: str) -> None:
    """js-09, js-10."""
    tokens = [server.tokenizer.encode(character)[0] for character in f'{{"name":"{escape}'] if escape.isascii() else []
    server.says(*tokens, '","age":1}')
    value = json.loads(text_of(server, response_format=JSON_SCHEMA, max_tokens=200))
    assert value.keys() == {"name", "age"}


def test_any_json_object(server: Server) -> None:
    server.says('{"a": [1, null]}')
    assert text_of(server, response_format={"type": "json_object"}) == '{"a": [1, null]}'
    server.says("{}, as you like")
    assert isinstance(json.loads(text_of(server, response_format={"type": "json_object"}, max_tokens=200)), dict)


def test_plain_text_is_no_constraint(server: Server) -> None:
    server.says("Anything.")
    assert text_of(server, response_format={"type": "text"}) == "Anything."


@pytest.mark.parametrize(
    ("outputs", "said", "expected"),
    [
        ({"json": SCHEMA}, '{"name":"A","age":1}', '{"name":"A","age":1}'),
        ({"json": json.dumps(SCHEMA)}, '{"name":"A","age":1}', '{"name":"A","age":1}'),
        ({"json_object": True}, '{"a":[1]}', '{"a":[1]}'),
        ({"regex": r"\d{3}-[a-z/]+"}, "123-a/b", "123-a/b"),
        ({"choice": ["yes", "no", 'quo"te\n']}, 'quo"te\n', 'quo"te\n'),
        ({"choice": ["yes"]}, "no", "yes"),
        ({"grammar": 'start: "a" NUMBER\nNUMBER: /[0-9]+/'}, "a42", "a42"),
        ({"grammar": 'start: "<" value ">"\nvalue: %json {"enum": ["x", 1]}'}, "<1>", "<1>"),
    ],
)
def test_structured_outputs(server: Server, outputs: dict[str, Any], said: str, expected: str) -> None:
    server.says(said)
    assert text_of(server, extra_body={"structured_outputs": outputs}) == expected
    completed = server.openai.completions.create(
        model="test", prompt=server.hi, extra_body={"structured_outputs": outputs}
    )
    assert completed.choices[0].text == expected


def test_completions_take_a_response_format(server: Server) -> None:
    server.says('{"name": "Ada", "age": 36}')
    body = server.complete(response_format=JSON_SCHEMA, max_tokens=50).json()
    assert json.loads(body["choices"][0]["text"]) == {"name": "Ada", "age": 36}


def test_streams_equal_plain_answers(server: Server) -> None:
    server.says('{"name": "Ada", "age": 36} and more')
    fields = {"response_format": JSON_SCHEMA, "n": 3, "logprobs": True, "top_logprobs": 20, "seed": 1}
    streamed = fold_chat(
        server.chat(stream=True, stream_options={"include_usage": True}, return_token_ids=True, **fields)
    )
    assert streamed == plain_chat(server.chat(return_token_ids=True, **fields))


def test_logprobs_of_masked_tokens_are_finite_json(server: Server) -> None:
    """lp-05: a single legal token, and top_logprobs of 20."""
    server.says("no")
    response = server.chat(structured_outputs={"choice": ["y"]}, logprobs=True, top_logprobs=20)
    [first, *_] = response.json()["choices"][0]["logprobs"]["content"]
    assert first["token"] == "y"
    assert len(first["top_logprobs"]) == 20
    assert all(-1e30 < entry["logprob"] <= 0 for entry in first["top_logprobs"])


def test_length_is_told_from_completion(server: Server) -> None:
    server.says('{"name": "Ada", "age": 36}')
    choice = answer(server, response_format=JSON_SCHEMA, max_tokens=3)
    assert choice.finish_reason == "length"


def test_stops_cut_an_answer_short(server: Server) -> None:
    server.says('{"name": "Ada", "age": 36}')
    choice = answer(server, response_format=JSON_SCHEMA, stop="Ada")
    assert (choice.finish_reason, choice.message.content) == ("stop", '{"name": "')


def test_min_tokens_keep_an_answer_going_where_it_may(server: Server) -> None:
    server.says("1")
    grown = {"regex": "[0-9]{1,30}"}
    assert len(text_of(server, extra_body={"structured_outputs": grown, "min_tokens": 5}, max_tokens=40)) >= 5
    server.says("yes")
    fixed = {"choice": ["yes"]}
    assert text_of(server, extra_body={"structured_outputs": fixed, "min_tokens": 20}, max_tokens=40) == "yes"


def test_every_token_border_within_a_character(server: Server) -> None:
    """js-16: tokens that are parts of characters."""
    options = ["🦜🦜", "日本語", "é"]
    for option in options:
        server.says(option)
        assert text_of(server, extra_body={"structured_outputs": {"choice": options}}) == option
    server.says("x")
    assert text_of(server, extra_body={"structured_outputs": {"regex": "[😀-😂]{2}"}}) in {
        first + second for first in "😀😁😂" for second in "😀😁😂"
    }
    server.says("x")
    assert json.loads(text_of(server, response_format=schema_format({"enum": ["🦜", "日本"]}))) in ("🦜", "日本")


def test_lengths_count_characters(server: Server) -> None:
    """js-18."""
    server.says('"' + "🦜é日" * 30)
    value = json.loads(text_of(server, response_format=schema_format({"type": "string", "maxLength": 40})))
    assert len(value) <= 40


def test_numbers_of_items_are_kept(server: Server) -> None:
    """js-01."""
    server.says('{"items": ["a", "b", "c", "d"]}')
    schema = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}},
        "required": ["items"],
        "additionalProperties": False,
    }
    assert len(json.loads(text_of(server, response_format=schema_format(schema), max_tokens=200))["items"]) == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"response_format": schema_format({"properties": {"a": {"not": {}}}})},
            "response_format.json_schema.schema.properties.a.not",
        ),
        (
            {"response_format": schema_format({"anyOf": [{}, {"uniqueItems": True}]})},
            "response_format.json_schema.schema.anyOf[1].uniqueItems",
        ),
        ({"response_format": schema_format({"pattern": r"(?=a)b"})}, "response_format.json_schema.schema.pattern"),
        ({"response_format": schema_format({"minItem": 3})}, "response_format.json_schema.schema.minItem"),
        ({"response_format": schema_format(False)}, "response_format.json_schema.schema"),
        ({"response_format": schema_format([])}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"xml": "a"}}, "structured_outputs.xml"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "(?=a)"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs.choice[0]"),
        ({"structured_outputs": {"grammar": "start"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"grammar": 'start: a\na: %json {"not": 1}'}}, "structured_outputs.grammar.not"),
        ({"structured_outputs": {"grammar": "start: a\na: %json {"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"choice": ["a"]}, "response_format": {"type": "json_object"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"]}, "ignore_eos": True}, "ignore_eos"),
        ({"structured_outputs": {"choice": ["a"]}, "allowed_token_ids": [5]}, "allowed_token_ids"),
        ({"structured_outputs": {"regex": ".*"}, "allowed_token_ids": [5], "stop_token_ids": [6]}, "allowed_token_ids"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(server: Server, fields: dict[str, Any], param: str) -> None:
    """js-03: never an answer without the constraint that was asked for."""
    for response in (server.chat(**fields), server.complete(**fields)):
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == param


def test_a_stream_for_which_no_token_is_left_ends_with_an_error_of_the_clients(server: Server) -> None:
    fields = {"structured_outputs": {"regex": "ab"}, "allowed_token_ids": server.tokenizer.encode("a")}
    with pytest.raises(openai.APIError) as caught:
        list(server.openai.completions.create(model="test", prompt="x", stream=True, extra_body=fields))
    assert (caught.value.type, caught.value.param) == ("invalid_request_error", "allowed_token_ids")


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


HOSTILE: dict[str, dict[str, Any]] = {
    "cycle of one": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "cycle of two": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
        "$ref": "#/$defs/a",
    },
    "cycle through the root": {"allOf": [{"$ref": "#"}]},
    "contains itself": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "many items": {"type": "array", "maxItems": 10**9},
    "many characters": {"type": "string", "maxLength": 10**9},
    "many properties": {"properties": {f"p{index}": {"type": "integer"} for index in range(3000)}},
    "huge number": {"type": "integer", "minimum": 10**30},
    "intersections": {"allOf": [{"type": "string", "pattern": f"{c}.{{3}}{d}"} for c in "abcdefgh" for d in "ghijkl"]},
    "many patterns": {"patternProperties": {f"a.*{index}": {} for index in range(300)}},
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_schema_is_refused_soon(server: Server, schema: dict[str, Any]) -> None:
    """js-06, T4."""
    server.chat(response_format=JSON_SCHEMA)  # the worker is there
    begun_s = time.monotonic()
    response = server.chat(response_format=schema_format(schema))
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith("response_format.json_schema.schema")
    assert time.monotonic() - begun_s < 5, "1 s on a machine with nothing else to do"
    server.says("fine")
    assert text_of(server) == "fine"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "((a{0,1000}){0,1000}){0,1000}$"},
        {"type": "string", "pattern": "(.*a){30}$"},
        {"type": "string", "pattern": "a.{30}$"},
        {"type": "array", "items": {"type": "number"}, "minItems": 10, "maxItems": 1000},
        {"type": "array", "items": {}, "maxItems": 1_000_000},
        {"enum": [f"value {index}" for index in range(500)]},
        {"type": "object", "properties": {f"p{index}": {} for index in range(64)}},
        {
            "$defs": {
                **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)},
                "d40": {"type": "object"},
            },
            "$ref": "#/$defs/d0",
        },
    ],
)
def test_what_looks_expensive_is_not(server: Server, schema: dict[str, Any]) -> None:
    """js-17: repetition is counted, not unrolled, and references are followed once."""
    server.says("x")
    begun_s = time.monotonic()
    response = server.chat(response_format=schema_format(schema), max_tokens=100)
    assert response.status_code == 200, response.text
    assert time.monotonic() - begun_s < 5, "1 s on a machine with nothing else to do"


def test_a_deep_schema_is_refused(server: Server) -> None:
    text = '{"items":' * 100_000 + "{}" + "}" * 100_000
    for fields in ({"structured_outputs": {"json": text}},):
        assert server.chat(**fields).status_code == 400
    assert server.chat(response_format=schema_format(_nested(80))).status_code == 400


def test_useful_recursion_works(server: Server) -> None:
    """js-06."""
    schema = {
        "$defs": {
            "tree": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
        },
        "$ref": "#/$defs/tree",
    }
    said = '{"kids": [{"kids": []}, {}]}'
    server.says(said)
    assert text_of(server, response_format=schema_format(schema)) == said


def test_pointers_lead_anywhere(server: Server) -> None:
    """js-13: into lists, and with ~0, ~1 and percent signs."""
    schema = {
        "$defs": {"a/b~c d": {"const": "found"}},
        "type": "object",
        "properties": {
            "left": {"anyOf": [{"const": "one"}, {"const": "two"}]},
            "right": {"$ref": "#/properties/left/anyOf/1"},
            "odd": {"$ref": "#/$defs/a~1b~0c%20d"},
        },
        "required": ["left", "right", "odd"],
        "additionalProperties": False,
    }
    server.says("x")
    value = json.loads(text_of(server, response_format=schema_format(schema), max_tokens=200))
    assert (value["right"], value["odd"]) == ("two", "found")


def test_large_sets_of_schemas_work_up_to_the_limit(server: Server) -> None:
    """js-04."""

    def tools(count: int) -> dict[str, Any]:
        def tool(index: int) -> dict[str, Any]:
            parameters = {f"parameter_{n}": {"type": "string", "description": "x" * 700} for n in range(10)}
            name = {"const": f"tool_{index}"}
            return {
                "type": "object",
                "properties": {"name": name, "arguments": {"type": "object", "properties": parameters}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }

        return {"anyOf": [tool(index) for index in range(count)]}

    schema = tools(60)
    assert len(json.dumps(schema)) > 400_000
    server.says('{"name": "tool_59", "arguments": {}}')
    assert text_of(server, response_format=schema_format(schema)) == '{"name": "tool_59", "arguments": {}}'
    large = {"enum": [f"{index} {'y' * 100}" for index in range(11_000)]}
    refused = server.chat(response_format=schema_format(large)).json()["error"]
    assert refused["code"] == "grammar_too_large"
    assert "1048576" in refused["message"]
