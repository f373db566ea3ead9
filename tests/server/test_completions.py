"""Continuing texts and token ids."""

from typing import Any

import pytest
from tests.server.running import Server, Start
from tests.server.streams import chunks, lasting


def fold(server: Server, **fields: Any) -> list[dict[str, Any]]:
    """Choices of a streamed completion, joined."""
    *parts, last = chunks(
        server.complete(stream=True, return_token_ids=True, stream_options={"include_usage": True}, **fields)
    )
    choices: dict[int, dict[str, Any]] = {}
    for part in parts:
        assert part["usage"] is None
        for piece in part["choices"]:
            new = {
                "text": "",
                "token_ids": [],
                "finish_reason": None,
                "prompt_token_ids": piece.get("prompt_token_ids"),
            }
            choice = choices.setdefault(piece["index"], new)
            assert choice["finish_reason"] is None, "nothing comes after the end"
            choice["text"] += piece["text"]
            choice["token_ids"] += piece.get("token_ids", [])
            choice["finish_reason"] = piece["finish_reason"]
    assert last["choices"] == []
    return [{**choices[index], "usage": lasting(last["usage"])} for index in sorted(choices)]


def whole(server: Server, **fields: Any) -> list[dict[str, Any]]:
    """Choices of a plain completion, in the same form."""
    response = server.complete(return_token_ids=True, **fields)
    assert response.status_code == 200, response.text
    body = response.json()
    keys = ("text", "token_ids", "finish_reason", "prompt_token_ids")
    return [{**{key: choice[key] for key in keys}, "usage": lasting(body["usage"])} for choice in body["choices"]]


def test_text_prompt(server: Server) -> None:
    ids = server.says(" blue and wide.")
    answer = server.openai.completions.create(model="test", prompt=server.hi)
    assert answer.object == "text_completion"
    assert answer.choices[0].text == " blue and wide."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (
        len(server.tokenizer.encode(server.hi)),
        len(ids),
    )


def test_default_length_is_sixteen(server: Server) -> None:  # in-06
    server.says("word", ends=False)
    for fields in ({}, {"max_tokens": None}):
        choice = whole(server, **fields)[0]
        assert (len(choice["token_ids"]), choice["finish_reason"]) == (16, "length")


@pytest.mark.parametrize("form", ["text", "ids", "texts", "lists", "mixed"])
@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"echo": True}, {"stop": "wide"}, {"max_tokens": 2}])
def test_forms_of_prompts_and_stream_equals_plain(server: Server, form: str, fields: dict[str, Any]) -> None:
    server.says(" blue and wide.")
    texts = [server.hi, f"{server.hi} again"]
    ids = [server.tokenizer.encode(text) for text in texts]
    prompt: Any = {"text": texts[0], "ids": ids[0], "texts": texts, "lists": ids, "mixed": [texts[0], ids[1]]}[form]
    expected = ids[:1] if form in {"text", "ids"} else ids
    n = fields.get("n", 1)
    choices = whole(server, prompt=prompt, **fields)
    assert choices == fold(server, prompt=prompt, **fields)
    assert [choice["prompt_token_ids"] for choice in choices] == [list_ for list_ in expected for _ in range(n)]
    assert choices[0]["usage"]["prompt_tokens"] == sum(map(len, expected))
    assert choices[0]["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in choices)
    if fields.get("echo"):
        assert [choice["text"] for choice in choices] == [f"{text} blue and wide." for text in texts[: len(expected)]]


def test_prompt_that_ends_within_a_character(server: Server) -> None:  # tok-02
    char = "語".encode()
    by_bytes = {server.tokenizer.token_bytes(i): i for i in range(server.tokenizer.vocab_size)}
    head = [by_bytes[char[:1]], by_bytes[char[1:2]]]
    server.says(by_bytes[char[2:]], " and on")
    ids = server.tokenizer.encode(server.hi) + head
    parts = chunks(server.complete(prompt=ids, stream=True))
    text = "".join(choice["text"] for part in parts for choice in part["choices"])
    assert server.hi not in text
    assert text in {"語 and on", " and on"}
    assert whole(server, prompt=ids)[0]["text"] == text


def test_raw_prompts_follow_the_models_bos_rule(server: Server) -> None:
    ids = whole(server)[0]["prompt_token_ids"]
    starts_with_bos = server.tokenizer.add_bos
    assert ids[0] != server.tokenizer.bos_id or starts_with_bos


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        [[]],
        ["a", []],
        [1, "a"],
        [1, [2]],
        [-1],
        [49152 + 65536],
        [2**70],
        [[1, -1]],
        [1.5],
        [True],
        [None],
        {"a": 1},
        7,
        None,
        "",
        [""],
        [[[1]]],
        ["x"] * 129,
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_unusable_prompts(server: Server, prompt: Any, stream: bool) -> None:
    response = server.complete(prompt=prompt, stream=stream)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith("prompt")


@pytest.mark.parametrize("surface", ["chat", "completions"])
def test_one_limit_on_length(start: Start, surface: str) -> None:  # in-01, in-10
    server = start(engine={"max_model_len": 64})
    server.says("word", ends=False)
    assert server.http.get("/v1/models/test").json()["max_model_len"] == 64

    def ask(num_tokens: int, **fields: Any) -> Any:
        if surface == "completions":
            return server.complete(prompt=[40] * num_tokens, **fields)
        empty = server.chat(messages=[{"role": "user", "content": ""}], max_tokens=1).json()["usage"]["prompt_tokens"]
        messages = [{"role": "user", "content": " word" * (num_tokens - empty)}]
        return server.chat(messages=messages, **fields)

    for num_tokens in (62, 63):
        for fields in ({"max_tokens": 1}, {"max_tokens": 64 - num_tokens}, {"max_tokens": 500}):
            usage = ask(num_tokens, **fields).json()["usage"]
            assert usage["prompt_tokens"] == num_tokens
            assert usage["completion_tokens"] == min(fields["max_tokens"], 64 - num_tokens)
    for num_tokens in (64, 65, 128):
        for fields in ({"max_tokens": 1}, {}, {"max_tokens": None}, {"stream": True}):
            response = ask(num_tokens, **fields)
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
            assert str(num_tokens) in error["message"]
            assert "64" in error["message"]
