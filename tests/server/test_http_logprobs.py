"""Log probabilities on both surfaces, streamed and whole, against what the scripted backend makes up."""

import math
from typing import Any

import pytest
from tests.server.running import Server, Start
from tests.server.streams import chunks

HALVES = "語🙂"
"""Characters that the default model's tokenizer spells in several tokens."""


def chat_content(server: Server, stream: bool, **fields: Any) -> list[list[dict[str, Any]]]:
    """Entries of ``logprobs.content`` of each choice, and checks that the text comes with them."""
    if not stream:
        choices = server.chat(logprobs=True, **fields).json()["choices"]
        return [choice["logprobs"]["content"] for choice in choices]
    contents: dict[int, list[dict[str, Any]]] = {}
    for part in chunks(server.chat(logprobs=True, stream=True, **fields)):
        for choice in part["choices"]:
            content = contents.setdefault(choice["index"], [])
            if choice["logprobs"]:
                content += choice["logprobs"]["content"]
    return [contents[index] for index in sorted(contents)]


def joined_bytes(content: list[dict[str, Any]]) -> bytes:
    return b"".join(bytes(entry["bytes"] or []) for entry in content)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_top", [0, 1, 20])
def test_chat_has_an_entry_for_each_token_with_exact_bytes(server: Server, stream: bool, num_top: int) -> None:  # lp-03
    answer = f"naïve {HALVES} text"
    ids = server.says(answer)
    (content,) = chat_content(server, stream, top_logprobs=num_top)
    assert len(content) == len(ids)
    assert joined_bytes(content) == answer.encode()
    for entry, token_id in zip(content, ids, strict=True):
        assert set(entry) == {"token", "bytes", "logprob", "top_logprobs"}
        assert len(entry["top_logprobs"]) == num_top
        raw = server.tokenizer.token_bytes(token_id)
        assert entry["bytes"] == (list(raw) or None)
        assert entry["token"] == (raw.decode("utf-8", "backslashreplace") if raw else "<|im_end|>")
        assert entry["logprob"] < 0
        places = [other["logprob"] for other in entry["top_logprobs"]]
        assert places == sorted(places, reverse=True)
        same = [other for other in entry["top_logprobs"] if other["token"] == entry["token"]]
        assert all(other["logprob"] == entry["logprob"] for other in same)
        assert all(set(other) == {"token", "bytes", "logprob"} for other in entry["top_logprobs"])


def test_stream_and_whole_have_the_same_entries(server: Server) -> None:
    server.says(f"one {HALVES} STOP and more")
    for fields in ({}, {"n": 3}, {"stop": "STOP"}, {"max_tokens": 3}, {"stop": "STOP", "min_tokens": 50}):
        whole = chat_content(server, False, top_logprobs=3, **fields)
        assert chat_content(server, True, top_logprobs=3, **fields) == whole
        assert len(whole) == fields.get("n", 1)


def test_entries_are_cut_where_the_ids_are(server: Server) -> None:
    server.says("one two STOP and more")
    choice = server.chat(logprobs=True, stop="STOP", return_token_ids=True).json()["choices"][0]
    assert choice["message"]["content"] == "one two "
    assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
    assert joined_bytes(choice["logprobs"]["content"]).decode().startswith("one two STOP")


@pytest.mark.parametrize(
    "fields", [{}, {"logprobs": False}, {"logprobs": None}, {"logprobs": False, "top_logprobs": 0}]
)
def test_nothing_is_told_unasked(server: Server, fields: dict[str, Any]) -> None:
    body = server.chat(**fields).json()
    assert body["choices"][0]["logprobs"] is None
    assert "prompt_logprobs" not in body
    fields = {name: value for name, value in fields.items() if name != "top_logprobs"}
    assert server.complete(**fields).json()["choices"][0]["logprobs"] is None


def test_the_official_client_reads_them(server: Server) -> None:
    server.says("blue and wide")
    chat = server.openai.chat.completions.create(
        model="test", messages=server.messages, logprobs=True, top_logprobs=2, n=2
    )
    for choice in chat.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert bytes(b for entry in choice.logprobs.content for b in entry.bytes or []) == b"blue and wide"
        assert {len(entry.top_logprobs) for entry in choice.logprobs.content} == {2}
    text = server.openai.completions.create(model="test", prompt=server.hi, logprobs=2)
    logprobs = text.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert "".join(logprobs.tokens) == text.choices[0].text == "blue and wide"
    chat_parts = server.openai.chat.completions.create(
        model="test", messages=server.messages, logprobs=True, top_logprobs=2, stream=True
    )
    streamed = [
        entry
        for part in chat_parts
        for choice_part in part.choices
        if choice_part.logprobs
        for entry in choice_part.logprobs.content or []
    ]
    assert chat.choices[0].logprobs is not None
    assert streamed == chat.choices[0].logprobs.content
    text_parts = server.openai.completions.create(model="test", prompt=server.hi, logprobs=2, echo=True, stream=True)
    tokens = [token for part in text_parts for c in part.choices if c.logprobs for token in c.logprobs.tokens or []]
    assert "".join(tokens) == server.hi + "blue and wide"


def text_logprobs(server: Server, stream: bool, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """Text and joined ``logprobs`` of each choice."""
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    if not stream:
        choices = server.complete(**fields).json()["choices"]
        assert all(set(choice["logprobs"]) == set(names) for choice in choices)
        return [(choice["text"], choice["logprobs"]) for choice in choices]
    texts: dict[int, str] = {}
    joined: dict[int, dict[str, list[Any]]] = {}
    for part in chunks(server.complete(stream=True, **fields)):
        for choice in part["choices"]:
            index = choice["index"]
            texts[index] = texts.get(index, "") + choice["text"]
            mine = joined.setdefault(index, {name: [] for name in names})
            for name in names:
                mine[name] += (choice["logprobs"] or {name: []})[name]
    return [(texts[index], joined[index]) for index in sorted(texts)]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_tokens_has_empty_lists(server: Server, stream: bool) -> None:
    response = server.complete(max_tokens=0, logprobs=2, stream=stream)
    choice = chunks(response)[-1]["choices"][0] if stream else response.json()["choices"][0]
    assert choice["logprobs"] == {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_fills_the_context_can_be_scored(start: Start, stream: bool) -> None:
    server = start(engine={"max_model_len": 64})
    ask = {"echo": True, "logprobs": 1, "max_tokens": 0}
    for prompt in ([40 + n for n in range(64)], [[40 + n for n in range(64)], [7] * 64]):
        for _, logprobs in text_logprobs(server, stream, prompt=prompt, **ask):
            assert len(logprobs["token_logprobs"]) == 64
            assert None not in logprobs["token_logprobs"][1:]
    text = " word" * 64
    assert len(server.tokenizer.encode(text)) == 64
    assert len(text_logprobs(server, stream, prompt=text, **ask)[0][1]["tokens"]) == 64
    for fields in ({**ask, "max_tokens": 1}, {**ask, "logprobs": None}, {**ask, "echo": False}):
        refused = server.complete(prompt=[7] * 64, **fields)
        assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert server.complete(prompt=[7] * 65, **ask).json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("num_top", [0, 1, 5])
@pytest.mark.parametrize("form", ["text", "ids"])
def test_completions_tokens_are_pieces_of_the_text(
    server: Server, stream: bool, echo: bool, num_top: int, form: str
) -> None:  # lp-06
    answer = f" naïve {HALVES} text"
    ids = server.says(answer)
    text = f"{server.hi}: é{HALVES}\n\n {HALVES}!"
    prompt_ids = server.tokenizer.encode(text)
    prompt = text if form == "text" else prompt_ids
    ((whole, logprobs),) = text_logprobs(server, stream, prompt=prompt, echo=echo, logprobs=num_top, max_tokens=100)
    assert whole == (text if echo else "") + answer
    assert len(logprobs["tokens"]) == len(ids) + (len(prompt_ids) if echo else 0)
    assert "".join(logprobs["tokens"]) == whole
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert whole[offset:].startswith(token)
    scores = list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True))
    if echo:
        assert scores.pop(0)[1:] == (None, None)
    for token, logprob, top in scores:
        assert top[token] == logprob < 0
        assert max(num_top, 1) <= len(top) <= num_top + 1


@pytest.mark.parametrize(
    "fields", [{}, {"n": 2}, {"max_tokens": 0}, {"stop": "STOP"}, {"echo": False}, {"prompt": [[40, 41, 42], [50]]}]
)
def test_completions_stream_what_they_say_whole(server: Server, fields: dict[str, Any]) -> None:
    server.says(f" one {HALVES} STOP and more")
    asked = {"echo": True, "logprobs": 3, "max_tokens": 50, **fields}
    assert text_logprobs(server, True, **asked) == text_logprobs(server, False, **asked)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt_length", [1, 2, 700])
def test_a_prompt_is_scored_without_an_answer(server: Server, stream: bool, prompt_length: int) -> None:  # lp-04
    """What lm-eval asks of a server: more than a step's budget, too."""
    prompt = [40 + n % 900 for n in range(prompt_length)]
    ((text, logprobs),) = text_logprobs(server, stream, prompt=prompt, echo=True, logprobs=1, max_tokens=0)
    assert text == server.tokenizer.decode(prompt)
    assert [score is None for score in logprobs["token_logprobs"]] == [True] + [False] * (prompt_length - 1)
    if not stream:
        body = server.complete(prompt=prompt, echo=True, logprobs=1, max_tokens=0, return_token_ids=True).json()
        assert body["usage"]["completion_tokens"] == 0
        assert body["usage"]["total_tokens"] == prompt_length
        assert (body["choices"][0]["finish_reason"], body["choices"][0]["token_ids"]) == ("length", [])


def test_no_token_may_be_wanted_of_a_completion_alone(server: Server) -> None:
    server.says("never said")
    choice = server.complete(max_tokens=0).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]) == ("", "length", None)
    choice = server.complete(max_tokens=0, echo=True).json()["choices"][0]
    assert choice["text"] == server.hi


def test_a_prompt_of_half_a_character_goes_on_in_the_answer(server: Server) -> None:
    char = "語".encode()
    by_bytes = {server.tokenizer.token_bytes(i): i for i in range(server.tokenizer.vocab_size)}
    server.says(by_bytes[char[2:]], " and on")
    prompt = [*server.tokenizer.encode(server.hi), by_bytes[char[:1]], by_bytes[char[1:2]]]
    for stream in (False, True):
        ((text, logprobs),) = text_logprobs(server, stream, prompt=prompt, echo=True, logprobs=0)
        assert text == server.hi + "語 and on" == "".join(logprobs["tokens"])


@pytest.mark.parametrize("surface", ["chat", "completions"])
@pytest.mark.parametrize("num_top", [0, 1, 20])
def test_prompt_logprobs_as_vllm_has_them(server: Server, surface: str, num_top: int) -> None:
    server.says("ok")
    ask = server.chat if surface == "chat" else server.complete
    body = ask(prompt_logprobs=num_top, return_token_ids=True).json()
    of_prompt = body if surface == "chat" else body["choices"][0]
    first, *scores = of_prompt["prompt_logprobs"]
    ids = of_prompt["prompt_token_ids"]
    assert first is None
    assert len(scores) == len(ids) - 1
    for score, token_id in zip(scores, ids[1:], strict=True):
        assert num_top <= len(score) <= num_top + 1
        assert set(score[str(token_id)]) == {"logprob", "rank", "decoded_token"}
        ranks = sorted(entry["rank"] for entry in score.values())
        assert ranks[:num_top] == list(range(1, num_top + 1))
        best = sorted(score.values(), key=lambda entry: entry["rank"])
        assert [entry["logprob"] for entry in best] == sorted((e["logprob"] for e in best), reverse=True)
    streamed = chunks(ask(prompt_logprobs=num_top, stream=True))
    found = [
        told
        for part in streamed
        for told in (part.get("prompt_logprobs"), *(choice.get("prompt_logprobs") for choice in part["choices"]))
        if told
    ]
    assert found == [of_prompt["prompt_logprobs"]]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("logprobs", [None, 0, 3])
@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0},
        {"top_k": 1},
        {"top_p": 0.1, "min_p": 0.5},
        {"temperature": 2, "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.5},
        {"logit_bias": {"5": -100}, "min_tokens": 2},
        {"n": 2, "prompt_logprobs": 2, "stop": "x"},
    ],
)
def test_every_combination_is_answered(
    server: Server, echo: bool, logprobs: int | None, sampling: dict[str, Any]
) -> None:  # lp-07
    server.says("ok")
    body = server.complete(echo=echo, logprobs=logprobs, **sampling)
    assert body.status_code == 200, body.text
    for choice in body.json()["choices"]:
        assert (choice["logprobs"] is None) == (logprobs is None)
        for score in (choice["logprobs"] or {"token_logprobs": []})["token_logprobs"]:
            assert score is None or math.isfinite(score)


def test_what_would_take_too_much_memory_is_refused(server: Server) -> None:
    prompt = [[40] * 400] * 128
    response = server.complete(prompt=prompt, prompt_logprobs=20, max_tokens=1)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"
    assert str(400 * 128 * 21) in response.json()["error"]["message"]
    limits = server.http.get("/v1/models/test").json()["limits"]
    assert limits["prompt_logprobs_per_request"] < 400 * 128 * 21
