"""Sampling at the step contract, on real forward passes: what comes out is the numpy definition of what went in, to the
bit, however a row came to its logits, with drafts and masks."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from driver import GREEDY, Driver
from kinds import CPU, REFERENCE
from msgspec import structs
from tiny_models import VOCAB_SIZE, token_ids

from freehold.backends.base import FedBy, Row, RowSampling, StepError
from freehold.sample.digest import digest_logits
from freehold.sample.logprobs import logprobs_of
from freehold.sample.sampler import sample

KINDS = [REFERENCE[1], *(kind for kind in CPU if kind.kv_dtype == "bf16")]
PROMPT = [*token_ids(20, seed=1), 5, 5, 5, *token_ids(14, seed=2)]
SAMPLINGS = {
    "penalties": replace(
        GREEDY, temperature=0.8, seed=5, presence_penalty=0.4, frequency_penalty=0.6, repetition_penalty=1.2
    ),
    "repetition alone": replace(GREEDY, repetition_penalty=0.4),
    "negative": replace(GREEDY, temperature=1.0, frequency_penalty=-1.0, top_p=0.9),
    "biased": replace(GREEDY, temperature=1.0, seed=3, logit_bias=((0, 100.0), (7, -100.0), (258, 99.5))),
    "held back": replace(GREEDY, min_tokens=3, stop_ids=tuple(range(0, VOCAB_SIZE, 2))),
    "all": replace(
        GREEDY,
        temperature=0.7,
        top_k=50,
        top_p=0.95,
        repetition_penalty=1.1,
        presence_penalty=-0.2,
        logit_bias=((3, 5.0),),
        min_tokens=6,
        stop_ids=(3, 4),
    ),
}
BLOCKS = np.arange(8, dtype=np.int32)


@pytest.fixture(params=KINDS, ids=str)
def driver(request, tiny, open_kind) -> Driver:
    return Driver(open_kind(tiny("llama-llama3-rope", "Q4_0").path, request.param))


@pytest.fixture(params=SAMPLINGS.values(), ids=SAMPLINGS.keys())
def sampling(request) -> RowSampling:
    return replace(request.param, num_prompt_tokens=len(PROMPT), num_logprobs=3)


def row(sampling: RowSampling, ids: Sequence[int], start_pos: int = 0, **fields) -> Row:
    """The inputs at ``ids[start_pos:]``, of a sequence whose beginning was computed."""
    context = np.array(ids[:start_pos], np.int32) if sampling.has_penalties else None
    settings = {"num_sampled": 1, "want_digests": True} | fields
    return Row(start_pos, ids[start_pos:], BLOCKS, sampling=sampling, context_ids=context, **settings)


def masks_of(sets: Sequence[Sequence[int]]) -> np.ndarray:
    masks = np.zeros((len(sets), -(-VOCAB_SIZE // 32)), np.uint32)
    for mask, token_ids_allowed in zip(masks, sets, strict=True):
        for token_id in token_ids_allowed:
            mask[token_id // 32] |= np.uint32(1 << token_id % 32)
    return masks


def decode(driver: Driver, sampling: RowSampling, num_ids: int, logits: list[np.ndarray]) -> list[int]:
    """Ids one by one, each checked against the definition, with the logits behind them."""
    ids = list(PROMPT)
    for start in [0, *range(len(PROMPT), len(PROMPT) + num_ids - 1)]:
        (result,) = driver.run(row(sampling, ids, start, want_logits=True))
        after = result.logits[-1]
        pos = len(ids)
        expected = sample(after, sampling, pos=pos, context_ids=np.array(ids, np.int32))
        assert list(result.token_ids) == [expected]
        assert list(result.digests) == [digest_logits(after)], "of the raw logits"
        assert list(result.logprobs) == [logprobs_of(after, expected, 3)], "of the raw logits"
        logits.append(after)
        ids.append(expected)
    return ids[len(PROMPT) :]


def test_ids_are_the_definition_of_the_logits(driver: Driver, sampling: RowSampling) -> None:
    logits: list[np.ndarray] = []
    answer = decode(driver, sampling, 8, logits)
    plain = [int(after.argmax()) for after in logits]
    assert answer != plain, "the rules do change something"


def test_chunks_and_rows_fed_by_others_see_the_same_context(driver: Driver, sampling: RowSampling) -> None:
    answer = decode(driver, sampling, 6, [])
    for chunk in (1, 16, 36):
        for start in range(0, len(PROMPT) - chunk, chunk):
            driver.run(Row(start, PROMPT[start : start + chunk], BLOCKS, num_sampled=0))
        first = (len(PROMPT) - 1) // chunk * chunk
        step = driver.submit([row(sampling, PROMPT, first)])
        found = []
        for known in range(5):
            before = [*PROMPT, *answer[:known]]
            fed = structs.replace(row(sampling, before, len(before)), fed_by=FedBy(step, 0))
            following = driver.submit([fed])
            found += driver.backend.collect(step).rows[0].token_ids
            step = following
        found += driver.backend.collect(step).rows[0].token_ids
        assert found == answer


@pytest.mark.parametrize("wrong_at", [None, 0, 2])
def test_drafts_are_verified_under_all_rules(driver: Driver, sampling: RowSampling, wrong_at: int | None) -> None:
    answer = decode(driver, sampling, 6, [])
    plain = [driver.run(row(sampling, [*PROMPT, *answer[:n]], len(PROMPT) + n - 1))[0] for n in range(1, 6)]
    drafts = answer[1:5]
    if wrong_at is not None:
        drafts[wrong_at] = (drafts[wrong_at] + 1) % VOCAB_SIZE
    num_ids = 5 if wrong_at is None else wrong_at + 1
    (result,) = driver.run(row(sampling, [*PROMPT, answer[0], *drafts], len(PROMPT), num_sampled=5))
    assert list(result.token_ids) == answer[1:][:num_ids]
    assert list(result.digests) == [one.digests[0] for one in plain[:num_ids]]
    assert list(result.logprobs) == [one.logprobs[0] for one in plain[:num_ids]]


def test_each_id_has_a_mask_of_its_own(driver: Driver, sampling: RowSampling) -> None:
    sets = [range(10, 200, 3), range(VOCAB_SIZE), [250, 251, 258], [6], range(0, VOCAB_SIZE, 5)]
    masks = masks_of(sets)
    ids, logprobs = list(PROMPT), []
    for index in range(5):
        start = 0 if index == 0 else len(ids) - 1
        step = driver.submit([row(sampling, ids, start, want_logits=True, deferred=True)])
        driver.backend.sample(step, {0: masks[index : index + 1]})
        (result,) = driver.backend.collect(step).rows
        context = np.array(ids, np.int32)
        expected = sample(result.logits[-1], sampling, pos=len(ids), context_ids=context, allowed=masks[index])
        assert list(result.token_ids) == [expected]
        assert expected in sets[index]
        logprobs += result.logprobs
        ids.append(expected)
    answer = ids[len(PROMPT) :]
    for num_masks in (5, 3):
        masks[num_masks:] = 0
        drafts = [*PROMPT, *answer[:4]]
        step = driver.submit([row(sampling, drafts, deferred=True, num_sampled=5)])
        driver.backend.sample(step, {0: masks})
        (result,) = driver.backend.collect(step).rows
        assert list(result.token_ids) == answer[:num_masks], "up to where nothing is allowed"
        assert list(result.logprobs) == logprobs[:num_masks]


@pytest.mark.parametrize("num_top", [0, 4, VOCAB_SIZE])
def test_scores_are_the_definition_in_any_chunks(driver: Driver, num_top: int) -> None:
    """70 inputs need more logits at once than the device keeps."""
    ids = token_ids(71, seed=9)
    logits = driver.forced(ids[:-1], BLOCKS)
    expected = [logprobs_of(after, ids[pos + 1], num_top) for pos, after in enumerate(logits)]
    for chunk in (1, 7, 64, 70) if num_top == 4 else (70,):
        found = []
        for start in range(0, 70, chunk):
            end = min(start + chunk, 70)
            scoring = Row(
                start, ids[start:end], BLOCKS, num_sampled=0, scored_ids=ids[start + 1 : end + 1], num_scored=num_top
            )
            neighbour = Row(0, PROMPT, BLOCKS + 8, num_sampled=1, sampling=GREEDY, want_digests=True)
            scored, beside = driver.run(scoring, neighbour)
            assert not scored.token_ids
            assert beside.digests == driver.run(neighbour)[0].digests
            found += scored.scored
        assert found == expected


def test_masks_reach_rows_behind_more_logits_than_fit_at_once(driver: Driver) -> None:
    ids = token_ids(71, seed=9)
    scoring = Row(0, ids[:-1], BLOCKS + 8, num_sampled=0, scored_ids=ids[1:], num_scored=1)
    rules = replace(GREEDY, temperature=1.0, frequency_penalty=1.0, num_prompt_tokens=5)
    masked = row(rules, PROMPT, deferred=True, want_logits=True)
    masks = {0: masks_of([[5, 6, 7, 100]]), 2: masks_of([[8, 9, 258]])}
    step = driver.submit([masked, scoring, structs.replace(masked, block_ids=BLOCKS + 16)])
    driver.backend.sample(step, masks)
    results = driver.backend.collect(step).rows
    assert list(results[1].scored) == list(driver.run(scoring)[0].scored)
    for index, mask in masks.items():
        after, context = results[index].logits[-1], np.array(PROMPT, np.int32)
        expected = sample(after, rules, pos=len(PROMPT), context_ids=context, allowed=mask[0])
        assert list(results[index].token_ids) == [expected]


def test_a_row_may_score_some_inputs_and_sample_after_others(driver: Driver) -> None:
    rules = replace(GREEDY, num_logprobs=1)
    (result,) = driver.run(row(rules, PROMPT, scored_ids=PROMPT[1:4], num_scored=2, want_logits=True))
    assert list(result.scored) == [logprobs_of(result.logits[i], PROMPT[i + 1], 2) for i in range(3)]
    assert list(result.token_ids) == [int(result.logits[-1].argmax())]
    assert list(result.logprobs) == [logprobs_of(result.logits[-1], result.token_ids[0], 1)]


WRONG = {
    "no context": {"sampling": SAMPLINGS["penalties"], "context_ids": None},
    "a context of another length": {"sampling": SAMPLINGS["penalties"], "context_ids": np.zeros(3, np.int32)},
    "more to score than inputs": {"sampling": GREEDY, "scored_ids": PROMPT, "context_ids": None},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG.keys())
def test_rows_that_lack_what_sampling_needs_are_refused(driver: Driver, fields) -> None:
    wrong = Row(len(PROMPT), [1], BLOCKS, num_sampled=1, **fields)
    with pytest.raises((StepError, ValueError), match="ids"):
        driver.run(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in CPU if kind.activations == "int8"], ids=str)
def test_a_real_model_samples_by_the_definition(open_kind, smollm2_path, kind) -> None:
    """The whole vocabulary of 49,152, penalties over 300 ids, and all else at once."""
    driver = Driver(open_kind(smollm2_path, kind, num_blocks=32))
    ids = np.random.default_rng(0).integers(0, 49_152, 300).tolist()
    rules = replace(SAMPLINGS["all"], num_prompt_tokens=290, num_logprobs=20, seed=9, temperature=1.2, top_k=0)
    blocks = np.arange(32, dtype=np.int32)
    for start in [0, *range(300, 312)]:
        context = np.array(ids[:start], np.int32)
        inputs = Row(
            start, ids[start:], blocks, num_sampled=1, sampling=rules, context_ids=context, want_logits=start > 0
        )
        (result,) = driver.run(inputs)
        if start > 0:
            after = result.logits[-1]
            expected = sample(after, rules, pos=len(ids), context_ids=np.array(ids, np.int32))
            assert list(result.token_ids) == [expected]
            assert list(result.logprobs) == [logprobs_of(after, expected, 20)]
        ids += result.token_ids
