"""Law 1 through the whole engine: whatever else runs, however prompts are cut up, whoever is preempted, on any number
of threads and after any restart, a request's ids and the digests of its logits are the same. Zero differences."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kinds import CPU, REFERENCE, Kind
from msgspec import structs
from tiny_models import token_ids

from freehold.arch import read_model
from freehold.arch.sizes import kv_block_bytes
from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.errors import ConfigError
from freehold.files.model import open_model
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, Tokens

BUDGETS = [1, 7, 16, 17, 64, 1024]
LENGTHS = [1, 15, 16, 17, 33, 40, 63, 64, 65]  # of prompts
SAMPLINGS = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 7},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "seed": 2**63 + 9, "choice": 3},
]
NUM_IDS = 12
SHARED = [1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 76]  # beginnings of prompts, around the borders of blocks
BLOCK_SIZE = 16
LARGEST = LENGTHS[-1] + NUM_IDS
TIMEOUT_S = 600.0

MODELS = [("llama-llama3-rope", "Q4_0"), ("qwen2-window", "hf"), ("qwen3", "F16")]
TINY_CASES = [(MODELS[0], REFERENCE[1]), *itertools.product(MODELS, CPU)]


@dataclass(frozen=True)
class Answer:
    """All that must not differ."""

    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    finish: Finish
    num_cached: int = field(compare=False)


def requests(vocab_size: int) -> list[Generate]:
    """Nine requests of different lengths and samplings."""
    return [
        Generate(
            request_id=RequestId(str(index)),
            prompt_ids=tuple(i % vocab_size for i in token_ids(length, seed=index)),
            sampling=Sampling(max_tokens=NUM_IDS, **SAMPLINGS[index % len(SAMPLINGS)]),
            digests=True,
        )
        for index, length in enumerate(LENGTHS)
    ]


@contextmanager
def started(path: Path, kind: Kind, **settings: Any) -> Iterator[Engine]:
    """An engine of a kind; skips what isn't built or what the processor can't run."""
    wanted = {"max_model_len": 128, "kv_cache_bytes": 64 << 20, "block_size": BLOCK_SIZE} | settings
    config = EngineConfig(
        model_path=path,
        backend=kind.backend,
        isa=kind.isa,
        activations=kind.activations,
        kv_cache_dtype=kind.kv_dtype,
        **wanted,
    )
    try:
        engine = Engine.start(config)
    except ConfigError as error:
        if kind.isa is not None and kind.isa in str(error):
            pytest.skip(str(error))
        raise
    with engine:
        yield engine
    assert engine._core.progress.fault == ""
    engine.ledger().check(0)


def answers(engine: Engine, wanted: Sequence[Generate]) -> list[Answer]:
    """Submit all at once and wait for all."""
    events: dict[RequestId, list[Event]] = {request.request_id: [] for request in wanted}
    all_ended = threading.Semaphore(0)

    def on_event(event: Event) -> None:
        events[event.request_id].append(event)
        if isinstance(event, Finish):
            all_ended.release()

    for request in wanted:
        engine.submit(request, on_event)
    for _ in wanted:
        assert all_ended.acquire(timeout=TIMEOUT_S)
    found = []
    for request in wanted:
        *tokens, finish = events[request.request_id]
        assert isinstance(finish, Finish)
        assert all(isinstance(event, Tokens) for event in tokens)
        ids = tuple(i for event in tokens for i in event.token_ids)
        digests = tuple(d for event in tokens for d in event.digests)
        lasting = structs.replace(finish, num_cached_tokens=0)  # depends on what came before, and only that may
        found.append(Answer(ids, digests, lasting, finish.num_cached_tokens))
    return found


def alone(path: Path, kind: Kind) -> list[Answer]:
    """The truth: every request by itself, its prompt in one piece."""
    with started(path, kind, max_num_batched_tokens=1024) as engine:
        found = [answers(engine, [request])[0] for request in requests(engine.info.vocab_size)]
    for answer in found:
        assert answer.finish.reason == "length"
        assert len(answer.token_ids) == len(answer.digests) == NUM_IDS
    assert len({answer.digests for answer in found}) == len(found)
    return found


def together(path: Path, kind: Kind, **settings: Any) -> list[Answer]:
    """All at once, in an engine of its own."""
    with started(path, kind, **settings) as engine:
        return answers(engine, requests(engine.info.vocab_size))


def smallest_pool(path: Path, kind: Kind) -> dict[str, int]:
    """Settings under which the KV cache just holds the largest request."""
    with open_model(path) as files:
        spec, _weights = read_model(files)
    num_bytes = -(-LARGEST // BLOCK_SIZE) * kv_block_bytes(spec, BLOCK_SIZE, kind.kv_dtype)
    return {"kv_cache_bytes": num_bytes, "max_model_len": LARGEST}


def preempting_always(engine: Engine, every: int) -> None:
    """Make the scheduler preempt all but the first running request before every so-manieth step."""
    scheduler, plan, counter = engine._core._scheduler, engine._core._scheduler.plan, itertools.count(1)

    def plan_and_preempt():
        if next(counter) % every == 0:
            for request in scheduler.running[1:]:
                scheduler._preempt(request)
        return plan()

    scheduler.plan = plan_and_preempt


def check_preempted(path: Path, kind: Kind, truth: list[Answer]) -> None:
    with started(path, kind, max_num_batched_tokens=32) as engine:
        preempting_always(engine, every=3)
        assert answers(engine, requests(engine.info.vocab_size)) == truth, "preempted again and again"
        assert engine._core._scheduler.num_preemptions > 2 * len(LENGTHS)


def check_matrix(path: Path, kind: Kind) -> None:
    """Every way to run the requests, one thing changed at a time."""
    truth = alone(path, kind)
    for budget in BUDGETS:
        assert together(path, kind, max_num_batched_tokens=budget) == truth, f"budget {budget}"
    assert together(path, kind, max_num_seqs=2, max_num_batched_tokens=17) == truth, "two at a time"
    assert together(path, kind, block_size=48, max_num_batched_tokens=64) == truth, "another block size"
    assert together(path, kind, max_num_batched_tokens=32, **smallest_pool(path, kind)) == truth, "the smallest pool"
    check_preempted(path, kind, truth)
    if kind.backend == "cpu":
        assert together(path, kind, num_threads=2) == truth, "two threads"


def sharing(vocab_size: int, lengths: Sequence[int]) -> list[Generate]:
    """Requests whose prompts begin alike: one long, its beginnings of some lengths, each alone and with other ids after
    it, and the long one four times more."""
    long = tuple(i % vocab_size for i in token_ids(LARGEST, seed=100))
    prompts = [long]
    for num_shared in lengths:
        prompts += [long[:num_shared], (*long[:num_shared], (long[num_shared] + 1) % vocab_size, *long[:7])]
    prompts += [long] * 4
    return [
        Generate(
            request_id=RequestId(str(index)),
            prompt_ids=prompt,
            sampling=Sampling(max_tokens=NUM_IDS, **SAMPLINGS[index % len(SAMPLINGS)]),
            digests=True,
        )
        for index, prompt in enumerate(prompts)
    ]


def next_turns(wanted: Sequence[Generate], before: Sequence[Answer]) -> list[Generate]:
    """Each request again, with its answer and a little more after its prompt."""
    return [
        structs.replace(request, prompt_ids=(*request.prompt_ids, *answer.token_ids, 1, 2, 3))
        for request, answer in zip(wanted, before, strict=True)
    ]


def check_cache(path: Path, kind: Kind, lengths: Sequence[int] = SHARED) -> None:
    """Cold, warm, in part: what was computed before changes nothing but how much is computed."""
    with started(path, kind, prefix_caching=False) as engine:
        wanted = sharing(engine.info.vocab_size, lengths)
        truth = [answers(engine, [request])[0] for request in wanted]
        turns = next_turns(wanted, truth)
        turns_truth = [answers(engine, [request])[0] for request in turns]
        assert {answer.num_cached for answer in truth + turns_truth} == {0}
    with started(path, kind, max_num_batched_tokens=17) as engine:
        assert [answers(engine, [request])[0] for request in wanted[:1]] == truth[:1], "cold"
        for again in range(2):
            found = [answers(engine, [request])[0] for request in wanted]
            assert found == truth, "in part or whole from the cache"
            least = [len(request.prompt_ids) - (1 if again else 9) for request in wanted]
            assert all(answer.num_cached >= num for answer, num in zip(found, least, strict=True))
        found = [answers(engine, [request])[0] for request in turns]
        assert found == turns_truth, "answers from the cache"
        for answer, before in zip(found, wanted, strict=True):
            assert answer.num_cached >= len(before.prompt_ids) + NUM_IDS - 1
    with started(path, kind) as engine:
        found = answers(engine, wanted)
        assert found == truth, "all at once"
        assert any(answer.num_cached for answer in found)
    with started(path, kind, max_num_batched_tokens=64, **smallest_pool(path, kind)) as engine:
        short = [request for request in wanted if len(request.prompt_ids) < LARGEST - 8]
        short_truth = [one for one in truth if one.finish.num_prompt_tokens < LARGEST - 8]
        assert answers(engine, short) == answers(engine, short) == short_truth, "evicted all the time"


def case_id(value: Kind | tuple[str, str]) -> str:
    return str(value) if isinstance(value, Kind) else "-".join(value)


@pytest.mark.parametrize(("model", "kind"), TINY_CASES, ids=case_id)
def test_tiny_models(model: tuple[str, str], kind: Kind, tiny) -> None:
    check_matrix(tiny(*model).path, kind)


@pytest.mark.parametrize(("model", "kind"), TINY_CASES, ids=case_id)
def test_tiny_models_from_the_cache(model: tuple[str, str], kind: Kind, tiny) -> None:
    check_cache(tiny(*model).path, kind)


@pytest.mark.parametrize("kind", [Kind("cpu"), Kind("cpu", "int8")], ids=str)
def test_the_real_model(kind: Kind, smollm2_path: Path) -> None:
    """The same with several things changed at once, to load the model less often."""
    truth = alone(smollm2_path, kind)
    pool = smallest_pool(smollm2_path, kind)
    assert together(smollm2_path, kind, max_num_batched_tokens=17, num_threads=2, **pool) == truth
    check_preempted(smollm2_path, kind, truth)
    check_cache(smollm2_path, kind, lengths=[17, 64])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [REFERENCE[1], *CPU], ids=str)
def test_the_real_model_in_every_way(kind: Kind, smollm2_path: Path) -> None:
    check_matrix(smollm2_path, kind)
    check_cache(smollm2_path, kind)
