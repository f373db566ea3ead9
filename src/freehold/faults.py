"""Fault points: named places where tests make things go wrong, and switches that force what is rare.

Tests arm them by calling `armed`: nothing in the environment, the settings or a message can. While nothing is armed,
a point costs a call and one branch that always goes the same way.
"""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum


class Point(Enum):
    """Where something can go wrong. The value says where that is."""

    LOAD_OPEN = "the engine opens the model's files"
    LOAD_WEIGHTS = "the engine packs the weights and reserves the KV cache"
    LOAD_CHECK = "the engine checks that the files it has loaded are still what they were"
    INBOX_TAKE = "the core takes the messages that have come"
    PLAN = "the core plans a step"
    ALLOCATE = "a request gets blocks, at the start or to grow"
    EVICT = "the prefix tree gives up blocks, because requests need them"
    SUBMIT = "the core submits a planned step"
    COPY = "the runner has blocks copied before a step"
    COLLECT = "the core has waited for a submitted step"
    APPLY = "the scheduler takes in what a step produced"
    PUBLISH = "the core passes events on"
    MASKS = "the core works out which ids rows may sample"
    CLOSE = "the core closes the backend; an engine's process ends without"
    IPC_SEND = "a process sends a message to the other: server or engine, wherever the fault is armed"
    IPC_RECEIVE = "a process has received bytes from the other: likewise"


class Switch(Enum):
    """What can be forced. The value says what that is."""

    PREEMPT = "before a step is planned, all running requests but the first are preempted"
    EVICT = "before a step is planned, all cached blocks that nobody holds are evicted"
    ROUNDS = "rounds have as many steps as any may have, however long these take"
    CHECK = "after a step is applied, all accounts of scheduler and blocks are compared"


@dataclass(frozen=True, slots=True)
class Error:
    """Raise this exception."""

    exception: Exception


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for so many seconds, or until the event is set."""

    seconds: float = threading.TIMEOUT_MAX
    until: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Kill:
    """End the process at once, as SIGKILL does."""


@dataclass(frozen=True, slots=True)
class Nth:
    """The so-manieth time only, counted from 1."""

    number: int


@dataclass(frozen=True, slots=True)
class EveryNth:
    """Each so-manieth time; 1 is always."""

    number: int = 1


@dataclass(frozen=True, slots=True)
class Chance:
    """With this probability each time, decided by a generator of its own."""

    probability: float
    seed: int


When = Nth | EveryNth | Chance


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at a point, and how often."""

    point: Point
    action: Error | Wait | Kill
    when: When = EveryNth()


@dataclass(frozen=True, slots=True)
class Forced:
    """A switch that is on, and how often."""

    switch: Switch
    when: When = EveryNth()


class _Armed:
    """A fault or switch, and how often its place was reached."""

    def __init__(self, what: Fault | Forced) -> None:
        self.what = what
        self._lock = threading.Lock()
        self._num_reached = 0
        self._random = random.Random(what.when.seed if isinstance(what.when, Chance) else 0)

    def is_due(self) -> bool:
        """Count the place as reached once more, and say whether it counts this time."""
        with self._lock:
            self._num_reached += 1
            match self.what.when:
                case Nth(number):
                    return self._num_reached == number
                case EveryNth(number):
                    return self._num_reached % number == 0
                case Chance(probability):
                    return self._random.random() < probability


_armed: dict[Point | Switch, list[_Armed]] = {}


def reach(point: Point) -> None:
    """Mark a fault point. Raises, waits or ends the process if a test has armed it to."""
    if _armed:
        _strike(point)


def is_forced(switch: Switch) -> bool:
    """Whether a test wants this to happen now."""
    return bool(_armed) and any(one.is_due() for one in tuple(_armed.get(switch, ())))


@contextmanager
def armed(*faults: Fault | Forced) -> Iterator[None]:
    """Arm faults and switches in this process. At the end whoever waits at one goes on."""
    added = [_Armed(fault) for fault in faults]
    for one in added:
        _armed.setdefault(_place(one), []).append(one)
    try:
        yield
    finally:
        for one in added:
            _armed[_place(one)].remove(one)
            if not _armed[_place(one)]:
                del _armed[_place(one)]
            if isinstance(one.what, Fault) and isinstance(one.what.action, Wait):
                one.what.action.until.set()


def _place(one: _Armed) -> Point | Switch:
    return one.what.point if isinstance(one.what, Fault) else one.what.switch


def _strike(point: Point) -> None:
    for one in tuple(_armed.get(point, ())):
        if isinstance(one.what, Fault) and one.is_due():
            match one.what.action:
                case Error(exception):
                    raise exception.with_traceback(None)  # or it would keep what it met the last time
                case Wait(seconds, until):
                    until.wait(seconds)
                case Kill():
                    os.kill(os.getpid(), signal.SIGKILL)
