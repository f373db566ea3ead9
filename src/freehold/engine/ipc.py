"""What the server's process and the engine's say to each other, and how it travels.

Frames are msgpack after a length of four bytes, over a socket pair that no one else can reach. A frame becomes one of
the structs listed here or an error: the sender names no types, and nothing it sends is run.
"""

import logging
import select
import socket
import threading
from collections import deque
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from freehold.config import EngineConfig
from freehold.engine.place import Place
from freehold.faults import Point, reach
from freehold.logs import LogFormat
from freehold.observe.profile import NotProfiled, Profiled, StartProfile, StopProfile
from freehold.observe.state import EngineState
from freehold.protocol import Abort, Drain, EngineInfo, Event, Generate, StepRows, TokenTexts
from freehold.sched.admission import Limits

_log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 64 << 20
"""A prompt of a million tokens takes 5 MiB."""

_HEAD_BYTES = 4
_READ_BYTES = 1 << 18


class FrameError(Exception):
    """What arrived is no message. The connection is of no more use."""


class Start(msgspec.Struct, frozen=True, tag=True):
    """The first message to the engine's process: load this."""

    config: EngineConfig
    log_level: str
    log_format: LogFormat = "pretty"


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine is loaded. `limits` let the other side refuse requests by itself."""

    info: EngineInfo
    limits: Limits


class NotLoaded(msgspec.Struct, frozen=True, tag=True):
    """The engine can't be loaded. `kind` names the class of the error (`freehold.errors`)."""

    kind: str
    message: str


class Events(msgspec.Struct, frozen=True, tag=True):
    """All events of one step: one frame, however many requests run."""

    events: tuple[Event, ...]


class Beat(msgspec.Struct, frozen=True, tag=True):
    """Sent at a fixed interval: the process lives.

    Attributes:
        still_s: seconds for which a busy engine has finished no step, or loading has not moved; 0 if it is idle.
        is_starved: that has lasted for a while, and meanwhile the process used no processor time: it hangs.
        place: where the engine is in its work.
        state: the newest snapshot; None while the engine loads.
    """

    still_s: float
    is_starved: bool
    place: Place
    state: EngineState | None = None


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The last message: the core has ended, because it was told to or, if `fault` says so, because it failed."""

    fault: str


ToEngine = Start | TokenTexts | Generate | Abort | Drain | StartProfile | StopProfile
FromEngine = Ready | NotLoaded | StepRows | Events | Beat | Profiled | NotProfiled | Ended

Incoming = TypeVar("Incoming")


class Channel(Generic[Incoming]):
    """One end of the socket pair. Any thread may send; one thread receives.

    Sending never blocks: what the socket doesn't take waits in memory, and a thread passes it on. Whoever sends bounds
    what may wait (`pending_bytes`).

    Args:
        end: becomes the channel's own.
        incoming: the union of structs that may arrive.
    """

    def __init__(self, end: socket.socket, incoming: Any) -> None:
        self._end = end
        self._decoder: msgspec.msgpack.Decoder[Incoming] = msgspec.msgpack.Decoder(incoming, dec_hook=_decode_path)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode_path)
        self._received = bytearray()
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._changed = threading.Condition()
        self._pending: deque[memoryview] = deque()
        self._pending_bytes = 0
        self._is_closed = False
        self._writer = threading.Thread(target=self._write, name="engine-channel", daemon=True)
        self._writer.start()

    @property
    def pending_bytes(self) -> int:
        """Bytes that the other side has yet to take."""
        return self._pending_bytes

    def send(self, message: object) -> None:
        """Send a message, in order. If the other side is gone nothing happens; whoever receives learns of it.

        Raises:
            FrameError: the message is larger than a frame may be.
        """
        reach(Point.IPC_SEND)
        frame = bytearray(_HEAD_BYTES)
        self._encoder.encode_into(message, frame, _HEAD_BYTES)
        num_bytes = len(frame) - _HEAD_BYTES
        if num_bytes > MAX_FRAME_BYTES:
            raise FrameError(f"a message has {num_bytes} bytes; {MAX_FRAME_BYTES} are allowed")
        frame[:_HEAD_BYTES] = num_bytes.to_bytes(_HEAD_BYTES, "big")
        with self._changed:
            if self._is_closed:
                return
            rest = memoryview(frame)
            if not self._pending:
                rest = rest[self._send_now(rest) :]
            if rest:
                self._pending.append(rest)
                self._pending_bytes += len(rest)
                self._changed.notify_all()

    def receive(self, timeout_s: float | None) -> list[Incoming]:
        """The messages that have arrived; none if the time is over first. None waits for ever.

        Raises:
            EOFError: the other side is gone.
            FrameError: it sent what is no message.
        """
        if not self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            return []
        try:
            chunk = self._end.recv(_READ_BYTES)
        except OSError:
            chunk = b""
        reach(Point.IPC_RECEIVE)
        if not chunk:
            raise EOFError("the other side closed the connection")
        self._received += chunk
        return self._take_frames()

    def flush(self) -> None:
        """Wait until the other side has taken all, or is gone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pending or self._is_closed)

    def close(self) -> None:
        """End the connection; what is pending is dropped."""
        self._drop()
        self._writer.join()
        self._end.close()

    def _take_frames(self) -> list[Incoming]:
        messages: list[Incoming] = []
        start, view = 0, self._received
        while len(view) - start >= _HEAD_BYTES:
            body = start + _HEAD_BYTES
            num_bytes = int.from_bytes(view[start:body], "big")
            if num_bytes > MAX_FRAME_BYTES:
                raise FrameError(f"a frame claims {num_bytes} bytes; {MAX_FRAME_BYTES} are allowed")
            if len(view) < body + num_bytes:
                break
            try:
                messages.append(self._decoder.decode(view[body : body + num_bytes]))
            except (msgspec.MsgspecError, RecursionError) as error:
                raise FrameError(f"a frame is no message: {error}") from None
            start = body + num_bytes
        del view[:start]
        return messages

    def _send_now(self, frame: memoryview) -> int:
        """Give the socket what it takes at once; returns how many bytes that was."""
        try:
            return self._end.send(frame, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:  # full, or broken: the writer will see
            return 0

    def _write(self) -> None:
        """The writer's thread: passes on what the socket didn't take at once."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_closed)
                if self._is_closed:
                    return
                part = self._pending[0]
            try:
                self._end.sendall(part, socket.MSG_NOSIGNAL)
            except OSError:
                self._drop()
                return
            except Exception:
                _log.exception("nothing more can be sent; the connection ends")
                self._drop()  # a channel that is mute and looks alive would be worse
                return
            with self._changed:
                if not self._pending:
                    return  # dropped meanwhile
                self._pending.popleft()
                self._pending_bytes -= len(part)
                self._changed.notify_all()

    def _drop(self) -> None:
        """Give up on the other side."""
        with self._changed:
            self._is_closed = True
            self._pending.clear()
            self._pending_bytes = 0
            self._changed.notify_all()
        try:
            self._end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it was gone already


def _encode_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"a {type(value).__name__} can't be sent")


def _decode_path(kind: Any, value: Any) -> Path:
    if kind is not Path:
        raise NotImplementedError(f"a {kind} can't be received")
    if not isinstance(value, str):
        raise ValueError("a path is text")
    return Path(value)
