"""The engine's process, whose time of day jumps an hour to and fro all the time."""

import itertools
import threading
import time

from scripted_child import answers

from freehold.engine.process import main

JUMPS_S = (3600.0, -3600.0, 0.0)


def let_clocks_jump() -> None:
    """From now on every reading of the time of day is an hour early, an hour late, or right."""
    jumps, right_s = itertools.cycle(JUMPS_S), time.time
    time.time = lambda: right_s() + next(jumps)
    time.time_ns = lambda: int(time.time() * 1e9)


def keep_reading() -> None:
    while True:
        time.time()
        time.sleep(0.01)


if __name__ == "__main__":
    let_clocks_jump()
    threading.Thread(target=keep_reading, daemon=True).start()
    main(answers())
