"""The engine's process with a scripted backend that takes its time: one id every 20 ms, without end."""

import itertools

from freehold.backends.script import Pause, Scripts
from freehold.engine.process import main

if __name__ == "__main__":
    main(Scripts(lambda _prompt: itertools.chain.from_iterable([Pause(0.02), 40 + i % 50] for i in range(4000))))
