"""The tokenize family: exactly the ids that the model's own prompts have, and back."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.server.running import Server, Start
from tests.text_vocabularies import sentencepiece_tokenizer

from freehold.files.vocabulary import TextAssets
from freehold.serve.lanes import LONG_BYTES
from freehold.text.template import ChatTemplate

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße aus 東京 🦜"}]
TEXTS = [
    "",
    " ",
    "Hello world",
    "  two  spaces\n\n\ttab",
    "Grüße, 日本語 🦜👩‍👩‍👧",
    "<|im_end|>",
    "a\u0000b",
    "\ufeff",
    "x" * 5000,
]


def ok(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def tokenize(server: Server, **fields: Any) -> dict[str, Any]:
    return ok(server.post("/tokenize", **fields))


def detokenize(server: Server, tokens: list[int]) -> str:
    prompt: str = ok(server.post("/detokenize", tokens=tokens))["prompt"]
    return prompt


@pytest.fixture(scope="module")
def known(text: TextAssets) -> set[bytes]:
    """What tokens of the vocabulary add to a text."""
    return {text.tokenizer.token_bytes(token_id) for token_id in range(text.tokenizer.vocab_size)}


@pytest.fixture
def with_bos(start: Start) -> Server:
    """A server whose vocabulary begins its texts with BOS, and whose template writes it itself."""
    source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    template = ChatTemplate(source, special_tokens={"bos_token": "<s>"}, controls=["<s>"])
    return start(TextAssets(sentencepiece_tokenizer(), template))


@pytest.mark.parametrize("prompt", TEXTS, ids=lambda text: ascii(text)[:20])
def test_a_prompt_has_the_ids_that_completions_compute(server: Server, prompt: str) -> None:
    found = tokenize(server, prompt=prompt)
    assert found["tokens"] == server.tokenizer.encode(prompt)
    assert found["count"] == len(found["tokens"])
    assert found["max_model_len"] == server.engine.info.max_model_len
    assert found["token_strs"] is None
    if prompt:
        completion = ok(server.complete(prompt=prompt, return_token_ids=True, max_tokens=1))
        assert completion["choices"][0]["prompt_token_ids"] == found["tokens"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40))
def test_texts_come_back_as_they_were(server: Server, known: set[bytes], prompt: str) -> None:
    assume(all(bytes([byte]) in known for byte in prompt.encode()))  # this vocabulary lacks some bytes
    assert detokenize(server, tokenize(server, prompt=prompt)["tokens"]) == prompt


@pytest.mark.parametrize("fields", [{}, {"add_generation_prompt": False}, {"continue_final_message": True}])
def test_a_chat_has_the_ids_that_the_chat_computes(server: Server, fields: dict[str, Any]) -> None:
    chat = [*CHAT, {"role": "assistant", "content": "Well"}] if "continue_final_message" in fields else CHAT
    found = tokenize(server, messages=chat, **fields)
    answer = ok(server.chat(messages=chat, return_token_ids=True, max_tokens=1, **fields))
    assert found["tokens"] == answer["prompt_token_ids"]
    assert found["count"] == answer["usage"]["prompt_tokens"]


def test_the_template_applied_is_the_text_of_the_ids(server: Server) -> None:
    body = {"messages": CHAT, "temperature": 0.5, "stop": "x", "stream": True}
    prompt = ok(server.post("/apply-template", **body))["prompt"]
    assert prompt == detokenize(server, tokenize(server, messages=CHAT)["tokens"])
    assert prompt.endswith("<|im_start|>assistant\n")
    closed = ok(server.post("/apply-template", messages=CHAT, add_generation_prompt=False))["prompt"]
    assert closed.endswith("🦜<|im_end|>\n")


def test_variables_reach_the_template(start: Start, text: TextAssets) -> None:
    template = ChatTemplate("{{ messages[0].content }}{% if enable_thinking %} aloud{% endif %}")
    server = start(TextAssets(text.tokenizer, template))
    fields = {"messages": [{"role": "user", "content": "think"}], "chat_template_kwargs": {"enable_thinking": True}}
    assert ok(server.post("/apply-template", **fields))["prompt"] == "think aloud"
    assert tokenize(server, **fields)["tokens"] == server.tokenizer.encode("think aloud")


@pytest.mark.parametrize("prompt", TEXTS, ids=lambda text: ascii(text)[:20])
def test_token_strings_are_the_vocabularys(server: Server, prompt: str) -> None:
    found = tokenize(server, prompt=prompt, return_token_strs=True)
    assert found["token_strs"] == [server.tokenizer.vocabulary.spelled(token_id) for token_id in found["tokens"]]
    assert len(found["token_strs"]) == found["count"]


@pytest.mark.parametrize("prompt", TEXTS, ids=lambda text: ascii(text)[:20])
def test_texts_of_tokens_are_what_they_write(server: Server, with_bos: Server, prompt: str) -> None:
    """Whatever the vocabulary's spelling; together they are the text, bytes of a character apart included."""
    for each in (server, with_bos):
        found = tokenize(each, prompt=prompt, return_token_texts=True, add_special_tokens=False)
        texts = found["token_texts"]
        assert len(texts) == found["count"]
        raw = b"".join(each.tokenizer.token_bytes(token_id) for token_id in found["tokens"])
        assert "".join(texts) == raw.decode() or any("\\x" in text for text in texts)
        assert not any(mark in text for text in texts for mark in "Ġ▁" if mark not in prompt)
    assert "token_texts" not in tokenize(server, prompt=prompt)


@pytest.mark.parametrize(("wanted", "num_bos"), [(None, 1), (True, 1), (False, 0)])
def test_special_tokens_of_a_prompt(with_bos: Server, wanted: bool | None, num_bos: int) -> None:  # tok-10
    bare = with_bos.tokenizer.encode("the fox", add_bos=False)
    tokens = tokenize(with_bos, prompt="the fox", add_special_tokens=wanted)["tokens"]
    assert tokens == [1] * num_bos + bare
    assert detokenize(with_bos, tokens) == "<s>" * num_bos + " the fox" if num_bos else "the fox"


@pytest.mark.parametrize("wanted", [None, True, False])
def test_a_templates_bos_is_not_doubled(with_bos: Server, wanted: bool | None) -> None:  # tok-10
    tokens = tokenize(with_bos, messages=[{"role": "user", "content": "fox"}], add_special_tokens=wanted)["tokens"]
    assert (tokens[0], tokens.count(1)) == (1, 1)


def test_a_templates_missing_bos_is_added_if_asked_for(start: Start) -> None:
    server = start(TextAssets(sentencepiece_tokenizer(), ChatTemplate("{{ messages[0].content }}")))
    chat = [{"role": "user", "content": "fox"}]
    bare = tokenize(server, messages=chat)["tokens"]
    assert 1 not in bare
    assert tokenize(server, messages=chat, add_special_tokens=True)["tokens"] == [1, *bare]


def test_control_tokens_are_written_as_their_literals(server: Server) -> None:
    for literal, control in server.tokenizer.vocabulary.controls.items():
        assert detokenize(server, [control.token_id]) == literal
        assert control.token_id not in tokenize(server, prompt=f"a{literal}b")["tokens"], "a user's text stays text"


def test_bytes_that_are_no_text(server: Server) -> None:
    half = tokenize(server, prompt="𝛼")["tokens"][:-1]
    assert "\ufffd" in detokenize(server, half)
    assert detokenize(server, []) == ""


def test_a_text_may_be_longer_than_the_context(start: Start) -> None:
    server = start(engine={"max_model_len": 64})
    prompt = "lorem ipsum dolor " * (LONG_BYTES // 9)
    found = tokenize(server, prompt=prompt)
    assert found["tokens"] == server.tokenizer.encode(prompt)
    assert found["max_model_len"] == 64
    assert detokenize(server, found["tokens"]) == prompt


def test_what_a_client_needs_to_tokenize_by_itself(server: Server, text: TextAssets) -> None:
    info = ok(server.http.get("/tokenizer_info"))
    assert info["vocab_size"] == text.tokenizer.vocab_size == 49152
    assert info["model_max_length"] == server.engine.info.max_model_len
    assert (info["bos_token"], info["add_bos_token"]) == ("<|im_start|>", False)
    assert info["eos_token"] == "<|im_end|>"
    assert server.end_id in info["eos_token_ids"]
    assert set(info["additional_special_tokens"]) == set(text.tokenizer.vocabulary.controls)
    assert text.template is not None
    assert info["chat_template"] == text.template.sources["default"]


def test_a_model_without_template(start: Start, text: TextAssets) -> None:
    server = start(TextAssets(text.tokenizer, None))
    assert ok(server.http.get("/tokenizer_info"))["chat_template"] is None
    assert tokenize(server, prompt="Hi")["count"] == 1
    for path in ("/tokenize", "/apply-template"):
        refused = server.post(path, messages=CHAT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_chat_template")
