"""Faults that servers of this kind are known for, by the ids of the cases, where no other file has them."""

import itertools
import logging
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.server.conftest import starting
from tests.server.running import TIMEOUT_S, Server, Start
from tests.server.streams import fold_chat, plain_chat
from tests.server.test_key_limits import metrics
from tests.server.test_lifecycle import wait_until

from freehold.backends.script import NotFinite
from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.files.vocabulary import TextAssets
from freehold.text.template import ChatTemplate

CONTEXT = 64
COUNT = "Count from one to ten in words."
STRICT = """{%- for message in messages -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('Roles must alternate') }}{%- endif -%}
{{ message.content }}{%- endfor -%}"""


@pytest.fixture(scope="module")
def real(text: TextAssets, smollm2_path: Path) -> Iterator[Server]:
    """A server whose engine computes."""
    with starting(text) as start:
        yield start(handle=Engine.start(EngineConfig(model_path=smollm2_path, max_model_len=512)))


def completed(server: Server, prompt: Any, **fields: Any) -> list[list[int]]:
    """Ids of all choices."""
    response = server.complete(prompt=prompt, return_token_ids=True, **fields)
    assert response.status_code == 200, response.text
    return [choice["token_ids"] for choice in response.json()["choices"]]


def test_a_templates_refusal_is_sent_once(start: Start, text: TextAssets, caplog: pytest.LogCaptureFixture) -> None:
    """tpl-07: no server error, which clients would send again; the log tells what was refused."""
    caplog.set_level(logging.INFO)
    server = start(TextAssets(text.tokenizer, ChatTemplate(STRICT)))
    answers: list[Any] = []
    with openai.DefaultHttpxClient(event_hooks={"response": [answers.append]}, timeout=TIMEOUT_S) as http:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=3, http_client=http)
        with pytest.raises(openai.BadRequestError, match="Roles must alternate") as caught:
            client.chat.completions.create(model="test", messages=[{"role": "user", "content": "x"}] * 2)
    assert len(answers) == 1
    assert caught.value.type == "invalid_request_error"
    assert len(answers[0].content) < 300
    wait_until(lambda: "refused=template_refused field=messages" in caplog.text)


def test_choices_differ_and_end_one_by_one(real: Server) -> None:
    """seed-01: with a seed, each choice is drawn for itself, and a stream goes on until the last has ended."""
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": COUNT}],
        "n": 4,
        "seed": 7,
        "temperature": 1.0,
        "stop": ["o", "i"],
        "max_tokens": 24,
        "return_token_ids": True,
    }
    choices = plain_chat(real.chat(**fields))
    assert len({tuple(choice["token_ids"]) for choice in choices}) == 4
    assert len({len(choice["token_ids"]) for choice in choices}) > 1, "they end at different times"
    assert all(choice["finish_reason"] in {"stop", "length"} for choice in choices)
    assert plain_chat(real.chat(**fields)) == choices
    assert fold_chat(real.chat(stream=True, stream_options={"include_usage": True}, **fields)) == choices


def test_equal_prompts_have_equal_greedy_answers(real: Server) -> None:
    """seed-04: however many are computed at once."""
    (single,) = completed(real, COUNT, temperature=0, max_tokens=8)
    for count in (2, 3, 8, 17):
        assert completed(real, [COUNT] * count, temperature=0, max_tokens=8) == [single] * count


def test_filters_at_their_ends(real: Server) -> None:
    """sm-04: whatever the filters say, the likeliest token stays, and no ``top_k`` of 0 or less filters."""
    vocab_size = real.tokenizer.vocab_size
    drawing = {"temperature": 1.0, "seed": 3, "max_tokens": 6}
    (greedy,) = completed(real, COUNT, temperature=0, max_tokens=6)
    (free,) = completed(real, COUNT, **drawing)
    assert free != greedy
    for top_p, top_k, min_p in itertools.product((0, 1), (0, -1, 1, vocab_size + 1), (0, 1)):
        is_greedy = top_p == 0 or top_k == 1 or min_p == 1
        (ids,) = completed(real, COUNT, top_p=top_p, top_k=top_k, min_p=min_p, **drawing)
        assert ids == (greedy if is_greedy else free), (top_p, top_k, min_p)


@pytest.mark.parametrize("token_id", [-1, -49152, 2**31, 2**63])
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/completions", "prompt"),
        ("/v1/completions", "stop_token_ids"),
        ("/v1/completions", "allowed_token_ids"),
        ("/v1/completions", "logit_bias"),
        ("/v1/chat/completions", "stop_token_ids"),
        ("/v1/chat/completions", "allowed_token_ids"),
        ("/v1/chat/completions", "logit_bias"),
        ("/detokenize", "tokens"),
    ],
)
def test_ids_that_no_vocabulary_has(server: Server, path: str, field: str, token_id: int) -> None:
    """sm-09: no negative id counts from the end, and none ends the engine."""
    bodies: dict[str, dict[str, Any]] = {
        "/v1/completions": {"prompt": "x"},
        "/v1/chat/completions": {"messages": server.messages},
    }
    wrong: Any = {str(token_id): 1} if field == "logit_bias" else [40, token_id]
    response = server.post(path, **{**bodies.get(path, {}), field: wrong})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(field)
    assert server.chat().status_code == 200


@pytest.mark.parametrize(
    ("path", "extra"), [("/v1/chat/completions", {}), ("/v1/chat/completions", {"stream": True}), ("/v1/messages", {})]
)
def test_a_long_chat_is_not_cut(start: Start, path: str, extra: dict[str, Any]) -> None:
    """in-02: nothing is dropped from the front to make room; a chat that doesn't fit is refused."""
    server = start(engine={"max_model_len": CONTEXT})
    turns = [("user", "The password is swordfish."), ("assistant", "Noted."), ("user", "And so on. " * CONTEXT)]
    messages = [{"role": role, "content": content} for role, content in turns]
    response = server.post(path, messages=messages, max_tokens=1, **extra)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert str(CONTEXT) in response.json()["error"]["message"]
    assert server.post(path, messages=messages[:1], max_tokens=1, **extra).status_code == 200


@pytest.mark.parametrize("surface", ["chat", "completions"])
@pytest.mark.parametrize("num_prompt", [CONTEXT // 2, CONTEXT - 1, CONTEXT])
def test_no_max_tokens(start: Start, surface: str, num_prompt: int) -> None:
    """in-13: an answer without an end takes the rest of the context, or what completions give by default."""
    server = start(engine={"max_model_len": CONTEXT})
    server.says("word", ends=False)
    if surface == "completions":
        response = server.complete(prompt=[40] * num_prompt)
    else:
        empty = server.post("/tokenize", messages=[{"role": "user", "content": ""}]).json()["count"]
        response = server.chat(messages=[{"role": "user", "content": " word" * (num_prompt - empty)}])
    if num_prompt == CONTEXT:
        assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
        return
    body = response.json()
    room = CONTEXT - num_prompt
    assert body["usage"]["prompt_tokens"] == num_prompt
    assert body["usage"]["completion_tokens"] == (room if surface == "chat" else min(room, 16))
    assert body["choices"][0]["finish_reason"] == "length"


def test_a_nan_is_counted_and_others_go_on(start: Start) -> None:
    """dt-01: numbers that are not finite are an error of the request that met them."""
    server = start()
    server.says("!", NotFinite(), "!")
    ill = server.messages
    server.says("fine")
    well = server.messages
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda messages: server.chat(messages=messages), [ill, well] * 4))
    for failed in answers[::2]:
        assert (failed.status_code, failed.json()["error"]["code"]) == (500, "numeric_error")
    for answered in answers[1::2]:
        assert answered.json()["choices"][0]["message"]["content"] == "fine"
    counts = metrics(server)
    assert counts["freehold:requests_total", "failed"] == counts["freehold:requests_total", "completed"] == 4


def test_greedy_masks_among_random_draws(real: Server) -> None:
    """sm-03: however many tokens a mask forbids, and whoever else is in the batch, all numbers are finite."""
    shown = {"messages": [{"role": "user", "content": COUNT}], "logprobs": True, "top_logprobs": 20, "max_tokens": 6}
    kinds: list[dict[str, Any]] = [
        {"temperature": 0, "structured_outputs": {"choice": ["yes", "no"]}},
        {"temperature": 0, "allowed_token_ids": [40, 41]},
        {"temperature": 1.0, "seed": 1},
        {"temperature": 1.5, "seed": 2, "top_p": 0.5, "allowed_token_ids": [40]},
    ]

    def choice(fields: dict[str, Any]) -> Any:
        response = real.chat(**shown, **fields)
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]

    alone = [choice(fields) for fields in kinds]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(choice, kinds * 2)) == alone * 2
    for content in (one["logprobs"]["content"] for one in alone):
        assert content
        for entry in content:
            top = [other["logprob"] for other in entry["top_logprobs"]]
            assert all(math.isfinite(logprob) for logprob in [entry["logprob"], *top])
            assert 0 < sum(map(math.exp, top)) < 1 + 1e-6
    assert alone[0]["message"]["content"] in {"yes", "no"}
