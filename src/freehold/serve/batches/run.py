"""One batch from its first line to its files."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import msgspec
from starlette.types import ASGIApp

from freehold.access.keys import KeyId
from freehold.amounts import amount
from freehold.errors import FreeholdError, RequestError
from freehold.serve.batches.batch_store import LinePlace, request_name
from freehold.serve.batches.lines import InputFileError, parse_line, read_input
from freehold.serve.batches.schema import BatchObject, LineFault, LineResponse, OutputLine
from freehold.serve.batches.state import BatchState
from freehold.serve.entrance.caller import Caller
from freehold.serve.entrance.record import Record
from freehold.serve.failure import HttpError, describe
from freehold.serve.inprocess import Reply, post
from freehold.serve.schema import FailureBody

RETRY_S = 0.5
"""How long to wait before a line is offered again that the server had no room for, or an answer that the disk had none
for."""
MAX_RETRY_S = 30.0
MAX_DEATHS = 3
"""So often may the engine die while a line runs before the line is taken for the cause."""

_PASSING = frozenset({429, 503})
"""Statuses that a little patience overcomes, but for these codes:"""
_LASTING = frozenset({"insufficient_quota"})

_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Streams(msgspec.Struct):
    """The one field of a body that lines may not have as requests have it."""

    stream: Any = None


_streams_decoder = msgspec.json.Decoder(_Streams)
_failure_decoder = msgspec.json.Decoder(FailureBody)


@dataclass(frozen=True, slots=True)
class Means:
    """What all batches run with.

    Attributes:
        app: answers the lines.
        places: as many lines run at the same time, of all batches together. Batches get them in turn.
    """

    state: BatchState
    app: ASGIApp
    places: asyncio.Semaphore
    max_body_bytes: int

    async def keep(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Do something in the stores' thread, again and again until the disk takes it."""
        wait_s = RETRY_S
        while True:
            try:
                return await self.state.run(work, *arguments)
            except (OSError, sqlite3.OperationalError) as error:
                _log.error("batches can't be written, trying again in %g s: %s", wait_s, error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_RETRY_S)


class BatchRun:
    """Takes a batch as far as it goes: checks its input, runs its lines, writes its files.

    Each of these begins where a process that died has left off. A line's answer is kept as soon as it is there; lines
    that were running are run again, and get the same tokens.
    """

    def __init__(self, means: Means, owner: str, batch_id: str) -> None:
        self._means = means
        self._batches = means.state.batches
        self._owner = owner
        self._batch_id = batch_id
        self._is_cancelled = asyncio.Event()

    def cancel(self) -> None:
        """The batch has become ``cancelling``: end what runs of it."""
        self._is_cancelled.set()

    async def run(self) -> None:
        """Return when the batch has ended. Cancelling this leaves it to be taken up again by a later run."""
        keep = self._means.keep
        batch = await keep(self._batches.get, self._owner, self._batch_id)
        if batch.status == "validating":
            await self._validate(batch)
            batch = await keep(self._batches.get, self._owner, self._batch_id)
        if batch.status == "in_progress":
            is_overdue = await self._run_lines(batch)
            await keep(self._batches.begin_end, self._owner, self._batch_id, is_overdue)
        if batch.status != "failed":
            batch = await keep(self._batches.end, self._owner, self._batch_id)
        counts = batch.request_counts
        _log.info(
            "%s %s: %s, %d answered, %d failed",
            batch.id, batch.status, amount(counts.total, "request"), counts.completed, counts.failed,
        )  # fmt: skip

    async def _validate(self, batch: BatchObject) -> None:
        path = self._batches.input_path(batch)
        try:
            places = await asyncio.to_thread(read_input, path, batch.endpoint, self._means.max_body_bytes)
        except InputFileError as error:
            await self._means.keep(self._batches.fail, self._owner, batch.id, error.faults)
        except OSError as error:
            fault = LineFault(code="unreadable_file", message=f"the input file can't be read: {error.strerror}")
            await self._means.keep(self._batches.fail, self._owner, batch.id, [fault])
        else:
            await self._means.keep(self._batches.begin, self._owner, batch.id, places)

    async def _run_lines(self, batch: BatchObject) -> bool:
        """Run the lines that have no answer. True if the batch's time was up before that was done."""
        filling = asyncio.ensure_future(self._fill(batch))
        cancelling = asyncio.ensure_future(self._is_cancelled.wait())
        left_s = max(0.0, batch.expires_at - time.time())
        try:
            done, _ = await asyncio.wait({filling, cancelling}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if filling in done:
                filling.result()
            return not done
        finally:
            cancelling.cancel()
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)

    async def _fill(self, batch: BatchObject) -> None:
        """Start lines as there are places, and wait for all of them."""
        places, after = self._means.places, 0
        async with asyncio.TaskGroup() as lines:
            while (place := await self._means.keep(self._batches.next_line, batch.id, after)) is not None:
                after = place.number
                await places.acquire()
                lines.create_task(self._run_line(batch, place)).add_done_callback(lambda _: places.release())

    async def _run_line(self, batch: BatchObject, place: LinePlace) -> None:
        request_id = request_name(batch.id, place.number)
        try:
            text = await asyncio.to_thread(_read, self._batches.input_path(batch), place)
            reply = await self._answer(batch.endpoint, bytes(_body(text)), request_id)
        except FreeholdError as error:
            status, failure = describe(error)
            reply = Reply(status, {}, _encoder.encode(FailureBody(failure)))
        response = LineResponse(reply.status, request_id, msgspec.Raw(reply.body))
        line = _encoder.encode(OutputLine(request_id, place.custom_id, response))
        await self._means.keep(self._batches.add_answer, batch.id, place.number, line, reply.status != 200)

    async def _answer(self, endpoint: str, body: bytes, request_id: str) -> Reply:
        """What a client would be answered who is patient: refusals for want of room aren't the last word."""
        wait_s, num_deaths = RETRY_S, 0
        caller = Caller(KeyId(self._owner), service="batch")
        while True:
            reply = await post(self._means.app, endpoint, body, caller=caller, record=Record(request_id))
            if reply.status not in _PASSING:
                return reply
            code = _code(reply)
            num_deaths += code == "engine_died"
            if code in _LASTING or num_deaths == MAX_DEATHS:
                return reply
            await asyncio.sleep(min(max(wait_s, float(reply.headers.get("retry-after", 0))), MAX_RETRY_S))
            wait_s = min(2 * wait_s, MAX_RETRY_S)


def _code(reply: Reply) -> str | None:
    """Why it was refused, for machines."""
    try:
        return _failure_decoder.decode(reply.body).error.code
    except msgspec.DecodeError:
        return None  # in another surface's form


def _read(path: Path, place: LinePlace) -> bytes:
    """
    Raises:
        HttpError: the file isn't what it was.
    """
    try:
        with path.open("rb") as file:
            file.seek(place.begin)
            return file.read(place.num_bytes)
    except OSError as error:
        raise HttpError(500, f"the input file can't be read: {error.strerror}", code="unreadable_file") from None


def _body(text: bytes) -> msgspec.Raw:
    """The body of the request in a line.

    Raises:
        RequestError: it asks for a stream.
    """
    body = parse_line(text).body
    try:
        stream = _streams_decoder.decode(body).stream
    except msgspec.DecodeError:
        stream = None  # whoever answers requests says what is wrong
    if stream:
        raise RequestError("stream is true; answers of a batch come whole, in its output file", param="stream")
    return body
