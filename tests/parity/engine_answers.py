"""Engines of every kind, the requests that go to them, and all that must not differ between two answers."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kinds import Kind
from msgspec import structs
from tiny_models import token_ids

from freehold.arch import read_model
from freehold.arch.sizes import kv_block_bytes
from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.engine.handle import EngineHandle
from freehold.errors import ConfigError
from freehold.faults import Forced, Switch, armed
from freehold.files.model import open_model
from freehold.grammar.messages import Source
from freehold.protocol import (
    Event,
    Finish,
    Generate,
    Grammar,
    Logprobs,
    PromptLogprobs,
    RequestId,
    Sampling,
    Tokens,
    TokenTexts,
)

NUM_IDS = 12
LENGTHS = [1, 15, 16, 17, 33, 40, 63, 64, 65]  # of prompts
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 7},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "seed": 2**63 + 9, "choice": 3},
    {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.4, "num_logprobs": 3},
    {"seed": 5, "presence_penalty": 1.5, "logit_bias": ((3, 4.0), (7, -100.0)), "num_prompt_logprobs": 2},
    {"seed": 6, "allowed_ids": tuple(range(2, 250, 3)), "num_logprobs": 0},
    {"temperature": 0.7, "seed": 8, "stop_ids": frozenset(range(0, 259, 2)), "min_tokens": NUM_IDS - 1},
    {"temperature": 1.5, "seed": 9, "stop_ids": frozenset({257}), "num_logprobs": 2},
]
"""Every parameter that changes ids or what is told of them. The last but one stops at its twelfth id, sooner or never;
the last one goes with `GRAMMAR`."""
BYTES = TokenTexts((*(bytes([byte]) for byte in range(256)), b"<a>", b"<b>", b"<c>"), (256, 257, 258))
GRAMMAR = Grammar(source=msgspec.msgpack.encode(Source("start: T\nT: /([a-m]{2},){20}/")), after_id=10, max_free=5)
"""Anything for up to five ids, then byte 10, then more letters than an answer holds."""
BLOCK_SIZE = 16
NUM_BLOCKS = 256
LARGEST = LENGTHS[-1] + NUM_IDS
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Answer:
    """All that must not differ."""

    token_ids: tuple[int, ...]
    digests: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]
    prompt_logprobs: tuple[Logprobs, ...]
    finish: Finish
    num_cached: int = field(compare=False)


def a_request(name: object, prompt_ids: Sequence[int], *, sampling: int, vocab_size: int, **fields: Any) -> Generate:
    """A request with one of `SAMPLINGS`, the `sampling`-th, counted round."""
    chosen = Sampling(max_tokens=NUM_IDS, **SAMPLINGS[sampling % len(SAMPLINGS)])
    ids = tuple(i % vocab_size for i in prompt_ids)
    if sampling % len(SAMPLINGS) == len(SAMPLINGS) - 1:
        fields["grammar"] = GRAMMAR
    return Generate(request_id=RequestId(str(name)), prompt_ids=ids, sampling=chosen, digests=True, **fields)


def requests(vocab_size: int, count: int = len(LENGTHS)) -> list[Generate]:
    """Requests of different lengths and samplings."""
    return [
        a_request(i, token_ids(LENGTHS[i % len(LENGTHS)], seed=i), sampling=i, vocab_size=vocab_size)
        for i in range(count)
    ]


@contextmanager
def started(path: Path, kind: Kind, **settings: Any) -> Iterator[Engine]:
    """An engine of a kind; skips what isn't built or what the processor can't run."""
    try:
        engine = Engine.start(config(path, kind, **settings))
    except ConfigError as error:
        if kind.isa is not None and kind.isa in str(error):
            pytest.skip(str(error))
        raise
    engine.teach(BYTES)
    with engine, armed(Forced(Switch.CHECK)):
        yield engine
    assert engine._core.progress.fault == ""
    engine.ledger().check(0)


def config(path: Path, kind: Kind, **settings: Any) -> EngineConfig:
    """How to run a model in one of the kinds."""
    wanted = {"max_model_len": 128, "kv_cache_bytes": pool_bytes(path, kind, NUM_BLOCKS), "block_size": BLOCK_SIZE}
    return EngineConfig(
        model_path=path,
        backend=kind.backend,
        isa=kind.isa,
        activations=kind.activations,
        kv_cache_dtype=kind.kv_dtype,
        **wanted | settings,
    )


def answers(engine: EngineHandle, wanted: Sequence[Generate]) -> list[Answer]:
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
    return [_answer(events[request.request_id]) for request in wanted]


def _answer(events: Sequence[Event]) -> Answer:
    finish = events[-1]
    assert isinstance(finish, Finish)
    tokens = [event for event in events if isinstance(event, Tokens)]
    scored = [event for event in events if isinstance(event, PromptLogprobs)]
    assert len(tokens) + len(scored) == len(events) - 1
    # What was cached depends on what came before, and stages on everything; only that may.
    lasting = structs.replace(finish, num_cached_tokens=0, stages=None)
    return Answer(
        tuple(i for event in tokens for i in event.token_ids),
        tuple(d for event in tokens for d in event.digests),
        tuple(one for event in tokens for one in event.logprobs),
        tuple(one for event in scored for one in event.logprobs),
        lasting,
        finish.num_cached_tokens,
    )


def alone(path: Path, kind: Kind, count: int = len(LENGTHS)) -> list[Answer]:
    """The truth: every request by itself, its prompt in one piece, nothing reused."""
    with started(path, kind, max_num_batched_tokens=1024, prefix_caching=False) as engine:
        wanted = requests(engine.info.vocab_size, count)
        found = [answers(engine, [request])[0] for request in wanted]
    for answer, request in zip(found, wanted, strict=True):
        assert answer.finish.reason in ("length", "stop")
        assert len(answer.token_ids) == len(answer.digests) == NUM_IDS
        assert len(answer.logprobs) == (0 if request.sampling.num_logprobs is None else NUM_IDS)
        scores = 0 if request.sampling.num_prompt_logprobs is None else len(request.prompt_ids) - 1
        assert len(answer.prompt_logprobs) == scores
    assert len({answer.digests for answer in found}) == len(found)
    return found


def together(path: Path, kind: Kind, count: int = len(LENGTHS), **settings: Any) -> list[Answer]:
    """All at once, in an engine of its own."""
    with started(path, kind, **settings) as engine:
        return answers(engine, requests(engine.info.vocab_size, count))


def smallest_pool(path: Path, kind: Kind) -> dict[str, int]:
    """Settings under which the KV cache just holds the largest request."""
    return {"kv_cache_bytes": pool_bytes(path, kind, -(-LARGEST // BLOCK_SIZE)), "max_model_len": LARGEST}


def pool_bytes(path: Path, kind: Kind, num_blocks: int) -> int:
    """Bytes of a KV cache of so many blocks."""
    with open_model(path) as files:
        spec, _weights = read_model(files)
    return num_blocks * kv_block_bytes(spec, BLOCK_SIZE, kind.kv_dtype)


def case_id(value: Kind | tuple[str, str]) -> str:
    """What pytest calls a case."""
    return str(value) if isinstance(value, Kind) else "-".join(value)
