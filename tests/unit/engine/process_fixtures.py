"""What the tests of the engine's process share."""

import sys
from pathlib import Path
from typing import Any

from engine_fixtures import TIMEOUT_S, Receiver, generate, scripted_config, wait_until
from scripted_child import PROGRAM, SLOW

from freehold.engine.remote import ProcessEngine

HERE = Path(__file__).parent


def start(**settings: Any) -> ProcessEngine:
    return ProcessEngine.start(scripted_config(**settings), program=PROGRAM)


def submit(engine: ProcessEngine, name: str, prompt: tuple[int, ...], **sampling: Any) -> Receiver:
    receiver = Receiver()
    engine.submit(generate(name, prompt, **sampling), receiver)
    return receiver


def pid_of(engine: ProcessEngine) -> int:
    assert engine.pid is not None
    return engine.pid


def is_running(pid: int) -> bool:
    """Zombies don't count: whoever inherits them may be slow to bury them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def works(engine: ProcessEngine) -> None:
    """Comes back by itself, and answers."""
    wait_until(lambda: engine.health().ok)
    receiver = submit(engine, "next", (5, 6, 7), max_tokens=5)
    assert receiver.wait().reason == "length"
    assert receiver.token_ids == [5, 6, 7, 5, 6]


def decoding(engine: ProcessEngine) -> list[Receiver]:
    receivers = [submit(engine, str(i), (SLOW, i), max_tokens=4000) for i in range(20)]
    for receiver in receivers:
        assert receiver.first.wait(TIMEOUT_S)
    return receivers


def stand_in(what: str) -> list[str]:
    return [sys.executable, "-P", str(HERE / "false_child.py"), what]
