"""Sampling parameters: every bound, every type, and what reaches the engine."""

import math
from typing import Any

import pytest

from freehold.errors import RequestError
from freehold.grammar.constraint import Choice, JsonObject, JsonSchema, Lark, Regex
from freehold.text.params import SamplingParams, context_room

VOCAB = 100
ACCEPTED: dict[str, list[Any]] = {
    "temperature": [0, 0.0, 1e-9, 0.7, 1, 2, 100.0],
    "top_k": [-1, 0, 1, VOCAB + 1, 2**31 - 1],
    "top_p": [0, 0.0, 0.5, 1, 1.0],
    "min_p": [0, 0.05, 1.0],
    "seed": [None, 0, 1, 2**63, 2**64 - 1],
    "n": [1, 16],
    "max_tokens": [None, 0, 1, 2**31 - 1],
    "min_tokens": [0, 1, 2**31 - 1],
    "stop": ["x", [], ["a", "b", "c", "d"], ("a",), "é" * 128],
    "stop_token_ids": [[], [0], (0, VOCAB - 1), [5] * 256],
    "ignore_eos": [True, False],
    "presence_penalty": [-2, -0.5, 0, 2.0],
    "frequency_penalty": [-2.0, 0.0, 1e-9, 2],
    "repetition_penalty": [0.01, 1, 1.0, 100.0],
    "logit_bias": [{}, {0: -100, VOCAB - 1: 100.0}, {5: 0}, dict.fromkeys(range(VOCAB), 0.5)],
    "allowed_token_ids": [None, [0], (0, VOCAB - 1), {5, 6}, [7] * 65536],
    "logprobs": [None, 0, 20],
    "prompt_logprobs": [None, 0, 20],
    "structured_outputs": [None, JsonObject(), JsonSchema(True), Regex("a"), Choice(["a"]), Lark('start: "a"')],
}
REFUSED: dict[str, list[Any]] = {
    "temperature": [-1, -0.0001, 100.1, math.nan, math.inf, -math.inf, "1", None, True, [1]],
    "top_k": [-2, 2**31, 2**63, 1.0, 1.5, "1", None, True],
    "top_p": [-0.1, 1.0001, math.nan, math.inf, "0.5", None, False],
    "min_p": [-0.1, 1.0001, math.nan, "0", None, True],
    "seed": [-1, 2**64, 1.5, "1", True],
    "n": [0, -1, 17, 2**31, 1.0, None, True],
    "min_tokens": [-1, 2**31, 1.5, "1", True, None],
    "max_tokens": [-1, 2**31, 2**63, 1.5, "1", True],
    "stop": ["", ["a", ""], ["a"] * 5, [1], [None], 1, None, {"a": 1}, "x" * 257, "é" * 129, ["a", "\ud800"]],
    "stop_token_ids": [[-1], [VOCAB], [2**63], [1.0], [True], ["1"], [None], 5, None, "12", [0] * 257],
    "ignore_eos": [1, 0, "true", None],
    "presence_penalty": [-2.1, 2.1, math.nan, math.inf, "1", None, True],
    "frequency_penalty": [-2.1, 2.1, math.nan, -math.inf, "1", None, False],
    "repetition_penalty": [0, 0.009, -1, 100.1, math.nan, math.inf, "1", None, True],
    "logit_bias": [
        *(None, [], "x", 5, [(1, 2)], {-1: 0}, {VOCAB: 0}, {"1": 0}, {1.0: 0}, {True: 0}, {None: 0}),
        *({1: 100.1}, {1: -100.1}, {1: math.nan}, {1: math.inf}, {1: "5"}, {1: None}, {1: True}),
        dict.fromkeys(range(1025), 1),
    ],
    "allowed_token_ids": [[], (), set(), [-1], [VOCAB], [1.0], [True], ["1"], [None], 5, "12", [0] * 65537],
    "logprobs": [-1, 21, 1.5, "1", True],
    "prompt_logprobs": [-1, 21, 1.5, "1", False],
    "structured_outputs": ["a", {}, {"type": "object"}, ["a"], 1, True],
}

HUGE = [10**400, -(10**400), 10**5000, [10**5000], {"a": 10**5000}]
"""Too large for a float, or even to be written out."""


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ACCEPTED.items() for value in values])
def test_accepted(field: str, value: Any) -> None:
    params = SamplingParams(**{field: value})
    params.validate(vocab_size=VOCAB)
    assert getattr(params, field) == value
    assert params.to_engine(eos_ids=[1], choice=0, fresh_seed=9, room=50).max_tokens <= 50


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in REFUSED.items() for value in values], ids=repr
)
def test_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=field) as caught:
        SamplingParams(**{field: value}).validate(vocab_size=VOCAB)
    assert caught.value.param == field
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("field", REFUSED)
def test_huge_integers_are_refused_by_name(field: str) -> None:
    for value in HUGE:
        with pytest.raises(RequestError, match=field) as caught:
            SamplingParams(**{field: value}).validate(vocab_size=VOCAB)
        assert len(str(caught.value)) < 500


def test_every_field_is_tested() -> None:
    assert set(ACCEPTED) == set(REFUSED) == set(SamplingParams.__struct_fields__)


def test_engine_form() -> None:
    params = SamplingParams(
        temperature=0.5, top_k=-1, top_p=0, min_p=0.1, seed=7, max_tokens=20, stop_token_ids=[3], stop=["x"]
    )
    sampling = params.to_engine(eos_ids=[1, 2], choice=4, fresh_seed=9, room=50)
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.5, 0, 0.0, 0.1)
    assert (sampling.seed, sampling.choice, sampling.max_tokens) == (7, 4, 20)
    assert sampling.stop_ids == {1, 2, 3}


def test_what_changes_logits_reaches_the_engine_in_its_form() -> None:
    params = SamplingParams(
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=2,
        logit_bias={9: 1, 3: -100},
        allowed_token_ids=[8, 3, 8],
        logprobs=2,
        prompt_logprobs=0,
        min_tokens=4,
    )
    sampling = params.to_engine(eos_ids=[], choice=0, fresh_seed=0, room=50)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (1.0, -1.0, 2.0)
    assert sampling.logit_bias == ((3, -100.0), (9, 1.0))
    assert sampling.allowed_ids == (3, 8)
    assert (sampling.num_logprobs, sampling.num_prompt_logprobs, sampling.min_tokens) == (2, 0, 4)


def test_an_answer_that_may_not_end_is_not_longer_than_may_be() -> None:
    with pytest.raises(RequestError, match="min_tokens is 5 and max_tokens 4") as caught:
        SamplingParams(min_tokens=5, max_tokens=4).validate(vocab_size=VOCAB)
    assert caught.value.param == "min_tokens"
    sampling = SamplingParams(min_tokens=60).to_engine(eos_ids=[], choice=0, fresh_seed=0, room=50)
    assert (sampling.min_tokens, sampling.max_tokens) == (50, 50), "both are cut to the context"


def test_parameters_that_allow_no_token_are_refused() -> None:
    params = SamplingParams(min_tokens=1, allowed_token_ids=[1, 2], stop_token_ids=[2])
    with pytest.raises(RequestError) as caught:
        params.to_engine(eos_ids=[1], choice=0, fresh_seed=0, room=50)
    assert caught.value.param == "allowed_token_ids"
    params.to_engine(eos_ids=[], choice=0, fresh_seed=0, room=50)


def test_wanting_no_token_samples_one_that_is_dropped_later() -> None:
    assert SamplingParams(max_tokens=0).to_engine(eos_ids=[], choice=0, fresh_seed=0, room=50).max_tokens == 1


def test_ignoring_eos_keeps_the_users_own_stops() -> None:
    assert SamplingParams(ignore_eos=True, stop_token_ids=[3]).stop_ids([1, 2]) == {3}


@pytest.mark.parametrize(("asked", "given"), [(None, 50), (1, 1), (50, 50), (51, 50)])
def test_max_tokens_is_cut_to_the_room(asked: int | None, given: int) -> None:
    sampling = SamplingParams(max_tokens=asked).to_engine(eos_ids=[], choice=0, fresh_seed=0, room=50)
    assert sampling.max_tokens == given


def test_a_missing_seed_is_the_fresh_one() -> None:
    assert SamplingParams().to_engine(eos_ids=[], choice=0, fresh_seed=99, room=1).seed == 99


@pytest.mark.parametrize(("temperature", "given"), [(0, 0.0), (9.9e-6, 0.0), (1e-5, 1e-5)])
def test_tiny_temperatures_are_greedy(temperature: float, given: float) -> None:
    sampling = SamplingParams(temperature=temperature).to_engine(eos_ids=[], choice=0, fresh_seed=0, room=1)
    assert sampling.temperature == given


def test_stop_may_be_one_string() -> None:
    assert SamplingParams(stop="ab").stop_strings == ("ab",)
    assert SamplingParams(stop=["a", "b"]).stop_strings == ("a", "b")


@pytest.mark.parametrize("prompt", [0, 1, 98, 99])
def test_room(prompt: int) -> None:
    assert context_room(prompt, 100, param="prompt") == 100 - prompt


@pytest.mark.parametrize("prompt", [100, 101, 10**9])
def test_no_room_names_both_numbers(prompt: int) -> None:
    with pytest.raises(RequestError, match=rf"{prompt}.*100") as caught:
        context_room(prompt, 100, param="messages")
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")
