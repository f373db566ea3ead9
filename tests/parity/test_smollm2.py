"""The real model on real text against transformers in float32: the bounds that Freehold promises."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from divergence import CHUNK_SIZE, MOST_TOKENS, backend_logits, read_texts
from kinds import CPU, REFERENCE, Kind
from oracle import Oracle

from freehold.errors import ConfigError
from freehold.evals.divergence import Divergence, compare, options_for, summarize

LLAMA_CPP_MEAN_KL = 0.00284
"""llama.cpp (llama-cpp-python 0.3.36, AVX-512) on the same file and positions; see benchmarks/divergence.py."""


@dataclasses.dataclass(frozen=True)
class Truth:
    texts: dict[str, list[int]]
    logits: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def truth_of(smollm2_path: Path) -> Callable[[int], Truth]:
    """The truth for the first so many tokens of each text."""
    oracle = Oracle(smollm2_path)
    made: dict[int, Truth] = {}

    def make(num_tokens: int) -> Truth:
        if num_tokens not in made:
            texts = {name: ids[:num_tokens] for name, ids in read_texts(oracle).items()}
            made[num_tokens] = Truth(texts, {name: oracle.logits(ids) for name, ids in texts.items()})
        return made[num_tokens]

    return make


def measure(path: Path, kind: Kind, truth: Truth) -> Divergence:
    options = options_for(
        num_positions=MOST_TOKENS,
        chunk_size=CHUNK_SIZE,
        kv_dtype=kind.kv_dtype,
        activations=kind.activations,
        num_threads=2,
        isa=kind.isa,
    )
    try:
        logits = backend_logits(path, kind.backend, options, truth.texts)
    except ConfigError as error:
        if kind.isa is not None and kind.isa in str(error):
            pytest.skip(str(error))
        raise
    return summarize([compare(truth.logits[name], logits[name]) for name in truth.texts])


def check(kind: Kind, found: Divergence) -> None:
    if kind.activations == "int8":
        assert found.mean_kl <= LLAMA_CPP_MEAN_KL, str(found)
        return
    exact = kind.backend == "reference"
    assert found.mean_kl < (1e-6 if exact else 1e-3), str(found)
    assert found.top1_agreement >= (0.999 if exact else 0.99), str(found)


@pytest.mark.parametrize("kind", [REFERENCE[0], *(kind for kind in CPU if kind.kv_dtype == "bf16")], ids=str)
def test_a_few_positions(kind: Kind, smollm2_path, truth_of) -> None:  # q-02
    found = measure(smollm2_path, kind, truth_of(24))
    assert found.num_positions == 72
    # so few positions say little about averages: this sees gross faults only
    assert found.mean_kl < {"reference": 1e-6, "cpu": 1e-2}[kind.backend], str(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [REFERENCE[0], *(kind for kind in CPU if kind.kv_dtype == "bf16")], ids=str)
def test_two_thousand_positions(kind: Kind, smollm2_path, truth_of) -> None:
    found = measure(smollm2_path, kind, truth_of(MOST_TOKENS))
    assert found.num_positions >= 2000
    check(kind, found)
