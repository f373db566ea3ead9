"""The engine's process: ``python -m freehold.engine.process FD``, started by `freehold.engine.remote`.

FD is one end of a socket pair. The first message says what to load; then requests come in and events go out. The
process ends when it was drained, when its core failed, or when the other side is gone.
"""

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from freehold import logs
from freehold.backends.script import Scripts
from freehold.engine.core import Core
from freehold.engine.ipc import Channel, Ended, Events, FrameError, FromEngine, NotLoaded, Ready, Start, ToEngine
from freehold.engine.place import Stage
from freehold.engine.pulse import Pulse
from freehold.engine.start import load
from freehold.errors import OUT_OF_MEMORY, ResourceError, UserError
from freehold.faults import Fault, Forced, armed
from freehold.garbage import spare_collections
from freehold.protocol import Event, StepRows

BEAT_S = 0.25

MAX_BEHIND_BYTES = 1 << 20
"""While so much waits for the server to take it, it isn't told of steps."""

EXIT_FAILED = 70

_PR_SET_PDEATHSIG = 1

_log = logging.getLogger(__name__)


def main(scripts: Scripts | None = None, faults: Sequence[Fault | Forced] = ()) -> NoReturn:
    """Run one engine from start to end; the descriptor is the last argument.

    Args:
        scripts: what the ``scripted`` backend answers.
        faults: what shall go wrong, in tests.
    """
    with armed(*faults):
        _run(scripts)


def _run(scripts: Scripts | None) -> NoReturn:
    # Ctrl-C and a service manager's SIGTERM reach every process of a group; the server drains this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_parent()
    channel: Channel[ToEngine] = Channel(socket.socket(fileno=int(sys.argv[-1])), ToEngine)
    inbound = _Inbound(channel)
    start = inbound.first()
    logs.configure(start.log_level, start.log_format)
    pulse = Pulse()
    threading.Thread(target=inbound.pass_on, name="engine-inbound", daemon=True).start()
    threading.Thread(target=_beat, args=(channel, pulse), name="engine-pulse", daemon=True).start()

    def publish(events: Sequence[Event]) -> None:
        # What waits here because the server reads slowly is bounded by the max_tokens of the requests that it sent.
        if events:
            channel.send(Events(tuple(events)))

    def tell_step(rows: StepRows) -> None:
        if channel.pending_bytes < MAX_BEHIND_BYTES:
            channel.send(rows)

    def enter(stage: Stage) -> None:
        pulse.stage = stage

    try:
        loaded = load(
            start.config, publish=publish, scripts=scripts, on_stage=enter, on_profile=channel.send, on_step=tell_step
        )
    except MemoryError:
        _leave(channel, NotLoaded(ResourceError.__name__, OUT_OF_MEMORY))
    except UserError as error:
        _leave(channel, NotLoaded(type(error).__name__, str(error)))
    except Exception as error:
        _log.exception("the engine failed while it loaded the model")
        _leave(channel, NotLoaded("", f"{type(error).__name__}: {error}"))
    inbound.core = pulse.core = loaded.core
    spare_collections()
    channel.send(Ready(loaded.info, loaded.limits))
    loaded.core.run()
    _leave(channel, Ended(loaded.core.progress.fault))


class _Inbound:
    """Takes messages off the channel and gives them to the core."""

    def __init__(self, channel: Channel[ToEngine]) -> None:
        self.core: Core | None = None
        self._channel = channel
        self._ahead: list[ToEngine] = []

    def first(self) -> Start:
        """Wait for the first message. Ends the process if something else comes, or nothing any more."""
        try:
            while not self._ahead:
                self._ahead = self._channel.receive(None)
            first = self._ahead.pop(0)
            if not isinstance(first, Start):
                raise FrameError(f"the first message is {type(first).__name__}, not Start")
        except EOFError:
            os._exit(0)
        except FrameError as error:
            _reject(error)
        return first

    def pass_on(self) -> NoReturn:
        """A thread: hand on all that comes, then end the process, whatever the core is doing."""
        try:
            while True:
                for message in self._ahead or self._channel.receive(None):
                    if self.core is None or isinstance(message, Start):
                        raise FrameError(f"{type(message).__name__} came out of turn")
                    self.core.inbox.put(message)
                self._ahead = []
        except EOFError:
            os._exit(0)  # nobody is left to answer
        except FrameError as error:
            _reject(error)
        except Exception:
            _fail("the engine's process ends, as it can no longer listen to the server")


def _beat(channel: Channel[ToEngine], pulse: Pulse) -> NoReturn:
    """A thread: say that the process lives. While the server doesn't listen, nothing piles up."""
    try:
        while True:
            if not channel.pending_bytes:
                channel.send(pulse.take())
            time.sleep(BEAT_S)
    except Exception:
        _fail("the engine's process ends, as its heart has stopped")


def _leave(channel: Channel[ToEngine], last: FromEngine) -> NoReturn:
    """Say the last word and end at once: the system frees what the backend holds, whatever state it is in."""
    channel.send(last)
    channel.flush()
    logging.shutdown()
    os._exit(EXIT_FAILED if isinstance(last, Ended) and last.fault else 0)


def _reject(error: FrameError) -> NoReturn:
    _log.error("the engine's process ends, as it can't read what the server sends: %s", error)
    logging.shutdown()
    os._exit(EXIT_FAILED)


def _fail(what: str) -> NoReturn:
    """End the process because of the exception that is being handled. A thread that ended alone would leave the rest
    deaf or dumb."""
    _log.exception(what)
    logging.shutdown()
    os._exit(EXIT_FAILED)


def _die_with_parent() -> None:
    """Let the kernel end this process with the thread that started it, even while it is stopped or hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
