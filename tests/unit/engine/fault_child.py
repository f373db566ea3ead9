"""The engine's process in which something goes wrong, in one of its lives.

Arguments: a file that gets each life's process id, the life, and each fault as one word: ``PLAN:kill:3`` strikes at
the third time, ``PLAN:error:3``, ``COLLECT:step-error:3`` and ``PLAN:wait=4.5:3`` likewise; without a number it strikes
each time. A word without a colon is a switch, which is on in every life.
"""

import os
import sys
from pathlib import Path

from scripted_child import answers

from freehold.backends.base import StepError
from freehold.engine.process import main
from freehold.faults import Error, EveryNth, Fault, Forced, Kill, Nth, Point, Switch, Wait


def program(lives: Path, life: int, *words: str) -> list[str]:
    """The command for `ProcessEngine`."""
    return [sys.executable, __file__, str(lives), str(life), *words]


def fault_of(word: str) -> Fault:
    point, action, *number = word.split(":")
    return Fault(Point[point], action_of(action), Nth(int(number[0])) if number else EveryNth())


def action_of(name: str) -> Error | Wait | Kill:
    match name.split("="):
        case ["error"]:
            return Error(RuntimeError("a planted error"))
        case ["step-error"]:
            return Error(StepError("a planted error"))
        case ["kill"]:
            return Kill()
        case ["wait", seconds]:
            return Wait(float(seconds))
    raise ValueError(name)


def pids_of(lives: Path) -> list[int]:
    """Of all processes so far, the newest last."""
    return [int(line) for line in lives.read_text().splitlines()]


def begin_life(lives: Path) -> int:
    """Returns which one it is, from 1."""
    with lives.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return len(pids_of(lives))


if __name__ == "__main__":
    lives, life, *words = sys.argv[1:-1]
    is_struck = begin_life(Path(lives)) == int(life)
    faults: list[Fault | Forced] = [Forced(Switch[word]) for word in words if ":" not in word]
    faults += [fault_of(word) for word in words if ":" in word and is_struck]
    main(answers(), faults)
