"""The numpy definition of sampling against torch and transformers, where they mean the same.

They compute in float32, so values agree to a few units in the last place (1e-6 relative).
Log probabilities are compared in float64.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from driver import GREEDY
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from freehold.sample.adjust import adjust
from freehold.sample.logprobs import logprobs_of
from freehold.sample.sampler import sample

SIZE = 500


@pytest.fixture(params=range(4))
def rng(request) -> np.random.Generator:
    return np.random.default_rng(request.param)


def logits_of(rng: np.random.Generator) -> np.ndarray:
    return (rng.standard_normal(SIZE) * 4).astype(np.float32)


def close(ours: np.ndarray, theirs: torch.Tensor) -> None:
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6, atol=1e-6)


def test_log_probabilities_are_log_softmax(rng: np.random.Generator) -> None:
    logits = logits_of(rng)
    theirs = torch.log_softmax(torch.from_numpy(logits).double(), 0)
    values, ids = theirs.topk(20)
    for token_id in rng.integers(0, SIZE, 20).tolist():
        ours = logprobs_of(logits, token_id, 20)
        assert ours.logprob == pytest.approx(theirs[token_id].item(), abs=1e-12)
        assert ours.rank == 1 + int((theirs > theirs[token_id]).sum())
        assert [i for i, _ in ours.top] == ids.tolist()
        assert [p for _, p in ours.top] == pytest.approx(values.tolist(), abs=1e-12)
    assert sum(np.exp(p) for _, p in logprobs_of(logits, 0, SIZE).top) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("penalty", [0.5, 1.2, 3.0])
def test_the_repetition_penalty_is_that_of_transformers(rng: np.random.Generator, penalty: float) -> None:
    logits, context = logits_of(rng), rng.integers(0, SIZE, 60).astype(np.int32)
    rules = replace(GREEDY, repetition_penalty=penalty, num_prompt_tokens=20)
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(
        torch.from_numpy(context).long()[None], torch.from_numpy(logits.copy())[None]
    )
    close(adjust(logits, rules, context), theirs[0])


def test_frequency_and_presence_are_subtracted_as_openai_documents(rng: np.random.Generator) -> None:
    """mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence, c counting the answer."""
    logits, context = logits_of(rng), rng.integers(0, 50, 60).astype(np.int32)
    rules = replace(GREEDY, frequency_penalty=0.7, presence_penalty=-1.1, num_prompt_tokens=20)
    counts = torch.bincount(torch.from_numpy(context[20:]).long(), minlength=SIZE)
    close(adjust(logits, rules, context), torch.from_numpy(logits) - counts * 0.7 - (counts > 0) * -1.1)


def test_biases_are_those_of_transformers(rng: np.random.Generator) -> None:
    logits = logits_of(rng)
    bias = {int(i): float(b) for i, b in zip(rng.permutation(SIZE)[:30], rng.uniform(-100, 100, 30), strict=True)}
    processor = SequenceBiasLogitsProcessor({(i,): b for i, b in bias.items()})
    theirs = processor(torch.zeros((1, 1), dtype=torch.long), torch.from_numpy(logits.copy())[None])
    close(adjust(logits, replace(GREEDY, logit_bias=tuple(sorted(bias.items()))), np.empty(0, np.int32)), theirs[0])


def test_min_tokens_is_min_new_tokens(rng: np.random.Generator) -> None:
    logits = logits_of(rng)
    stop_ids = np.sort(np.argsort(-logits)[:5]).tolist()
    rules = replace(GREEDY, num_prompt_tokens=7, min_tokens=3, stop_ids=tuple(stop_ids))
    processor = MinNewTokensLengthLogitsProcessor(7, 3, stop_ids, device="cpu")
    for pos in range(7, 13):
        theirs = processor(torch.zeros((1, pos), dtype=torch.long), torch.from_numpy(logits.copy())[None])
        assert sample(logits, rules, pos=pos) == int(theirs.argmax())
