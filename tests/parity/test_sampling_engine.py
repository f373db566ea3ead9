"""Complete sampling through whole engines: ids, digests, log probabilities and scores depend on the request alone."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_answers import NUM_IDS, TIMEOUT_S, case_id, config, smallest_pool, started
from kinds import CPU, REFERENCE, Kind
from msgspec import structs
from tiny_models import VOCAB_SIZE, make_model, token_ids

from freehold.engine.handle import EngineHandle
from freehold.engine.remote import ProcessEngine
from freehold.faults import EveryNth, Forced, Switch, armed
from freehold.protocol import Event, Finish, Generate, Logprobs, PromptLogprobs, RequestId, Sampling, Tokens

ISAS = [kind for kind in CPU if (kind.activations, kind.kv_dtype) == ("int8", "bf16")]
ALL_CASES = [REFERENCE[1], *CPU]
PENALTIES: dict[str, Any] = {"presence_penalty": 0.3, "frequency_penalty": 0.5, "repetition_penalty": 1.3}
WANTED: list[tuple[int, dict[str, Any]]] = [  # prompt tokens, sampling
    (1, {"temperature": 0.0, "repetition_penalty": 0.5, "num_logprobs": 0}),
    (15, {"temperature": 0.8, "seed": 1, **PENALTIES, "num_logprobs": 3, "num_prompt_logprobs": 2}),
    (17, {"temperature": 1.0, "seed": 2, "allowed_ids": tuple(range(9, 200, 3)), "num_logprobs": 1}),
    (33, {"temperature": 0.0, "logit_bias": ((3, 100.0), (4, 60.0)), "stop_ids": frozenset({3}), "min_tokens": 5}),
    (40, {"temperature": 1.0, "seed": 3, "top_p": 0.9, "num_prompt_logprobs": 0}),
    (64, {"max_tokens": 0, "num_prompt_logprobs": 5}),
    (64, {"temperature": 0.7, "seed": 4, "top_k": 40, **PENALTIES, "allowed_ids": tuple(range(0, VOCAB_SIZE, 2))}),
    (65, {"temperature": 0.0, **PENALTIES, "num_logprobs": 20, "num_prompt_logprobs": 1, "min_tokens": 2}),
]


@dataclass(frozen=True)
class Answer:
    """All that must not differ."""

    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]
    scores: tuple[Logprobs, ...]
    finish: Finish


def requests(prefix: str = "") -> list[Generate]:
    return [
        Generate(
            request_id=RequestId(f"{prefix}{i}"),
            prompt_ids=tuple(token_ids(length, seed=i)),
            sampling=Sampling(**{"max_tokens": NUM_IDS} | sampling),
            digests=True,
        )
        for i, (length, sampling) in enumerate(WANTED)
    ]


def answers(engine: EngineHandle, wanted: Sequence[Generate]) -> list[Answer]:
    """Submit all at once and wait for all."""
    events: dict[RequestId, list[Event]] = {request.request_id: [] for request in wanted}
    ended = threading.Semaphore(0)

    def on_event(event: Event) -> None:
        events[event.request_id].append(event)
        if isinstance(event, Finish):
            ended.release()

    for request in wanted:
        engine.submit(request, on_event)
    for _ in wanted:
        assert ended.acquire(timeout=TIMEOUT_S)
    return [_answer(events[request.request_id]) for request in wanted]


def _answer(events: Sequence[Event]) -> Answer:
    tokens = [event for event in events if isinstance(event, Tokens)]
    scored = [event for event in events if isinstance(event, PromptLogprobs)]
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert list(events) == [*scored, *tokens, finish]
    return Answer(
        tuple(i for event in tokens for i in event.token_ids),
        tuple(d for event in tokens for d in event.digests),
        tuple(one for event in tokens for one in event.logprobs),
        tuple(one for event in scored for one in event.logprobs),
        structs.replace(finish, request_id=RequestId(""), num_cached_tokens=0, stages=None),
    )


def alone(path: Path, kind: Kind) -> list[Answer]:
    """The truth: every request by itself, its prompt in one piece, nothing reused."""
    with started(path, kind, max_num_batched_tokens=1024, prefix_caching=False) as engine:
        return [answers(engine, [request])[0] for request in requests()]


@pytest.fixture(scope="module")
def truth(tiny: Callable[..., Any]) -> Callable[[Kind], list[Answer]]:
    found: dict[str, list[Answer]] = {}

    def truth_of(kind: Kind) -> list[Answer]:
        if str(kind) not in found:
            found[str(kind)] = alone(tiny("llama-tied", "Q4_1").path, kind)
        return found[str(kind)]

    return truth_of


@pytest.fixture
def path(tiny: Callable[..., Any]) -> Path:
    return tiny("llama-tied", "Q4_1").path


@pytest.mark.parametrize("kind", ALL_CASES, ids=case_id)
def test_the_answers_are_what_was_asked_for(truth, kind: Kind) -> None:
    for (num_prompt, wanted), answer in zip(WANTED, truth(kind), strict=True):
        sampling = Sampling(**{"max_tokens": NUM_IDS} | wanted)
        assert len(answer.digests) == len(answer.token_ids) == answer.finish.num_output_tokens
        if not sampling.stop_ids:
            assert (answer.finish.reason, len(answer.token_ids)) == ("length", sampling.max_tokens)
        assert len(answer.logprobs) == (len(answer.token_ids) if sampling.num_logprobs is not None else 0)
        assert len(answer.scores) == (num_prompt - 1 if sampling.num_prompt_logprobs is not None else 0)
        assert set(answer.token_ids) <= set(sampling.allowed_ids or range(VOCAB_SIZE))
        for one in answer.logprobs:
            assert one.logprob <= 0
            assert len(one.top) == sampling.num_logprobs
            assert [logprob for _, logprob in one.top] == sorted((p for _, p in one.top), reverse=True)
            if one.rank <= len(one.top):
                assert one.top[one.rank - 1][1] == one.logprob
    held_back = truth(kind)[3]
    assert held_back.token_ids == (4, 4, 4, 4, 4, 3), "the stop id is likeliest from the start, and comes in its time"
    assert held_back.finish.reason == "stop"


@pytest.mark.parametrize("kind", ISAS, ids=case_id)
@pytest.mark.parametrize("budget", [1, 7, 16, 17, 64, 1024])
def test_in_chunks_among_neighbours(path: Path, truth, kind: Kind, budget: int) -> None:  # cp-01
    with started(path, kind, max_num_batched_tokens=budget) as engine:
        assert answers(engine, requests()) == truth(kind)
        assert answers(engine, requests("again ")) == truth(kind), "with a warm cache"


@pytest.mark.parametrize("kind", ISAS, ids=case_id)
@pytest.mark.parametrize("with_evictions", [False, True])
def test_preempted_again_and_again(path: Path, truth, kind: Kind, with_evictions: bool) -> None:  # kv-01
    switches = [Forced(Switch.PREEMPT, EveryNth(3))] + [Forced(Switch.EVICT, EveryNth(2))] * with_evictions
    with started(path, kind, max_num_batched_tokens=20) as engine, armed(*switches):
        assert answers(engine, requests()) == truth(kind)
        assert engine._core._scheduler.num_preemptions > 2 * len(WANTED)


@pytest.mark.parametrize("kind", ISAS, ids=case_id)
def test_in_the_smallest_pool(path: Path, truth, kind: Kind) -> None:  # kv-01
    with started(path, kind, max_num_batched_tokens=50, **smallest_pool(path, kind)) as engine:
        assert answers(engine, requests()) == truth(kind)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("kind", ISAS, ids=case_id)
def test_any_number_of_threads(path: Path, truth, kind: Kind, num_threads: int) -> None:
    with started(path, kind, max_num_batched_tokens=40, num_threads=num_threads) as engine:
        assert answers(engine, requests()) == truth(kind)


def test_an_engine_in_a_process(path: Path, truth) -> None:
    kind = ISAS[-1]
    with ProcessEngine.start(config(path, kind, max_num_batched_tokens=40)) as engine:
        assert answers(engine, requests()) == truth(kind)


def test_the_reference_backend_keeps_the_law_too(path: Path, truth) -> None:
    with started(path, REFERENCE[1], max_num_batched_tokens=50) as engine:
        assert answers(engine, requests()) == truth(REFERENCE[1])


# ---------------------------------------------------------------------- NaN

POISON = 77
"""An id whose embedding holds a NaN. Nothing else leads to it: the head is another matrix."""


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = make_model("llama-untied")
    model.model.embed_tokens.weight.data[POISON, 5] = float("nan")
    path = tmp_path_factory.mktemp("poisoned")
    model.save_pretrained(path)
    return path


def request_of(name: str, prompt: Sequence[int], **sampling: Any) -> Generate:
    settings = {"max_tokens": 8, "temperature": 0.8, "seed": 1, "num_logprobs": 1} | sampling
    return Generate(request_id=RequestId(name), prompt_ids=tuple(prompt), sampling=Sampling(**settings), digests=True)


@pytest.mark.parametrize("kind", ALL_CASES, ids=case_id)
def test_a_nan_fails_the_one_request_that_meets_it(poisoned: Path, kind: Kind) -> None:  # dt-01
    clean = [[i for i in token_ids(50, seed=seed) if i != POISON] for seed in range(3)]
    good = [request_of(f"good {i}", prompt) for i, prompt in enumerate(clean)]
    late = [*clean[0][:40], POISON, *clean[2]]  # no logits show it before the prompt's end
    bad = [
        request_of("sampling", late),
        request_of("scoring", [*clean[1][:20], POISON, *clean[1]], num_prompt_logprobs=1),
        request_of("at once", [POISON], temperature=0.0, repetition_penalty=1.2),
        request_of("masked", [5, POISON, 6], allowed_ids=(1, 2, 3)),
    ]
    with started(poisoned, kind, max_num_batched_tokens=64, prefix_caching=False) as engine:
        expected = answers(engine, good)
    assert all(answer.finish.reason == "length" for answer in expected)
    # 40 blocks for all: those that held NaN are soon written by others
    with started(poisoned, kind, max_num_batched_tokens=32, kv_cache_bytes=_blocks(poisoned, kind, 40)) as engine:
        for turn in range(3):
            wanted = [structs.replace(r, request_id=RequestId(f"{turn} {r.request_id}")) for r in [*good, *bad]]
            found = answers(engine, wanted)
            assert found[: len(good)] == expected
            for answer in found[len(good) :]:
                assert (answer.finish.reason, answer.finish.code) == ("failed", "numeric_error")
                assert answer.token_ids == ()
        spoilt = _cached(engine, request_of("after", [*late, 3]))
        assert spoilt.num_cached_tokens <= 40, "nothing from the NaN on is reused"
        assert spoilt.code == "numeric_error"
        assert answers(engine, good) == expected


def _cached(engine: EngineHandle, request: Generate) -> Finish:
    events: list[Event] = []
    ended = threading.Event()

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, Finish):
            ended.set()

    engine.submit(request, on_event)
    assert ended.wait(TIMEOUT_S)
    assert isinstance(events[-1], Finish)
    return events[-1]


def _blocks(path: Path, kind: Kind, count: int) -> int:
    """Bytes of so many blocks, from what the smallest pool holds."""
    smallest = smallest_pool(path, kind)
    return smallest["kv_cache_bytes"] // -(-smallest["max_model_len"] // 16) * count
