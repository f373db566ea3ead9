"""Fault points by themselves: which there are, what strikes there, and when."""

import ast
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import freehold
from freehold import faults
from freehold.faults import (
    Chance,
    Error,
    EveryNth,
    Fault,
    Forced,
    Kill,
    Nth,
    Point,
    Switch,
    Wait,
    armed,
    is_forced,
    reach,
)

SOURCES = sorted(Path(freehold.__file__).parent.rglob("*.py"))


class OopsError(Exception):
    """What the tests let happen."""


def strikes(when: faults.When, number: int) -> list[int]:
    """At which of so many times a fault strikes."""
    struck = []
    with armed(Fault(Point.PLAN, Error(OopsError()), when)):
        for i in range(1, number + 1):
            try:
                reach(Point.PLAN)
            except OopsError:
                struck.append(i)
    return struck


def test_how_often_it_strikes() -> None:
    assert strikes(EveryNth(), 5) == [1, 2, 3, 4, 5]
    assert strikes(EveryNth(3), 10) == [3, 6, 9]
    assert strikes(Nth(4), 10) == [4]
    by_chance = strikes(Chance(0.25, seed=1), 1000)
    assert 200 < len(by_chance) < 300
    assert by_chance == strikes(Chance(0.25, seed=1), 1000) != strikes(Chance(0.25, seed=2), 1000)


def test_it_strikes_at_its_point_alone_and_only_while_it_is_armed() -> None:
    with armed(Fault(Point.PLAN, Error(OopsError()))):
        for point in set(Point) - {Point.PLAN}:
            reach(point)
        with pytest.raises(OopsError):
            reach(Point.PLAN)
    for point in Point:
        reach(point)
    assert not faults._armed


def test_faults_at_one_point_strike_each_in_its_own_time() -> None:
    with armed(Fault(Point.PLAN, Error(OopsError()), Nth(1)), Fault(Point.PLAN, Error(KeyError()), Nth(1))):
        with pytest.raises(OopsError):
            reach(Point.PLAN)
        with pytest.raises(KeyError):
            reach(Point.PLAN)
        reach(Point.PLAN)


def test_waits_end_in_time_when_released_or_disarmed() -> None:
    with armed(Fault(Point.PLAN, Wait(0.05))):
        started_s = time.monotonic()
        reach(Point.PLAN)
        assert time.monotonic() - started_s >= 0.05
    release = threading.Event()
    for is_released in (True, False):
        with armed(Fault(Point.PLAN, Wait(until=release) if is_released else Wait())):
            waiting = threading.Thread(target=reach, args=(Point.PLAN,))
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
            if is_released:
                release.set()
                waiting.join(60)
        waiting.join(60)
        assert not waiting.is_alive()


def test_kill_ends_the_process_at_once() -> None:
    program = (
        "from freehold.faults import *\n"
        "with armed(Fault(Point.PLAN, Kill(), Nth(2))):\n"
        "    reach(Point.PLAN); print('once', flush=True); reach(Point.PLAN); print('twice', flush=True)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-9, "once\n")


def test_switches() -> None:
    assert not any(map(is_forced, Switch))
    with armed(Forced(Switch.PREEMPT, EveryNth(2)), Fault(Point.EVICT, Kill())):
        assert [is_forced(Switch.PREEMPT) for _ in range(4)] == [False, True, False, True]
        assert not is_forced(Switch.EVICT)
    assert not any(map(is_forced, Switch))


@pytest.mark.parametrize("names", [Point, Switch])
def test_an_unknown_name_is_an_error(names: type[Point] | type[Switch]) -> None:
    with pytest.raises(KeyError, match="NOWHERE"):
        names["NOWHERE"]
    with pytest.raises(AttributeError, match="NOWHERE"):
        _ = names.NOWHERE  # type: ignore[union-attr]
    assert all(len(one.value) > 20 for one in names), "each says in a sentence what it is"


def test_every_name_is_used_in_exactly_one_part() -> None:
    """A point that nothing reaches tests nothing; one in two parts would be two."""
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"Point", "Switch"}:
                places.setdefault(ast.unparse(node), set()).add(path.name)
    wanted = {f"Point.{point.name}" for point in Point} | {f"Switch.{switch.name}" for switch in Switch}
    assert set(places) == wanted
    assert all(len(files) == 1 for files in places.values()), places


def test_only_tests_arm_them() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert path.name in {"faults.py", "process.py"} or not re.search(r"\barmed\b", text), path
