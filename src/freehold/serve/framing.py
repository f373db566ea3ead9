"""Framings of event streams: how events, errors, the end and silence are written."""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from freehold.serve.messages.failure import message_failure
from freehold.serve.schema import Failure, FailureBody

_encoder = msgspec.json.Encoder()


class Framing(Protocol):
    """One surface's way to write server-sent events.

    Attributes:
        end: comes last, also after an error.
        heartbeat: comes when nothing else does, so that no proxy takes the stream for dead.
    """

    @property
    def end(self) -> bytes: ...

    @property
    def heartbeat(self) -> bytes: ...

    def event(self, event: msgspec.Struct) -> bytes:
        """An event."""
        ...

    def failure(self, status: int, failure: Failure, request_id: str) -> bytes:
        """The event of an error that ends the stream."""
        ...


@dataclass(frozen=True, slots=True)
class _DataOnly:
    """OpenAI's: events without names, and ``[DONE]``."""

    end: bytes = b"data: [DONE]\n\n"
    heartbeat: bytes = b": still working\n\n"

    def event(self, event: msgspec.Struct) -> bytes:
        return b"data: " + _encoder.encode(event) + b"\n\n"

    def failure(self, _status: int, failure: Failure, _request_id: str) -> bytes:
        return self.event(FailureBody(failure))


@dataclass(frozen=True, slots=True)
class _Typed:
    """Anthropic's: each event has its type as name; the last one says that it is."""

    end: bytes = b""
    heartbeat: bytes = b'event: ping\ndata: {"type":"ping"}\n\n'

    def event(self, event: msgspec.Struct) -> bytes:
        name = str(event.__struct_config__.tag).encode()
        return b"event: " + name + b"\ndata: " + _encoder.encode(event) + b"\n\n"

    def failure(self, status: int, failure: Failure, request_id: str) -> bytes:
        return self.event(message_failure(status, failure, request_id))


DATA_ONLY: Framing = _DataOnly()
TYPED_EVENTS: Framing = _Typed()
