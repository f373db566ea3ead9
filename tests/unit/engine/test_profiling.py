"""When profiles begin and end in the engine's loop, and what they keep, over a device that only counts."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from freehold.backends.base import DeviceProfile, NumericFormat, StepId
from freehold.engine import profiling
from freehold.engine.profiling import Profiling
from freehold.errors import ConfigError
from freehold.observe.profile import (
    MachineLimits,
    NotProfiled,
    Peak,
    Profiled,
    ProfileEnd,
    ProfileId,
    StartProfile,
)

FORM = NumericFormat(weights="q4g32m", activations="int8", kv="bf16", isa="avx2")
PEAK = Peak("int8", 1e12, True)
LIMITS = MachineLimits("avx2", 2, 0, 1e9, PEAK, PEAK)


class Device:
    """A step profiler that records nothing."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []

    def start(self, max_steps: int, max_spans: int) -> None:
        self.started.append((max_steps, max_spans))

    def stop(self) -> DeviceProfile:
        steps = np.array([[1, 2, 1, 1]] * 3, np.int64)
        busy = np.array([[[1, 2]] * 3, [[10, 20]] * 3], np.int64)
        return DeviceProfile(("a", "b"), 1000, steps, np.zeros((3, 2, 3)), busy, np.zeros((0, 8), np.int64), 5, 0)


class Loop:
    """A `Profiling` and what it said; its clock ticks at each reading."""

    def __init__(self, device: Device | None) -> None:
        self.ends: list[ProfileEnd] = []
        self.now_ns = 1000
        runner: Any = SimpleNamespace(profiler=device, numeric_format=FORM)
        self.profiling = Profiling(runner, 2, self.ends.append, self._tick)

    def _tick(self) -> int:
        self.now_ns += 10
        return self.now_ns

    def start(self, max_steps: int, *, number: int = 0, is_idle: bool = True) -> None:
        self.profiling.start(StartProfile(ProfileId(number), max_steps, 7), is_idle=is_idle)

    def run_steps(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.profiling.enter("submit")
            self.profiling.submitted(StepId(step))
            self.profiling.collected(StepId(step), 1)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Limits that are measured in no time; one entry each time."""
    calls: list[int] = []
    monkeypatch.setattr(profiling, "measured_limits", lambda num_threads, form: calls.append(num_threads) or LIMITS)
    return calls


def test_a_profile_ends_when_its_steps_are_collected(measured: list[int]) -> None:
    device = Device()
    loop = Loop(device)
    loop.start(3)
    assert device.started == [(3, 7)]
    loop.profiling.submitted(StepId(5))
    loop.profiling.collected(StepId(4), 1)  # was submitted before the profile began
    loop.profiling.collected(StepId(5), 1)
    loop.run_steps(6, 6)
    loop.profiling.end_if_complete()
    assert loop.ends == []
    loop.run_steps(7, 7)
    loop.profiling.end_if_complete()
    (end,) = loop.ends
    assert isinstance(end, Profiled)
    assert end.profile.num_steps == 3
    assert list(end.profile.each_busy()) == [[11, 22]] * 3
    assert end.profile.num_skipped_steps == 0, "the device counts on after the last that was wanted"
    assert [beat.start_ns for beat in end.profile.each_beat()] == [10, 20]
    loop.profiling.end_if_complete()
    loop.profiling.stop(ProfileId(0))
    assert len(loop.ends) == 1


def test_a_profile_is_stopped_by_its_own_number_only(measured: list[int]) -> None:
    loop = Loop(Device())
    loop.start(100, number=8)
    loop.profiling.stop(ProfileId(7))
    assert loop.ends == []
    loop.profiling.stop(ProfileId(8))
    (end,) = loop.ends
    assert isinstance(end, Profiled)
    assert (end.profile_id, end.profile.num_skipped_steps) == (8, 5)


def test_limits_are_measured_once_and_only_while_nothing_runs(measured: list[int]) -> None:
    loop = Loop(Device())
    loop.start(1, is_idle=False)
    (end,) = loop.ends
    assert isinstance(end, NotProfiled)
    assert (end.code, measured) == ("limits_unknown", [])
    for number in range(3):
        loop.start(1, number=number, is_idle=number == 0)
        loop.profiling.stop(ProfileId(number))
    assert measured == [2]
    assert all(isinstance(end, Profiled) for end in loop.ends[1:])


def test_limits_that_cant_be_measured_refuse_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> MachineLimits:
        raise ConfigError("measuring memory needs 512 MiB and 3 MiB are free")

    monkeypatch.setattr(profiling, "measured_limits", fail)
    loop = Loop(Device())
    loop.start(1)
    (end,) = loop.ends
    assert isinstance(end, NotProfiled)
    assert "3 MiB are free" in end.message


def test_a_backend_that_cant_be_profiled(measured: list[int]) -> None:
    loop = Loop(None)
    loop.start(1)
    loop.profiling.prepare()
    (end,) = loop.ends
    assert isinstance(end, NotProfiled)
    assert (end.code, measured) == ("profiling_unsupported", [])


def test_beats_are_bounded_and_the_rest_is_counted(measured: list[int]) -> None:
    loop = Loop(Device())
    loop.start(1)
    for _ in range(5000):
        loop.profiling.enter("plan")
    loop.profiling.stop(ProfileId(0))
    (end,) = loop.ends
    assert isinstance(end, Profiled)
    num_beats = len(list(end.profile.each_beat()))
    assert num_beats < 2000
    assert num_beats + end.profile.num_lost_beats == 5000
