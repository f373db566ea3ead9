"""The recorder: takes what happens to requests from any thread, and has a thread of its own write it.

It never makes a request wait or fail. What comes faster than the disk takes it is dropped and counted; if the disk
fails, recording stops with one line in the log, and is tried again now and then.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from freehold.amounts import amount
from freehold.errors import RecordingError
from freehold.observe.record.format import Begun, Detail, Encoder, Ended, Header, Stepped
from freehold.observe.record.hashes import PromptHasher
from freehold.observe.record.ring import Ring, RingLimits
from freehold.observe.record.traits import scrubbed, traits_of
from freehold.protocol import Generate, RequestId, StepRows

FLUSH_S = 0.1
"""So long frames are gathered before they are written: what a kill loses."""
RETRY_S = 30.0
"""So long after the disk has failed it is tried again; so often old segments are looked for."""
MAX_PENDING_BYTES = 64 << 20
"""About what may wait to be written."""

_FRAME_BYTES, _TOKEN_BYTES, _ROW_BYTES = 500, 40, 8
_NUM_REMEMBERED = 256  # ended requests that may still have a row in a step

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """Frames since start-up: beginnings and ends of requests, and steps."""

    written: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that the engine is asked for now. Fields as in `Begun`."""

    number: int
    http_id: str
    key_id: str
    detail: Detail
    at_s: float
    generate: Generate


class Recorder:
    """Writes the recording of one server.

    Args:
        header: of a run, given its number.

    Attributes:
        is_stopped: the disk has failed; nothing is recorded until it can be used again.
    """

    def __init__(self, folder: Path, limits: RingLimits, header: Callable[[int], Header]) -> None:
        self._folder = folder
        self._limits = limits
        self._header = header
        self._encoder = Encoder()
        self._hasher = PromptHasher(secrets.token_bytes(32))
        self._ring: Ring | None = None
        self._changed = threading.Condition()
        self._pending: list[Asked | Ended | Stepped] = []
        self._pending_bytes = 0
        self._num_begun = 0
        self._numbers: dict[RequestId, int] = {}
        self._ended: deque[RequestId] = deque()
        self._counts = RecordCounts()
        self._retry_s = 0.0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_stopped = False

    def open(self) -> None:
        """Open the folder now, so that what is wrong with it is known before the first request.

        Raises:
            RecordingError: it can't be written, or another server records into it.
        """
        try:
            self._ring = self._open_ring()
        except OSError as error:
            raise RecordingError(f"can't record into {self._folder}: {_reason(error)}") from None

    @property
    def counts(self) -> RecordCounts:
        """Frames written and dropped so far."""
        return self._counts

    def begin(self, generate: Generate, *, http_id: str, key_id: str, detail: Detail) -> int | None:
        """The engine is asked for a request. Returns the record's number; None if it can't be recorded now."""
        with self._changed:
            if self.is_stopped:
                self._count(dropped=1)
                return None
            number = self._num_begun + 1
            asked = Asked(number, http_id, key_id, detail, time.monotonic(), generate)
            if not self._put(asked, len(generate.prompt_ids) * _TOKEN_BYTES):
                return None
            self._num_begun = number
            self._numbers[generate.request_id] = number
        return number

    def end(self, request_id: RequestId, ended: Ended) -> None:
        """A request that has begun has ended."""
        with self._changed:
            self._put(ended, (len(ended.token_ids) + len(ended.prompt_logprobs)) * _TOKEN_BYTES)
            self._ended.append(request_id)
            if len(self._ended) > _NUM_REMEMBERED:
                self._numbers.pop(self._ended.popleft(), None)

    def step(self, rows: StepRows) -> None:
        """A step was done."""
        with self._changed:
            numbers = tuple(self._numbers.get(request_id, 0) for request_id in rows.request_ids)
            if not any(numbers):
                return
            stepped = Stepped(step_id=rows.step_id, ended_s=rows.ended_s, numbers=numbers, num_inputs=rows.num_inputs)
            self._put(stepped, len(numbers) * _ROW_BYTES)

    def close(self) -> None:
        """Write what is pending, and end."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _put(self, frame: Asked | Ended | Stepped, num_bytes: int) -> bool:
        """Let a frame be written, if so much more may wait. Called with the lock held."""
        num_bytes += _FRAME_BYTES
        if self.is_stopped or self._closing.is_set() or self._pending_bytes + num_bytes > MAX_PENDING_BYTES:
            self._count(dropped=1)
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
            self._thread.start()
        if not self._pending:
            self._changed.notify_all()
        self._pending.append(frame)
        self._pending_bytes += num_bytes
        return True

    def _count(self, *, written: int = 0, dropped: int = 0) -> None:
        """Called with the lock held."""
        before = self._counts
        self._counts = replace(before, written=before.written + written, dropped=before.dropped + dropped)

    # ------------------------------------------------------------------ the recorder's thread

    def _run(self) -> None:
        is_last = False
        while not is_last:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closing.is_set(), RETRY_S)
            is_last = self._closing.wait(FLUSH_S)
            with self._changed:
                frames, self._pending, self._pending_bytes = self._pending, [], 0
            self._work(frames)

    def _work(self, frames: list[Asked | Ended | Stepped]) -> None:
        """Write some frames; if that fails, stop recording, or go on if it works again."""
        if self.is_stopped and time.monotonic() < self._retry_s:
            return
        num_written = 0
        try:
            if self._ring is None:
                self._ring = self._open_ring()
            if self.is_stopped:
                self._ring.probe()
            encoded = [body for frame in frames if (body := self._encoded(frame))]
            self._ring.append(encoded)
            num_written = len(encoded)
        except (OSError, RecordingError) as error:
            self._stop(error)
        except Exception:
            _log.exception("some records can't be written and are dropped")
        else:
            self._go_on()
        with self._changed:
            self._count(written=num_written, dropped=len(frames) - num_written)

    def _encoded(self, frame: Asked | Ended | Stepped) -> bytes:
        try:
            return self._encoder.encode(self._begun(frame) if isinstance(frame, Asked) else frame)
        except RecordingError as error:
            _log.warning("a record is dropped: %s", error)
            return b""

    def _begun(self, asked: Asked) -> Begun:
        generate = asked.generate
        return Begun(
            number=asked.number,
            request_id=generate.request_id,
            http_id=asked.http_id,
            key_id=asked.key_id,
            detail=asked.detail,
            at_s=asked.at_s,
            num_prompt_tokens=len(generate.prompt_ids),
            hash_ids=self._hasher.blocks(generate.cache_namespace, generate.prompt_ids),
            traits=traits_of(generate),
            generate=scrubbed(generate, self._hasher) if asked.detail == "full" else None,
        )

    def _open_ring(self) -> Ring:
        headers: dict[int, bytes] = {}

        def header(run: int) -> bytes:
            if run not in headers:  # one for all segments of a run, so that their times are on one scale
                headers[run] = self._encoder.encode(self._header(run))
            return headers[run]

        return Ring(self._folder, self._limits, header)

    def _stop(self, error: OSError | RecordingError) -> None:
        if not self.is_stopped:
            _log.error(
                "recording has stopped, requests are served as before: %s; it is tried again every %g s",
                error if isinstance(error, RecordingError) else f"{self._folder} can't be written: {_reason(error)}",
                RETRY_S,
            )
        if self._ring is not None and self._ring.is_gone:
            self._ring.close()
            self._ring = None
        self._retry_s = time.monotonic() + RETRY_S
        self.is_stopped = True

    def _go_on(self) -> None:
        if self.is_stopped:
            missing = amount(self._counts.dropped, "record is", "records are")
            _log.warning("recording goes on; %s missing", missing)
        if self._ring is not None and self._ring.take_loss():
            _log.warning("the segment that was being written was deleted from %s; a new one was begun", self._folder)
        self.is_stopped = False


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
