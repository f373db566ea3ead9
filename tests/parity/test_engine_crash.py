"""The real model in a process of its own: the tokens and digests of a thread, before and after a crash."""

import os
import signal
import threading
import time
from pathlib import Path

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.engine.handle import EngineHandle
from freehold.engine.remote import ProcessEngine
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling

TIMEOUT_S = 120.0
PROMPTS = [tuple(range(300, 300 + num_tokens)) for num_tokens in (1, 17, 33, 70)]


def answers(engine: EngineHandle) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ids and digests of all prompts, greedy and sampled, side by side."""
    heard: dict[str, list[Event]] = {}
    ended = threading.Semaphore(0)

    def hear(event: Event) -> None:
        heard[event.request_id].append(event)
        if isinstance(event, Finish):
            ended.release()

    for i, prompt in enumerate(PROMPTS):
        for temperature in (0.0, 1.0):
            name = RequestId(f"{i} {temperature}")
            heard[name] = []
            sampling = Sampling(temperature=temperature, seed=7 + i, max_tokens=12)
            engine.submit(Generate(request_id=name, prompt_ids=prompt, sampling=sampling, digests=True), hear)
    for _ in heard:
        assert ended.acquire(timeout=TIMEOUT_S)
    tokens = [[event for event in events if not isinstance(event, Finish)] for events in heard.values()]
    return [
        (tuple(i for event in events for i in event.token_ids), tuple(d for event in events for d in event.digests))
        for events in tokens
    ]


def test_a_crash_changes_no_token(smollm2_path: Path) -> None:
    config = EngineConfig(model_path=smollm2_path, num_threads=1, kv_cache_bytes=64 << 20, max_model_len=256)
    with ProcessEngine.start(config) as engine:
        before, fingerprint, pid = answers(engine), engine.info.fingerprint, engine.pid
        assert all(len(ids) == len(digests) == 12 for ids, digests in before)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        end_s = time.monotonic() + TIMEOUT_S
        while engine.pid in {None, pid}:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        assert answers(engine) == before
        assert engine.info.fingerprint == fingerprint
    with Engine.start(config) as thread:
        assert answers(thread) == before
        assert thread.info.fingerprint == fingerprint
