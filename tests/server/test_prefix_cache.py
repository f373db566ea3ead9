"""What usage says about the prefix cache, and who shares it."""

from typing import Any

import pytest
from tests.server.running import Start
from tests.server.streams import chunks

LONG = "The sea is wide and the night is long. " * 20


def cached(body: dict[str, Any]) -> tuple[int, int]:
    """Tokens that were reused, and tokens of the prompt."""
    usage = body["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def test_the_next_turn_reuses_the_last(start: Start) -> None:
    server = start()
    answer = server.says("It is wide.")
    messages = [{"role": "user", "content": LONG + server.hi}]
    first = server.chat(messages=messages).json()
    assert cached(first)[0] == 0
    messages += [
        {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
        {"role": "user", "content": "And the night?"},
    ]
    num_cached, num_prompt = cached(server.chat(messages=messages).json())
    num_before = cached(first)[1] + len(answer) - 1
    assert num_before <= num_cached < num_prompt, "prompt and answer, all but the id that ended it"
    stream = server.chat(messages=messages, stream=True, stream_options={"include_usage": True})
    assert cached(chunks(stream)[-1])[0] == num_prompt - 1


def test_a_prompt_counts_once_whatever_n(start: Start) -> None:
    server = start()
    server.says("ok")
    num_cold, num_prompt = cached(server.complete(prompt=LONG, n=3, max_tokens=2).json())
    assert num_cold == 0, "the first answer computed it"
    assert cached(server.complete(prompt=LONG, n=3, max_tokens=2).json()) == (num_prompt - 1, num_prompt)
    both = server.complete(prompt=[LONG, LONG], max_tokens=2).json()
    assert cached(both) == (2 * (num_prompt - 1), 2 * num_prompt)


@pytest.mark.parametrize("surface", ["chat", "complete"])
def test_requests_share_only_with_the_same_salt(start: Start, surface: str) -> None:
    server = start()
    fields: dict[str, Any] = (
        {"prompt": LONG} if surface == "complete" else {"messages": [{"role": "user", "content": LONG}]}
    )
    ask = getattr(server, surface)
    for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}):
        num_cached, _ = cached(ask(**fields, **salt, max_tokens=2).json())
        assert num_cached == 0
        num_cached, num_prompt = cached(ask(**fields, **salt, max_tokens=2).json())
        assert num_cached == num_prompt - 1
    assert cached(ask(**fields, cache_salt=None, max_tokens=2).json())[0] > 0


def test_it_can_be_switched_off(start: Start) -> None:
    server = start(engine={"prefix_caching": False})
    server.says("ok")
    texts = set()
    for _ in range(2):
        body = server.complete(prompt=LONG, max_tokens=2).json()
        assert cached(body)[0] == 0
        texts.add(body["choices"][0]["text"])
    assert len(texts) == 1


def test_an_interrupted_answer_stays_reusable(start: Start) -> None:  # ab-04
    server = start()
    server.says("word " * 400, ends=False)
    prompt = LONG + server.hi
    with server.http.stream(
        "POST", "/v1/completions", json={"model": "test", "prompt": prompt, "stream": True, "max_tokens": 4000}
    ) as response:
        for number, _ in enumerate(response.iter_lines()):
            if number > 20:
                break
    num_cached, num_prompt = cached(server.complete(prompt=prompt, max_tokens=2).json())
    assert num_cached >= num_prompt - 1 - 32, "at least all full blocks, also while the abort is on its way"


def others(server: Any, first: int, num_prompts: int = 12) -> None:
    """Other prompts, more than the cache holds."""
    for number in range(num_prompts):
        server.complete(prompt=f"{first + number} and so on. " * 60, max_tokens=1)


SMALL = {"kv_cache_bytes": 2 << 20, "max_model_len": 1024}


@pytest.mark.parametrize(
    ("fields", "stays"),
    [
        ({}, False),
        ({"prompt_cache_key": "mine"}, True),
        ({"prompt_cache_retention": "24h"}, True),
        ({"prompt_cache_key": "mine", "prompt_cache_retention": "in_memory"}, True),
        ({"prompt_cache_key": None, "prompt_cache_retention": None}, False),
    ],
)
def test_a_cache_key_pins_the_prompt(start: Start, fields: dict[str, Any], stays: bool) -> None:
    server = start(engine=SMALL)
    server.says("ok")
    plain = server.complete(prompt=LONG, max_tokens=4, return_token_ids=True).json()
    others(server, 100)
    server.complete(prompt=LONG, max_tokens=4, **fields)
    others(server, 200)
    again = server.complete(prompt=LONG, max_tokens=4, return_token_ids=True).json()
    num_cached, num_prompt = cached(again)
    assert (num_cached > num_prompt - 33) is stays
    assert again["choices"][0]["token_ids"] == plain["choices"][0]["token_ids"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("prompt_cache_key", ""), ("prompt_cache_key", "x" * 257), ("prompt_cache_retention", "1h")],
)
def test_pins_that_make_no_sense_are_refused(server: Any, field: str, value: str) -> None:
    answer = server.complete(**{field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
