"""A recording of a tiny model's mixed load: seeds, choices, log probabilities, cache hits, preemptions, aborts."""

import random
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.files.model import open_model
from freehold.files.tensors import DType
from freehold.files.vocabulary import load_text
from freehold.grammar.messages import Source
from freehold.observe.record.format import Header, vocabulary_hash
from freehold.observe.record.recorder import Recorder
from freehold.observe.record.ring import RingLimits
from freehold.observe.record.take import Take
from freehold.protocol import Event, Finish, Generate, Grammar, RequestId, Sampling, ThinkingLimit, Tokens
from freehold.synth import SynthConfig, write_checkpoint

SIZES = SynthConfig(
    family="llama", hidden_size=64, intermediate_size=128, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    vocab_size=400,
)  # fmt: skip
BLOCK = 16
NUM_AT_ONCE = 12
TIMEOUT_S = 60.0
GRAMMAR = Grammar(source=msgspec.msgpack.encode(Source("start: T\nT: /([a-m]{2},){20}/")))


def write_model(path: Path, dtype: DType = DType.Q4_0) -> Path:
    write_checkpoint(SIZES, path, format="gguf", dtype=dtype, seed=1)
    return path


def config(model: Path, **changes: object) -> EngineConfig:
    """An engine whose cache holds little more than two of the longest requests."""
    fields = {
        "model_path": model, "kv_cache_bytes": 1 << 16, "max_model_len": 192, "max_num_seqs": 6, "block_size": BLOCK,
        "max_num_batched_tokens": 64, "activations": "int8", **changes,
    }  # fmt: skip
    return EngineConfig(**fields)  # type: ignore[arg-type]


def traffic(seed: int, number: int) -> Iterator[tuple[Generate, int | None]]:
    """Requests, and after how many ids each is aborted, if it is."""
    source = random.Random(seed)
    families = [[source.randrange(400) for _ in range(90)] for _ in range(3)]
    for index in range(number):
        prompt = (*source.choice(families)[: source.randint(1, 90)], *(source.randrange(400) for _ in range(3)))
        max_tokens = source.randint(1, 60)
        sampling = Sampling(
            temperature=source.choice((0.0, 0.7, 1.0)),
            top_p=source.choice((1.0, 0.9)),
            seed=source.randrange(1 << 63),
            choice=source.randrange(3),
            max_tokens=max_tokens,
            min_tokens=source.choice((0, max_tokens)),
            stop_ids=frozenset(source.sample(range(400), 3)),
            frequency_penalty=source.choice((0.0, 0.5)),
            logit_bias=source.choice(((), ((7, 2.5),))),
            allowed_ids=source.choice(((), (), tuple(range(0, 400, 3)))),
            num_logprobs=source.choice((None, None, 0, 3)),
            num_prompt_logprobs=source.choice((None, None, None, 1)),
        )
        generate = Generate(
            request_id=RequestId(f"{seed}-{index}"),
            prompt_ids=prompt,
            sampling=sampling,
            thinking=source.choice((None, None, ThinkingLimit(max_tokens=4, end_id=9))),
            grammar=source.choice((None, None, None, GRAMMAR)) if not sampling.allowed_ids else None,
            cache_namespace=source.choice(("", "other")),
            service=source.choice(("interactive", "agent", "batch")),
        )
        yield generate, source.choice((None, None, None, source.randint(0, max_tokens)))


def record(folder: Path, engine_config: EngineConfig, requests: Iterable[tuple[Generate, int | None]]) -> None:
    """Ask a new engine, some requests at a time, and record what happens."""
    with open_model(engine_config.model_path) as files:
        texts = load_text(files).tokenizer.token_texts()
    with Engine.start(engine_config) as engine:
        engine.teach(texts)

        def header(run: int) -> Header:
            return Header(
                run=run, unix_s=1000.0, monotonic_s=time.monotonic(), model_name="tiny",
                model_path=str(engine_config.model_path), info=engine.info, tokenizer=vocabulary_hash(texts),
            )  # fmt: skip

        recorder = Recorder(folder, RingLimits(1 << 30, 1e9), header)
        engine.on_step = recorder.step
        places = threading.Semaphore(NUM_AT_ONCE)
        for generate, abort_after in requests:
            assert places.acquire(timeout=TIMEOUT_S)
            number = recorder.begin(generate, http_id=generate.request_id, key_id="", detail="full")
            assert number is not None
            _submit(engine, Take(recorder, generate, number, "full"), abort_after, places)
        for _ in range(NUM_AT_ONCE):
            assert places.acquire(timeout=TIMEOUT_S)
        recorder.close()


def _submit(engine: Engine, take: Take, abort_after: int | None, places: threading.Semaphore) -> None:
    num_ids = 0

    def on_event(event: Event) -> None:
        nonlocal num_ids
        take.see(event)
        if isinstance(event, Tokens):
            num_ids += len(event.token_ids)
        if isinstance(event, Finish):
            places.release()
        elif abort_after is not None and num_ids >= abort_after:
            engine.abort(event.request_id)

    engine.submit(take.asked, on_event)
    if abort_after == 0:
        engine.abort(take.asked.request_id)
