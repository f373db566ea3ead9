"""Law 1 through the whole engine: whatever else runs, however prompts are cut up, whoever is preempted, on any number
of threads, a request's ids and the digests of its logits are the same. Zero differences."""

import itertools
from pathlib import Path

import pytest
from engine_answers import (
    LENGTHS,
    SAMPLINGS,
    Answer,
    a_request,
    alone,
    answers,
    case_id,
    requests,
    smallest_pool,
    started,
    together,
)
from kinds import CPU, INT8_KV, REAL, REFERENCE, Kind
from tiny_models import token_ids

from freehold.faults import EveryNth, Forced, Switch, armed
from freehold.sched.plan import StepPlan

BUDGETS = [1, 7, 16, 17, 64, 1024]
NUM_NEIGHBOURS = [1, 2, 5, 16, 32]
NUM_PLAIN = 3  # the first of `SAMPLINGS` need nothing of the host

MODELS = [("llama-llama3-rope", "Q4_0"), ("mistral-window", "Q8_0"), ("qwen2-window", "hf"), ("qwen3", "F16")]
TINY_CASES = [
    (MODELS[0], REFERENCE[1]),
    *((MODELS[0], kind) for kind in [*CPU, INT8_KV[0]]),
    *((model, Kind("cpu", "int8")) for model in MODELS[1:]),
    *(pytest.param(MODELS[0], kind, marks=pytest.mark.slow) for kind in [REFERENCE[2], *INT8_KV[1:]]),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in itertools.product(MODELS[1:], CPU + INT8_KV)),
]
"""By default every kind with one model, and the kind that is served with every model."""


def check_forced(path: Path, kind: Kind, truth: list[Answer]) -> None:
    """Preempted again and again, everything evicted that can be, and both: now and then, and before every step."""
    for caching, often in ((True, EveryNth(1)), (False, EveryNth(3))):
        with started(path, kind, max_num_batched_tokens=32, prefix_caching=caching) as engine:
            with armed(Forced(Switch.PREEMPT, often), Forced(Switch.EVICT, often)):
                assert answers(engine, requests(engine.info.vocab_size)) == truth, f"{often}, caching {caching}"
            assert engine._core._scheduler.num_preemptions > 2 * len(LENGTHS)


def check_rounds(path: Path, kind: Kind, truth: list[Answer]) -> None:
    """Several steps are submitted before the first is collected, wherever that may be."""
    with started(path, kind) as engine, armed(Forced(Switch.ROUNDS)):
        submitted: list[StepPlan] = []
        runner, submit = engine._core._runner, engine._core._runner.submit
        runner.submit = lambda plan: (submitted.append(plan), submit(plan))[1]  # type: ignore[method-assign]
        wanted = requests(engine.info.vocab_size)
        plain = [i for i in range(len(wanted)) if i % len(SAMPLINGS) < NUM_PLAIN]
        assert answers(engine, [wanted[i] for i in plain]) == [truth[i] for i in plain]
        assert any(plan.num_steps > 1 for plan in submitted), "every round had one step"


def check_matrix(path: Path, kind: Kind) -> None:
    """Every way to run the requests, one thing changed at a time."""
    truth = alone(path, kind)
    for budget in BUDGETS:
        assert together(path, kind, max_num_batched_tokens=budget) == truth, f"budget {budget}"
    assert together(path, kind, max_num_seqs=2, max_num_batched_tokens=17) == truth, "two at a time"
    assert together(path, kind, block_size=48, max_num_batched_tokens=64) == truth, "another block size"
    assert together(path, kind, max_num_batched_tokens=32, **smallest_pool(path, kind)) == truth, "the smallest pool"
    check_forced(path, kind, truth)
    check_rounds(path, kind, truth)
    check_siblings(path, kind)
    if kind.backend == "cpu":
        assert together(path, kind, num_threads=2) == truth, "two threads"


def check_neighbours(path: Path, kind: Kind) -> None:
    """From one neighbour to 32."""
    truth = alone(path, kind, count=1 + NUM_NEIGHBOURS[-1])
    with started(path, kind, prefix_caching=False) as engine:
        wanted = requests(engine.info.vocab_size, count=len(truth))
        for num_neighbours in NUM_NEIGHBOURS:
            for first in (0, 1, len(truth) - 1 - num_neighbours):
                chosen = slice(first, first + num_neighbours + 1)
                assert answers(engine, wanted[chosen]) == truth[chosen], f"{num_neighbours} neighbours from {first}"


def check_siblings(path: Path, kind: Kind) -> None:
    """Several answers to one prompt at once, with a cache and without, are those that come one at a time."""
    for length in (1, 33, 48):
        with started(path, kind, prefix_caching=False) as engine:
            prompt = token_ids(length, seed=50)
            size = engine.info.vocab_size
            wanted = [
                a_request(i, prompt, sampling=i, vocab_size=size, family="one") for i in range(2 * len(SAMPLINGS))
            ]
            truth = [answers(engine, [request])[0] for request in wanted]
        for caching in (True, False):
            with started(path, kind, prefix_caching=caching, max_num_batched_tokens=17) as engine:
                assert answers(engine, wanted) == truth, f"siblings, {length} ids, caching {caching}"


@pytest.mark.parametrize(("model", "kind"), TINY_CASES, ids=case_id)
def test_tiny_models(model: tuple[str, str], kind: Kind, tiny) -> None:
    check_matrix(tiny(*model).path, kind)


@pytest.mark.parametrize("model", MODELS, ids=case_id)
@pytest.mark.parametrize("kind", [Kind("cpu"), Kind("cpu", "int8")], ids=str)
def test_neighbours_of_tiny_models(model: tuple[str, str], kind: Kind, tiny) -> None:  # seed-03
    check_neighbours(tiny(*model).path, kind)


def test_the_real_model(smollm2_path: Path) -> None:
    """The same with several things changed at once, to load the model less often, as it is served by default."""
    kind = Kind("cpu", "int8")
    truth = alone(smollm2_path, kind)
    pool = smallest_pool(smollm2_path, kind)
    assert together(smollm2_path, kind, max_num_batched_tokens=17, num_threads=2, **pool) == truth
    check_forced(smollm2_path, kind, truth)


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL, ids=str)
def test_the_real_model_in_every_way(kind: Kind, smollm2_path: Path) -> None:
    check_matrix(smollm2_path, kind)
    if kind.backend == "cpu":
        check_neighbours(smollm2_path, kind)
