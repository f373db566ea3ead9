"""The engine's process with a scripted backend whose answers have pauses and faults. A prompt's first id says which."""

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable

from freehold.backends.script import Break, Gate, Item, NotFinite, Pause, Scripts
from freehold.engine.process import main

SLOW, HANGS, BREAKS, NAN, LATE = 1005, 1006, 1007, 1008, 1009
PROGRAM = (sys.executable, "-P", __file__)

ANSWERS: dict[int, Callable[[], Iterable[Item]]] = {
    SLOW: lambda: itertools.chain.from_iterable([Pause(0.02), i] for i in range(4000)),
    HANGS: lambda: [6, Gate(threading.Event()), 7],
    BREAKS: lambda: [6, Break("device lost"), 7],
    NAN: lambda: [6, 7, NotFinite(), 8],
    LATE: lambda: [Pause(0.5), *range(50)],
}


def starts_with(first: int) -> Callable[[tuple[int, ...]], bool]:
    return lambda prompt: prompt[0] == first


def answer_with(items: Callable[[], Iterable[Item]]) -> Callable[[tuple[int, ...]], Iterable[Item]]:
    return lambda _prompt: items()


def answers() -> Scripts:
    scripts = Scripts()
    for first, items in ANSWERS.items():
        scripts.add_rule(starts_with(first), answer_with(items))
    return scripts


if __name__ == "__main__":
    if "--slow-start" in sys.argv:
        time.sleep(3600)
    main(answers())
