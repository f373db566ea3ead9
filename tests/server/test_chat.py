"""Chats, as the official client sees them."""

from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.running import Server, Start
from tests.server.streams import chunks, fold_chat, plain_chat


def streamed(server: Server, **fields: Any) -> list[dict[str, Any]]:
    return fold_chat(server.chat(stream=True, return_token_ids=True, stream_options={"include_usage": True}, **fields))


def whole(server: Server, **fields: Any) -> list[dict[str, Any]]:
    return plain_chat(server.chat(return_token_ids=True, **fields))


def test_answer(server: Server) -> None:
    ids = server.says("The sky is blue.")
    answer = server.openai.chat.completions.create(model="test", messages=server.messages)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "The sky is blue."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(ids)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + len(ids)
    assert answer.system_fingerprint == server.engine.info.fingerprint


def test_stream(server: Server) -> None:
    server.says("The sky is blue.")
    parts = list(server.openai.chat.completions.create(model="test", messages=server.messages, stream=True))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "The sky is blue."
    assert parts[-1].choices[0].finish_reason == "stop"
    assert "usage" not in server.chat(stream=True).text, "absent unless asked for"


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 3}, {"n": 3}, {"stop": "sky"}, {"stop": ["blue", " is"]}])
def test_stream_equals_plain(server: Server, fields: dict[str, Any]) -> None:
    server.says("The sky is blue, they say: 🦜 and 日本語.")
    assert streamed(server, **fields) == whole(server, **fields)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(st.one_of(st.integers(0, 400), st.integers(0, 49151)), max_size=24),
    stop=st.lists(st.text(alphabet="aeionst é🦜", min_size=1, max_size=3), max_size=4),
    max_tokens=st.one_of(st.none(), st.integers(1, 30)),
    n=st.integers(1, 3),
)
def test_stream_equals_plain_for_any_ids(
    server: Server, ids: list[int], stop: list[str], max_tokens: int | None, n: int
) -> None:
    server.says(*ids)
    fields = {"stop": stop, "max_tokens": max_tokens, "n": n}
    choices = streamed(server, **fields)
    assert choices == whole(server, **fields)
    for choice in choices:
        assert not any(string in choice["content"] for string in stop)
        assert choice["finish_reason"] in {"stop", "length"}
        assert len(choice["token_ids"]) <= (max_tokens or 10**9)
    assert choices[0]["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in choices)


def byte_ids(server: Server, text: str) -> list[int]:
    """One token for each byte of the text."""
    by_bytes = {server.tokenizer.token_bytes(i): i for i in range(server.tokenizer.vocab_size)}
    return [by_bytes[bytes([byte])] for byte in text.encode()]


@pytest.mark.parametrize("char", ["🦜", "日", "é", "𝛼", "👩‍👩‍👧"])
def test_characters_spread_over_tokens_arrive_whole(server: Server, char: str) -> None:  # tok-01
    server.says("a", *byte_ids(server, char), "b", *byte_ids(server, char))
    contents = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks(server.chat(stream=True))]
    assert not any("\ufffd" in content for content in contents)
    assert "".join(contents) == f"a{char}b{char}"


@pytest.mark.parametrize("pieces", [["ABC", "DEF", "G", "HI", "J"], ["ABCD", "EFGHIJ"], ["ABCDEFGHIJKL"]])
def test_nothing_of_a_stop_string_is_streamed(server: Server, pieces: list[str]) -> None:  # stop-01
    server.says(*pieces)
    choice = streamed(server, stop="DEFGHIJ")[0]
    assert (choice["content"], choice["finish_reason"]) == ("ABC", "stop")


def test_text_held_for_a_stop_string_comes_at_the_end(server: Server) -> None:  # stop-03
    server.says("ABC", "DEF")
    assert streamed(server, stop="DEFG")[0]["content"] == "ABCDEF"


def test_only_beginnings_of_stop_strings_are_held(server: Server) -> None:
    ids = server.says("one two three four")
    parts = chunks(server.chat(stream=True, stop="zzzzzzzzzzzzzzzz"))
    contents = [chunk["choices"][0]["delta"].get("content") for chunk in parts]
    assert len([content for content in contents if content]) == len(ids) - 1, "each token is sent at once"


def test_stop_token_ids_and_ignore_eos(server: Server) -> None:
    ids = server.says("one two three")
    choice = whole(server, stop_token_ids=[ids[1]])[0]
    assert (choice["token_ids"], choice["finish_reason"]) == (ids[:2], "stop")
    choice = whole(server, ignore_eos=True, max_tokens=len(ids) + 2)[0]
    assert (choice["token_ids"], choice["finish_reason"]) == (ids + ids[:2], "length")


def test_usage_of_several_choices(server: Server) -> None:  # use-01
    ids = server.says("one two three")
    prompt = server.chat().json()["usage"]["prompt_tokens"]
    usage = streamed(server, n=3)[0]["usage"]
    assert usage["prompt_tokens"] == prompt
    assert usage["completion_tokens"] == 3 * len(ids)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_limit(server: Server, name: str) -> None:
    server.says("one two three four")
    choice = whole(server, **{name: 2})[0]
    assert (len(choice["token_ids"]), choice["finish_reason"]) == (2, "length")
    refused = server.chat(**{name: 0})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
    assert server.chat(max_tokens=2, max_completion_tokens=3).json()["error"]["param"] == "max_completion_tokens"


def test_absent_and_null_limits_mean_the_rest_of_the_context(start: Start) -> None:
    """in-06, in-08."""
    server = start(engine={"max_model_len": 64})
    server.says("word", ends=False)
    for fields in ({}, {"max_tokens": None}, {"max_completion_tokens": None}, {"max_tokens": 1000}):
        choice = whole(server, **fields)[0]
        assert choice["finish_reason"] == "length"
        assert choice["usage"]["total_tokens"] == 64


def test_seed_is_told_and_used(server: Server) -> None:
    drawn = server.chat().headers["x-seed"]
    assert drawn != server.chat().headers["x-seed"]
    assert int(drawn) < 2**53
    assert server.chat(seed=2**63).headers["x-seed"] == str(2**63)
    assert server.chat(seed=0, stream=True).headers["x-seed"] == "0"


def test_request_id(server: Server) -> None:
    assert server.chat().headers["x-request-id"].startswith("req-")
    body = {"model": "test", "messages": server.messages}
    for given_id, is_kept in (("my-id_1.2", True), ("a b", False), ("x" * 65, False), ("", False)):
        response = server.http.post("/v1/chat/completions", json=body, headers={"x-request-id": given_id})
        assert (response.headers["x-request-id"] == given_id) == is_kept


def test_unknown_model_is_not_found(server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match="'other'") as caught:
        server.openai.chat.completions.create(model="other", messages=server.messages)
    assert caught.value.code == "model_not_found"
    assert server.http.post("/v1/chat/completions", json={"messages": server.messages}).status_code == 200, (
        "the only model"
    )


def test_a_stream_tells_its_usage_all_along_if_asked(server: Server) -> None:
    """vLLM's field, which GuideLLM and others send: every chunk tells how much was used so far."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {"stream": True, "n": 2, "max_tokens": 6, "return_token_ids": True, "stream_options": options}
    for stream in (server.chat(**asked), server.complete(prompt="One, two", **asked)):
        *parts, last = chunks(stream)
        so_far = 0
        for part in parts:
            so_far += sum(len(choice.get("token_ids", [])) for choice in part["choices"])
            usage = part["usage"]
            if so_far == 0 and usage is None:
                continue  # nothing is generated yet
            assert usage["completion_tokens"] == so_far
            assert usage["prompt_tokens"] == last["usage"]["prompt_tokens"]
            assert usage["total_tokens"] == usage["prompt_tokens"] + so_far
        assert so_far == last["usage"]["completion_tokens"] > 1
    only = list(chunks(server.chat(stream=True, max_tokens=6, stream_options={"continuous_usage_stats": True})))
    assert all("usage" not in part for part in only), "without include_usage it asks for nothing, as in vLLM"
