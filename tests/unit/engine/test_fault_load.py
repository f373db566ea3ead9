"""Errors, waits and kills while a real, tiny model loads: at the first start, and when the engine is started again."""

import gc
import os
import signal
import threading
from pathlib import Path

import pytest
from engine_fixtures import Receiver, generate, wait_until
from fault_child import pids_of, program

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.engine.remote import ProcessEngine
from freehold.errors import EngineError, ResourceError
from freehold.faults import Error, Fault, Point, armed
from freehold.files.tensors import DType
from freehold.synth import SynthConfig, write_checkpoint

LOAD_POINTS = {
    Point.LOAD_OPEN: "open the model's files",
    Point.LOAD_WEIGHTS: "load the weights",
    Point.LOAD_CHECK: "check the model's files",
}
TINY = SynthConfig(
    family="llama", hidden_size=64, intermediate_size=160, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    vocab_size=320,
)  # fmt: skip


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_checkpoint(TINY, path, format="gguf", dtype=DType.F16)
    return path


def config(model_path: Path, **settings: float) -> EngineConfig:
    return EngineConfig(model_path=model_path, kv_cache_bytes=4 << 20, max_model_len=256, **settings)  # type: ignore[arg-type]


def answer(engine: ProcessEngine) -> list[int]:
    receiver = Receiver()
    engine.submit(generate("a", (7, 8, 9), max_tokens=12, temperature=0.0), receiver)
    assert receiver.wait().reason == "length"
    return receiver.token_ids


@pytest.mark.parametrize(("action", "kind", "words"), [
    ("error", EngineError, "failed while it loaded the model: RuntimeError: a planted error"),
    ("kill", ResourceError, "ended by SIGKILL before the model was loaded.*memory"),
])  # fmt: skip
@pytest.mark.parametrize("point", LOAD_POINTS, ids=lambda point: point.name)
def test_at_the_first_start_it_is_an_error(
    point: Point, action: str, kind: type[Exception], words: str, model_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=words):
        ProcessEngine.start(config(model_path), program=program(tmp_path / "lives", 1, f"{point.name}:{action}"))
    assert len(pids_of(tmp_path / "lives")) == 1, "nobody tries again what fails at once"


@pytest.mark.parametrize("point", LOAD_POINTS, ids=lambda point: point.name)
def test_in_a_thread_a_load_that_fails_leaves_nothing_behind(point: Point, model_path: Path) -> None:
    def left() -> tuple[set[threading.Thread], int]:
        gc.collect()  # pytest's last error holds what it met
        return set(threading.enumerate()), len(os.listdir("/proc/self/fd"))

    with armed(Fault(point, Error(MemoryError("planted")))):
        for number in range(6):
            with pytest.raises(MemoryError, match="planted"):
                Engine.start(config(model_path))
            if number == 0:
                before = left()
        threads, num_descriptors = left()
    assert threads <= before[0], "threads that earlier tests left may end meanwhile; none may be new"
    assert num_descriptors <= before[1]
    with Engine.start(config(model_path)) as engine:
        assert engine.health().ok


@pytest.mark.parametrize(
    ("point", "action"),
    [
        pytest.param(point, action, marks=[pytest.mark.slow] if (i + k) % 2 else [], id=f"{point.name}-{action}")
        for i, point in enumerate(LOAD_POINTS)
        for k, action in enumerate(("error", "kill"))
    ],
)
def test_when_started_again_it_is_tried_once_more(point: Point, action: str, model_path: Path, tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    with ProcessEngine.start(config(model_path), program=program(lives, 2, f"{point.name}:{action}")) as engine:
        before = answer(engine)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        wait_until(lambda: len(pids_of(lives)) == 3 and engine.health().ok)
        assert answer(engine) == before
        assert engine.ledger().finished == 2


@pytest.mark.slow
def test_a_load_that_hangs_is_named_ended_and_tried_again(model_path: Path, tmp_path: Path) -> None:
    """All points in turn, one a life; the last life is good."""
    engines = []
    for point in LOAD_POINTS:
        lives = tmp_path / point.name
        command = program(lives, 2, f"{point.name}:wait=3600")
        engines.append((point, lives, ProcessEngine.start(config(model_path, stall_timeout_s=4.5), program=command)))
    for _, _, engine in engines:
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
    heard: dict[Point, set[str]] = {point: set() for point in LOAD_POINTS}

    def all_back() -> bool:
        for point, _, engine in engines:
            heard[point].add(engine.health().reason)
        return all(len(pids_of(lives)) == 3 and engine.health().ok for _, lives, engine in engines)

    wait_until(all_back)
    for point, _, engine in engines:
        hangs = [reason for reason in heard[point] if "has not moved" in reason and "is being started again" in reason]
        assert any(LOAD_POINTS[point] in reason for reason in hangs), heard[point]
        answer(engine)
        engine.shutdown()


def test_a_first_load_that_hangs_is_an_error_that_names_its_place(model_path: Path, tmp_path: Path) -> None:
    command = program(tmp_path / "lives", 1, "LOAD_WEIGHTS:wait=3600")
    with pytest.raises(ResourceError, match=r"has not moved for 4 s while it loads \(at: load the weights\)") as error:
        ProcessEngine.start(config(model_path, stall_timeout_s=3.5), program=command)
    assert "memory" not in str(error.value), "nothing points to it"


def test_a_load_that_pauses_for_less_is_left_alone(model_path: Path, tmp_path: Path) -> None:
    command = program(tmp_path / "lives", 1, "LOAD_WEIGHTS:wait=1.5")
    with ProcessEngine.start(config(model_path, stall_timeout_s=3), program=command) as engine:
        answer(engine)
    assert len(pids_of(tmp_path / "lives")) == 1
