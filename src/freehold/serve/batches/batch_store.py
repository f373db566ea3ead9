"""Batches: their records, their lines and the answers that have come."""

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from freehold.serve.batches.database import Database
from freehold.serve.batches.file_store import FileStore
from freehold.serve.batches.schema import (
    LIVE,
    BatchErrors,
    BatchObject,
    BatchPage,
    BatchRequest,
    BatchStatus,
    LineError,
    LineFault,
    OutputLine,
    RequestCounts,
)
from freehold.serve.failure import HttpError

MAX_LIVE = 100
"""Batches that have not ended, of one owner."""

_UNANSWERED: dict[BatchStatus, LineError] = {
    "expired": LineError("batch_expired", "the batch's completion window ended before this request was answered"),
    "cancelled": LineError("batch_cancelled", "the batch was cancelled before this request was answered"),
}

_MARKS = ", ".join("?" * len(LIVE))
_SELECT = "SELECT record, num_completed, num_failed FROM batches"

_decoder = msgspec.json.Decoder(BatchObject)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class LinePlace:
    """Where a line stands in its file. `number` counts from 1, `begin` is in bytes."""

    number: int
    begin: int
    num_bytes: int
    custom_id: str


class BatchStore:
    """The batches in a database. All methods run in the database's thread."""

    def __init__(self, database: Database, files: FileStore, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            clock: Unix seconds.
        """
        self._database = database
        self._files = files
        self._clock = clock

    # ------------------------------------------------------------------ what clients ask for

    def create(self, owner: str, request: BatchRequest, window_s: int) -> BatchObject:
        """Accept a batch. It has not been looked into its file yet.

        Raises:
            HttpError: 404, no such file; 409, the file isn't an input; 429, too many batches have not ended.
            sqlite3.OperationalError: the disk is full or broken.
        """
        if self._files.get(owner, request.input_file_id).purpose != "batch":
            raise HttpError(
                409, "the file is the output of a batch; upload one with purpose batch", param="input_file_id"
            )
        ((num_live,),) = self._database.rows(
            f"SELECT COUNT(*) FROM batches WHERE owner = ? AND status IN ({_MARKS})", owner, *LIVE
        )
        assert isinstance(num_live, int)
        if num_live >= MAX_LIVE:
            raise HttpError(429, f"{num_live} batches have not ended; wait for one, or cancel it", code="batches_full")
        created_at = int(self._clock())
        batch = BatchObject(
            id=f"batch_{secrets.token_hex(12)}",
            endpoint=request.endpoint,
            input_file_id=request.input_file_id,
            completion_window=request.completion_window,
            status="validating",
            created_at=created_at,
            expires_at=created_at + window_s,
            metadata=request.metadata,
        )
        lasts_s = None if request.output_expires_after is None else request.output_expires_after.seconds
        with self._database.transaction():
            self._database.write(
                "INSERT INTO batches (id, owner, status, input_file_id, output_lasts_s, record) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                batch.id, owner, batch.status, batch.input_file_id, lasts_s, _encoder.encode(batch),
            )  # fmt: skip
        return batch

    def get(self, owner: str, batch_id: str) -> BatchObject:
        """A batch of this owner's.

        Raises:
            HttpError: 404.
        """
        found = self._database.rows(f"{_SELECT} WHERE id = ? AND owner = ?", batch_id, owner)
        if not found:
            raise HttpError(404, f"there is no batch {batch_id[:100]!r}", code="batch_not_found")
        return _batch(found[0])

    def page(self, owner: str, *, after: str | None, limit: int) -> BatchPage:
        """Batches of this owner's, the newest first.

        Raises:
            HttpError: 404, there is no batch `after`.
        """
        begin: object = 1 << 62
        if after is not None:
            self.get(owner, after)
            ((begin,),) = self._database.rows("SELECT number FROM batches WHERE id = ?", after)
        found = self._database.rows(
            f"{_SELECT} WHERE owner = ? AND number < ? ORDER BY number DESC LIMIT ?", owner, begin, limit + 1
        )
        return BatchPage.of([_batch(row) for row in found], limit)

    def cancel(self, owner: str, batch_id: str) -> BatchObject:
        """Let a batch end. What has been answered will be in its output.

        Raises:
            HttpError: 404; 409 if it has ended, or its output is being written.
        """
        batch = self.get(owner, batch_id)
        if batch.status in ("validating", "in_progress"):
            batch.status, batch.cancelling_at = "cancelling", self._now()
            self._save(batch)
        elif batch.status != "cancelling":
            raise HttpError(409, f"the batch is {batch.status} and can't be cancelled", code="batch_ended")
        return batch

    # ------------------------------------------------------------------ what runs them asks for

    def live(self) -> list[tuple[str, str]]:
        """Ids of the batches that have not ended, the oldest first, and their owners."""
        found = self._database.rows(f"SELECT id, owner FROM batches WHERE status IN ({_MARKS}) ORDER BY number", *LIVE)
        return [(str(batch_id), str(owner)) for batch_id, owner in found]

    def input_path(self, batch: BatchObject) -> Path:
        """Where the bytes of its input are."""
        return self._files.path(batch.input_file_id)

    def fail(self, owner: str, batch_id: str, faults: list[LineFault]) -> None:
        """End a batch whose input is of no use. One that is being cancelled is left alone."""
        batch = self.get(owner, batch_id)
        if batch.status == "validating":
            batch.status, batch.failed_at, batch.errors = "failed", self._now(), BatchErrors(faults)
            self._save(batch)

    def begin(self, owner: str, batch_id: str, lines: Iterable[LinePlace]) -> None:
        """Note the lines of a batch whose input is in order; from here on they run. One that is being cancelled keeps
        its status."""
        batch, number = self.get(owner, batch_id), self._number(batch_id)
        with self._database.transaction():
            rows = ((number, line.number, line.begin, line.num_bytes, line.custom_id) for line in lines)
            self._database.write("DELETE FROM lines WHERE batch_number = ?", number)
            self._database.write_many("INSERT INTO lines VALUES (?, ?, ?, ?, ?)", rows)
            ((total,),) = self._database.rows("SELECT COUNT(*) FROM lines WHERE batch_number = ?", number)
            assert isinstance(total, int)
            batch.request_counts.total = total
            if batch.status == "validating":
                batch.status, batch.in_progress_at = "in_progress", self._now()
            self._write(batch)

    def next_line(self, batch_id: str, after: int) -> LinePlace | None:
        """The first line behind line `after` that has no answer; None if there is none."""
        found = self._database.rows(
            "SELECT line, begin, num_bytes, custom_id FROM lines WHERE batch_number = ?1 AND line > ?2 AND NOT EXISTS "
            "(SELECT 1 FROM answers WHERE batch_number = ?1 AND answers.line = lines.line) ORDER BY line LIMIT 1",
            self._number(batch_id), after,
        )  # fmt: skip
        return LinePlace(*found[0]) if found else None  # type: ignore[arg-type]

    def add_answer(self, batch_id: str, line: int, text: bytes, is_failure: bool) -> None:
        """Keep a line's answer. A line has one: a second is dropped.

        Raises:
            sqlite3.OperationalError: the disk is full or broken; nothing was written.
        """
        count = "num_failed" if is_failure else "num_completed"
        number = self._number(batch_id)
        with self._database.transaction():
            if self._database.write(
                "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", number, line, is_failure, text
            ):
                self._database.write(f"UPDATE batches SET {count} = {count} + 1 WHERE number = ?", number)

    def begin_end(self, owner: str, batch_id: str, is_overdue: bool) -> None:
        """No more lines of this batch run. One that is being cancelled keeps its status."""
        batch = self.get(owner, batch_id)
        if batch.status == "in_progress":
            with self._database.transaction():
                batch.status, batch.finalizing_at = "finalizing", self._now()
                self._write(batch)
                self._database.write("UPDATE batches SET is_overdue = ? WHERE id = ?", is_overdue, batch.id)

    def end(self, owner: str, batch_id: str) -> BatchObject:
        """Write what has been answered into files, and what hasn't; then the batch has ended. All of it holds, or none.

        Raises:
            OSError, sqlite3.OperationalError: the disk is full or broken. To be tried again.
        """
        batch = self.get(owner, batch_id)
        ((number, is_overdue, lasts_s),) = self._database.rows(
            "SELECT number, is_overdue, output_lasts_s FROM batches WHERE id = ?", batch_id
        )
        ends_as: BatchStatus = "completed"
        if batch.status == "cancelling":
            ends_as = "cancelled"
        elif is_overdue:
            ends_as = "expired"
        partial = {"output": self._files.new_path(), "error": self._files.new_path()}
        try:
            num_output = _write_file(partial["output"], self._answers(number, is_failure=False))
            num_error = _write_file(partial["error"], self._failures(batch, number, ends_as))
            with self._database.transaction():
                for kind, num_lines in (("output", num_output), ("error", num_error)):
                    if num_lines:
                        name = f"{batch_id}_{kind}.jsonl"
                        made = self._files.insert(
                            partial[kind],
                            owner=owner,
                            filename=name,
                            purpose="batch_output",
                            lasts_s=lasts_s,  # type: ignore[arg-type]
                        )
                        setattr(batch, f"{kind}_file_id", made.id)
                batch.status = ends_as
                setattr(batch, f"{ends_as}_at", self._now())
                batch.request_counts.failed = num_error
                self._write(batch)
                self._database.write("UPDATE batches SET num_failed = ? WHERE number = ?", num_error, number)
                for table in ("lines", "answers"):
                    self._database.write(f"DELETE FROM {table} WHERE batch_number = ?", number)
        finally:
            for path in partial.values():
                path.unlink(missing_ok=True)
        return batch

    def _answers(self, number: object, *, is_failure: bool) -> Iterator[bytes]:
        query = "SELECT text FROM answers WHERE batch_number = ? AND is_failure = ? ORDER BY line"
        for (text,) in self._database.each(query, number, is_failure):
            assert isinstance(text, bytes)
            yield text

    def _failures(self, batch: BatchObject, number: object, ends_as: BatchStatus) -> Iterator[bytes]:
        """Lines that were refused or failed; then those that nobody answered."""
        yield from self._answers(number, is_failure=True)
        query = (
            "SELECT line, custom_id FROM lines WHERE batch_number = ?1 AND NOT EXISTS "
            "(SELECT 1 FROM answers WHERE batch_number = ?1 AND answers.line = lines.line) ORDER BY line"
        )
        for line, custom_id in self._database.each(query, number):
            assert isinstance(custom_id, str)
            yield _encoder.encode(OutputLine(request_name(batch.id, line), custom_id, None, _UNANSWERED[ends_as]))  # type: ignore[arg-type]

    def _save(self, batch: BatchObject) -> None:
        with self._database.transaction():
            self._write(batch)

    def _write(self, batch: BatchObject) -> None:
        record = _encoder.encode(batch)
        self._database.write("UPDATE batches SET status = ?, record = ? WHERE id = ?", batch.status, record, batch.id)

    def _number(self, batch_id: str) -> object:
        return self._database.rows("SELECT number FROM batches WHERE id = ?", batch_id)[0][0]

    def _now(self) -> int:
        return int(self._clock())


def request_name(batch_id: str, line: int) -> str:
    """The id of a line's request."""
    return f"batch_req_{batch_id.removeprefix('batch_')}_{line}"


def _batch(row: tuple[object, ...]) -> BatchObject:
    record, num_completed, num_failed = row
    batch = _decoder.decode(record)  # type: ignore[arg-type]
    batch.request_counts = RequestCounts(batch.request_counts.total, num_completed, num_failed)  # type: ignore[arg-type]
    return batch


def _write_file(path: Path, lines: Iterable[bytes]) -> int:
    """Write lines and synchronize them with the disk; returns how many there are."""
    num_lines = 0
    with path.open("xb") as file:
        for line in lines:
            file.write(line + b"\n")
            num_lines += 1
        file.flush()
        os.fsync(file.fileno())
    return num_lines
