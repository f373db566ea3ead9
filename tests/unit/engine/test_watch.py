"""What heartbeats say, and what the supervisor makes of them and of their absence; with clocks of the test's own."""

import resource
import time
from types import SimpleNamespace
from typing import Any

import pytest

from freehold.engine.ipc import Beat
from freehold.engine.place import Place
from freehold.engine.pulse import STARVED_S, Pulse
from freehold.engine.watch import DEAD_S, SILENT_S, Watch

STALL_S = 60.0
IDLE = Beat(0.0, False, "idle")


class Machine:
    """The clocks and counters that the code reads, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.cpu_s = 5.0
        self.num_read = 0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "process_time", lambda: self.cpu_s)
        monkeypatch.setattr(
            resource, "getrusage", lambda _who: SimpleNamespace(ru_majflt=self.num_read, ru_inblock=self.num_read)
        )

    def pass_time(self, seconds: float, *, cpu: float = 0.0, num_read: int = 0) -> None:
        self.now_s += seconds
        self.cpu_s += cpu * seconds
        self.num_read += num_read


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def core(machine: Machine) -> Any:
    """A core that has been busy since now."""
    since_s = machine.now_s
    progress = SimpleNamespace(place="collect", is_busy=True)
    return SimpleNamespace(progress=progress, still_s=lambda: machine.now_s - since_s, state=lambda: None)


# ---------------------------------------------------------------------- the pulse


@pytest.mark.parametrize("cpu", [0.0, 0.01, 0.05, 1.0, 8.0])
def test_a_step_hangs_if_it_takes_long_and_uses_no_processor_time(machine: Machine, cpu: float) -> None:
    pulse = Pulse()
    pulse.core = core(machine)
    for _ in range(20):
        beat = pulse.take()
        assert beat.place == "collect"
        assert beat.is_starved == (beat.still_s > STARVED_S and cpu < 0.02)
        machine.pass_time(0.5, cpu=cpu)
    assert beat.still_s == 9.5


def test_each_step_is_measured_by_itself(machine: Machine) -> None:
    """What the steps before have used doesn't count for the one that hangs."""
    pulse = Pulse()
    for _ in range(10):
        pulse.core = core(machine)
        pulse.take()
        machine.pass_time(0.5, cpu=1.0)
    pulse.core = core(machine)
    beats = []
    for _ in range(9):
        beats.append(pulse.take())
        machine.pass_time(0.5)
    assert [beat.is_starved for beat in beats] == [False] * 7 + [True] * 2


def test_an_idle_core_is_idle_however_long(machine: Machine) -> None:
    pulse = Pulse()
    pulse.core = SimpleNamespace(  # type: ignore[assignment]
        progress=SimpleNamespace(place="inbox", is_busy=False), still_s=lambda: 0.0, state=lambda: None
    )
    for _ in range(20):
        assert pulse.take() == IDLE
        machine.pass_time(1000)


@pytest.mark.parametrize(("cpu", "num_read", "is_hung"), [(0.0, 0, True), (0.5, 0, False), (0.0, 1, False)])
def test_loading_hangs_if_it_neither_computes_nor_reads(
    machine: Machine, cpu: float, num_read: int, is_hung: bool
) -> None:
    pulse = Pulse()
    pulse.stage = "load the weights"
    beats = []
    for _ in range(20):
        machine.pass_time(0.5, cpu=cpu, num_read=num_read)
        beats.append(pulse.take())
    assert {beat.place for beat in beats} == {"load the weights"}
    assert any(beat.is_starved for beat in beats) == is_hung
    assert (beats[-1].still_s > 9) == is_hung


# ---------------------------------------------------------------------- the watch


def turns(watch: Watch, machine: Machine, seconds: float, *, heard: Beat | None = None, num_live: int = 0) -> None:
    """The supervisor goes round for so long, and hears the same all the time."""
    for _ in range(round(seconds / 0.25)):
        machine.pass_time(0.25)
        watch.turn(0.25, has_heard=heard is not None, num_live=num_live)
        if heard is not None:
            watch.heard(heard)


def test_silence(machine: Machine) -> None:
    watch = Watch(STALL_S)
    turns(watch, machine, SILENT_S - 0.5)
    assert not watch.why_not_healthy()
    turns(watch, machine, 0.5)
    assert "said nothing for 3 s" in watch.why_not_healthy()
    assert not watch.why_to_end_it(is_loading=False)
    turns(watch, machine, DEAD_S - SILENT_S)
    assert "said nothing for 10 s and was ended" in watch.why_to_end_it(is_loading=False)
    assert not watch.why_to_end_it(is_loading=True), "starting an interpreter may take longer"
    turns(watch, machine, 0.25, heard=IDLE)
    assert not watch.why_not_healthy()
    assert not watch.why_to_end_it(is_loading=False)


def test_a_suspended_machine_blames_nobody(machine: Machine) -> None:
    watch = Watch(STALL_S)
    turns(watch, machine, 1, heard=IDLE)
    machine.pass_time(3600)
    watch.turn(3600, has_heard=False, num_live=3)
    assert not watch.why_not_healthy()
    assert not watch.why_to_end_it(is_loading=False)


def test_a_supervisor_without_a_turn(machine: Machine) -> None:
    watch = Watch(STALL_S)
    turns(watch, machine, 1, heard=IDLE)
    machine.pass_time(SILENT_S)
    assert "supervisor has been held up for 3 s" in watch.why_not_healthy()
    turns(watch, machine, 0.25, heard=IDLE)
    assert not watch.why_not_healthy()


PLACES: list[Place] = ["plan", "collect", "load the weights"]


@pytest.mark.parametrize("place", PLACES)
def test_stalls_are_named(machine: Machine, place: Place) -> None:  # op-01
    watch = Watch(STALL_S)
    for still_s, is_starved, is_healthy, may_live in (
        (2.0, False, True, True),
        (4.0, True, False, True),
        (59.0, False, True, True),
        (61.0, False, False, False),
        (61.0, True, False, False),
    ):
        turns(watch, machine, 0.25, heard=Beat(still_s, is_starved, place), num_live=1)
        assert bool(watch.why_not_healthy()) != is_healthy
        assert is_healthy or f"(at: {place})" in watch.why_not_healthy()
        assert bool(watch.why_to_end_it(is_loading=False)) != may_live


def test_requests_that_an_idle_engine_never_got(machine: Machine) -> None:
    watch = Watch(STALL_S)
    turns(watch, machine, 100, heard=IDLE)
    assert not watch.why_not_healthy(), "nobody waits"
    turns(watch, machine, SILENT_S, heard=IDLE, num_live=2)
    assert "requests have not reached it" in watch.why_not_healthy()
    watch.got_events()
    assert not watch.why_not_healthy()
    turns(watch, machine, SILENT_S, heard=IDLE, num_live=2)
    turns(watch, machine, 0.25, heard=Beat(0.1, False, "collect"), num_live=2)
    turns(watch, machine, 0.25, heard=IDLE, num_live=2)
    assert not watch.why_not_healthy(), "it has worked in between"
    turns(watch, machine, STALL_S + 1, heard=IDLE, num_live=2)
    assert "did not reach the engine's process" in watch.why_to_end_it(is_loading=False)
