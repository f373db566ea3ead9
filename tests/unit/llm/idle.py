"""Waiting for an engine to have nothing left to do."""

import time

from freehold.engine.client import Engine


def wait_until_idle(engine: Engine) -> None:
    end_s = time.monotonic() + 60
    while engine.num_live:
        assert time.monotonic() < end_s
        time.sleep(0.005)
