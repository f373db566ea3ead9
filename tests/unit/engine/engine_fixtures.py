"""What the engine's tests share: requests, a receiver of events, a patient wait."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from freehold.config import EngineConfig
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, ServiceClass, Tokens

TIMEOUT_S = 60.0


class Receiver:
    """Collects one request's events."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.digests: list[int] = []
        self.finish: Finish | None = None
        self.num_late = 0
        self.first = threading.Event()
        self.ended = threading.Event()

    def __call__(self, event: Event) -> None:
        if self.finish is not None:
            self.num_late += 1
        if isinstance(event, Tokens):
            self.token_ids.extend(event.token_ids)
            self.digests.extend(event.digests)
            self.first.set()
        else:
            self.finish = event
            self.ended.set()

    def wait(self) -> Finish:
        """The request's end."""
        assert self.ended.wait(TIMEOUT_S)
        assert self.finish is not None
        assert self.num_late == 0, "an event after the last"
        return self.finish


def scripted_config(**settings: Any) -> EngineConfig:
    return EngineConfig(model_path=Path("/nowhere"), backend="scripted", **settings)


def generate(
    name: str,
    prompt: tuple[int, ...],
    *,
    digests: bool = False,
    service: ServiceClass = "interactive",
    **sampling: Any,
) -> Generate:
    return Generate(
        request_id=RequestId(name),
        prompt_ids=prompt,
        sampling=Sampling(**sampling),
        digests=digests,
        service=service,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Fails if the condition doesn't become true in good time."""
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.005)
