"""Native penalties, biases, masks and log probabilities against their definitions in numpy: every bit."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sampling import NO_IDS, PLAIN, native_id, shapes

from freehold import _native
from freehold.backends.base import RowSampling
from freehold.protocol import Logprobs
from freehold.sample.logprobs import logprobs_of
from freehold.sample.sampler import sample

SIZES = [1, 2, 15, 16, 17, 31, 32, 33, 600, 2049]
PENALTIES = [  # presence, frequency, repetition
    (0.0, 0.0, 1.0),
    (2.0, 0.0, 1.0),
    (0.0, -1.5, 1.0),
    (0.3, 0.7, 1.3),
    (-2.0, 2.0, 0.01),
    (1e20, -3e20, 1e-30),
    (0.1, 0.2, 1e30),
]
PICKS = [{}, {"temperature": 0.0}, {"top_k": 7, "temperature": 0.7}, {"top_p": 0.6}, {"min_p": 0.3}]


def random_mask(rng: np.random.Generator, size: int) -> np.ndarray:
    """A bit set with few members, many, or all; bits beyond the vocabulary mean nothing."""
    bits = rng.random(-(-size // 32) * 32) < rng.choice([0.02, 0.5, 1.0])
    bits[rng.integers(size)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


def random_rules(rng: np.random.Generator, size: int, penalties, pick) -> RowSampling:
    biased = np.unique(rng.integers(0, size, rng.integers(0, 5)))
    presence, frequency, repetition = penalties
    return replace(
        PLAIN,
        **pick,
        seed=int(rng.integers(2**63)),
        num_prompt_tokens=int(rng.integers(0, 40)),
        min_tokens=int(rng.integers(0, 40)),
        stop_ids=tuple(sorted({0, size - 1, size + 5, *rng.integers(0, size, 2).tolist()})),
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        logit_bias=tuple((int(i), float(rng.choice([-100, 100, 0.5, -0.0]))) for i in biased),
    )


@pytest.mark.parametrize("size", SIZES)
def test_every_adjustment_on_every_shape(isa, size) -> None:
    rng = np.random.default_rng(size)
    for (name, logits), penalties, pick in itertools.product(shapes(size).items(), PENALTIES, PICKS):
        rules = random_rules(rng, size, penalties, pick)
        pos = int(rng.integers(0, 80))
        context = rng.integers(0, size, pos).astype(np.int32)
        allowed = random_mask(rng, size) if rng.random() < 0.5 else None
        expected = sample(logits, rules, pos=pos, context_ids=context, allowed=allowed)
        assert native_id(isa, logits, rules, pos, allowed, context) == expected, (name, rules)


def test_min_tokens_holds_back_stop_ids_up_to_its_border(isa) -> None:
    logits = np.arange(40, dtype=np.float32)
    rules = replace(PLAIN, temperature=0.0, num_prompt_tokens=5, min_tokens=3, stop_ids=(38, 39, 1000))
    picked = [native_id(isa, logits, rules, pos) for pos in range(5, 11)]
    assert picked == [37, 37, 37, 39, 39, 39]
    only_stops = np.zeros(2, np.uint32)
    only_stops[1] = 0b11000000
    assert native_id(isa, logits, rules, 5, only_stops) == 39, "it yields where nothing else may come"
    assert native_id(isa, logits[:2], replace(rules, stop_ids=(0, 1)), 5) == 1


def test_penalties_count_what_they_should(isa) -> None:
    """sm-05: prompt 1 1 2, answer 2 3 3."""
    context = np.array([1, 1, 2, 2, 3, 3], np.int32)
    logits = np.array([4.0, 4.5, 4.75, 5.5, -1.0], np.float32)
    rules = replace(PLAIN, temperature=0.0, num_prompt_tokens=3)

    def pick(**penalties) -> int:
        expected = sample(logits, replace(rules, **penalties), pos=6, context_ids=context)
        assert native_id(isa, logits, replace(rules, **penalties), 6, None, context) == expected
        return expected

    assert pick() == 3
    assert pick(presence_penalty=0.9) == 3, "5.5 - 0.9 stays above 4.5"
    assert pick(presence_penalty=1.1) == 1, "the prompt's ids don't count"
    assert pick(frequency_penalty=0.4) == 3, "4.7 against 4.5"
    assert pick(frequency_penalty=0.6) == 1
    assert pick(repetition_penalty=2.0) == 0, "prompt and answer count"
    assert pick(repetition_penalty=0.5) == 3
    assert pick(logit_bias=((4, 100.0),)) == 4


@pytest.mark.parametrize("size", [*SIZES, 49_152])
def test_log_probabilities(isa, size) -> None:
    rng = np.random.default_rng(size)
    far = np.where(np.arange(size) % 3 == 0, np.float32(-3e38), np.float32(3e38))
    for logits in (*shapes(size).values(), far):
        for num_top in (0, 1, 5, 64, 65, size) if size < 5000 else (0, 5, 70):
            token_id = int(rng.integers(size))
            expected = logprobs_of(logits, token_id, num_top)
            assert Logprobs(*_native.kernels.logprobs(isa, logits, token_id, num_top)) == expected


@settings(max_examples=60, deadline=None)
@given(
    logits=st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0000001, 80.0, -700.0, -745.0, 3e38]), min_size=1),
    data=st.data(),
)
def test_log_probabilities_of_ties(logits, data) -> None:
    logits = np.array(logits, np.float32)
    token_id = data.draw(st.integers(0, logits.size - 1))
    num_top = data.draw(st.integers(0, logits.size + 2))
    expected = logprobs_of(logits, token_id, num_top)
    for isa in _native.available_isas():
        assert Logprobs(*_native.kernels.logprobs(isa, logits, token_id, num_top)) == expected


def test_a_mask_of_one_token_is_that_token(isa) -> None:
    rng = np.random.default_rng(5)
    for size in SIZES:
        logits = rng.standard_normal(size).astype(np.float32)
        for token_id in {0, size - 1, size // 2}:
            mask = np.zeros(-(-size // 32), np.uint32)
            mask[token_id // 32] = 1 << token_id % 32
            for pick in PICKS:
                assert native_id(isa, logits, replace(PLAIN, **pick), 3, mask, NO_IDS) == token_id
