"""Scoring as evaluation harnesses ask for it, over the real model, against transformers in float32."""

from pathlib import Path

import numpy as np
import pytest
from oracle import Oracle
from tests.server.running import Server, Start

from freehold.config import EngineConfig
from freehold.engine.client import Engine

TOKEN_TOLERANCE = 0.1
"""Natural logarithms. The model's file is the same, but activations and the KV cache are rounded (bf16, by default)."""
MEAN_TOLERANCE = 0.02

QUESTIONS = [
    ("The capital of France is", [" Paris", " a cheese"]),
    ("Question: What do bees make?\nAnswer:", [" honey", " Würste 🙂"]),
]


@pytest.fixture(scope="module")
def oracle(smollm2_path: Path) -> Oracle:
    return Oracle(smollm2_path)


def test_continuations_are_scored_as_by_transformers(start: Start, smollm2_path: Path, oracle: Oracle) -> None:
    server: Server = start(handle=Engine.start(EngineConfig(model_path=smollm2_path, max_model_len=512)))
    pairs = [(context, ending) for context, endings in QUESTIONS for ending in endings]
    contexts = [server.tokenizer.encode(context) for context, _ in pairs]
    wholes = [server.tokenizer.encode(context + ending) for context, ending in pairs]
    # As lm-eval's local-completions sends it: ids, one token more than is needed.
    body = {"prompt": wholes, "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234, "temperature": 0}
    answer = server.openai.completions.create(model="test", **body)  # type: ignore[call-overload]
    sums, errors = [], []
    for choice, context, whole in zip(answer.choices, contexts, wholes, strict=True):
        truth = oracle.logits(whole)
        truth = truth - np.logaddexp.reduce(truth, axis=-1, keepdims=True)
        expected = [truth[place - 1, whole[place]] for place in range(1, len(whole))]
        scores = choice.logprobs.token_logprobs
        assert scores[0] is None
        assert len(scores) == len(whole) + 1
        errors += list(np.abs(np.array(scores[1:-1]) - expected))
        sums.append(sum(scores[len(context) : -1]))
        for place, (score, top) in enumerate(zip(scores[1:-1], choice.logprobs.top_logprobs[1:-1], strict=True)):
            best, second = np.sort(truth[place])[::-1][:2]
            if best - second > TOKEN_TOLERANCE:
                assert (score == max(top.values())) == (expected[place] == best), "greedy or not"
    print(f"log probabilities differ by {max(errors):.3f} at most, {np.mean(errors):.4f} on average")
    assert max(errors) < TOKEN_TOLERANCE
    assert np.mean(errors) < MEAN_TOLERANCE
    assert sums[0] == max(sums[:2]), "Paris"
    assert sums[2] == max(sums[2:]), "honey"
    alone = server.openai.completions.create(model="test", **{**body, "prompt": wholes[3], "max_tokens": 0})  # type: ignore[call-overload]
    assert alone.choices[0].logprobs.token_logprobs == answer.choices[3].logprobs.token_logprobs[:-1]
