"""The engine through its client, over the scripted backend."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from freehold.backends.script import Break, FailStep, Gate, NotFinite, Scripts
from freehold.config import EngineConfig
from freehold.engine.client import AsyncEngine, Engine
from freehold.errors import EngineError, RequestError
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, Tokens

TIMEOUT_S = 60.0


class Receiver:
    """Collects one request's events."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.finish: Finish | None = None
        self.first = threading.Event()
        self.ended = threading.Event()

    def __call__(self, event: Event) -> None:
        assert self.finish is None, "an event after the last"
        if isinstance(event, Tokens):
            self.token_ids.extend(event.token_ids)
            self.first.set()
        else:
            self.finish = event
            self.ended.set()

    def wait(self) -> Finish:
        assert self.ended.wait(TIMEOUT_S)
        assert self.finish is not None
        return self.finish


def config(**settings: object) -> EngineConfig:
    return EngineConfig(model_path=Path("/nowhere"), backend="scripted", **settings)  # type: ignore[arg-type]


def generate(name: str, prompt: tuple[int, ...], **sampling: object) -> Generate:
    return Generate(request_id=RequestId(name), prompt_ids=prompt, sampling=Sampling(**sampling))  # type: ignore[arg-type]


@pytest.fixture
def scripts() -> Scripts:
    return Scripts()


@pytest.fixture
def engine(scripts: Scripts) -> Iterator[Engine]:
    with Engine.start(config(), scripts=scripts) as engine:
        yield engine
    engine.ledger().check(0)


def test_echo_is_the_default_script(engine: Engine) -> None:
    receiver = Receiver()
    engine.submit(generate("a", (5, 6, 7), max_tokens=5), receiver)
    finish = receiver.wait()
    assert receiver.token_ids == [5, 6, 7, 5, 6]
    assert (finish.reason, finish.num_prompt_tokens, finish.num_output_tokens) == ("length", 3, 5)
