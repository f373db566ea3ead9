"""Files: their records in the database, their bytes beside it."""

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from freehold.serve.batches.database import Database
from freehold.serve.batches.schema import LIVE, FileObject, FilePage, FilePurpose
from freehold.serve.failure import HttpError

UPLOAD_LASTS_S = 30 * 86400
"""An uploaded file goes by itself after a month unless it says otherwise."""
_PARTIAL = ".partial-"
_MARKS = ", ".join("?" * len(LIVE))
_IN_USE = f"SELECT input_file_id FROM batches WHERE status IN ({_MARKS})"

_decoder = msgspec.json.Decoder(FileObject)


class FileStore:
    """The files in a database. All methods run in the database's thread but `path` and `new_path`.

    A file appears whole or not at all: its bytes are written under another name and get their own name just before its
    record is written. What a crash leaves without a record goes at the next start.
    """

    def __init__(self, database: Database, *, max_total_bytes: int, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            max_total_bytes: what all files may take before no more are uploaded.
            clock: Unix seconds.
        """
        self._database = database
        self._max_total_bytes = max_total_bytes
        self._clock = clock

    def path(self, file_id: str) -> Path:
        """Where a file's bytes are."""
        return self._database.files / file_id

    def new_path(self) -> Path:
        """A name for bytes that no record tells of yet."""
        return self._database.files / f"{_PARTIAL}{secrets.token_hex(8)}"

    def sweep(self) -> None:
        """Remove what has expired, and bytes without a record."""
        now_s = self._clock()
        with self._database.transaction():
            expired = self._database.rows(
                f"SELECT id FROM files WHERE expires_at <= ? AND id NOT IN ({_IN_USE})", now_s, *LIVE
            )
            for (file_id,) in expired:
                self._database.write("DELETE FROM files WHERE id = ?", file_id)
        known = {file_id for (file_id,) in self._database.rows("SELECT id FROM files")}
        for path in self._database.files.iterdir():
            if path.name not in known and not path.name.startswith(_PARTIAL):
                path.unlink(missing_ok=True)

    def remove_partial(self) -> None:
        """Remove what an earlier process left half-written. Only before anything is written."""
        for path in self._database.files.glob(f"{_PARTIAL}*"):
            path.unlink(missing_ok=True)

    def check_room(self, num_bytes: int) -> None:
        """Refuse an upload that is too much for the folder.

        Raises:
            HttpError: 413.
        """
        ((used,),) = self._database.rows("SELECT COALESCE(SUM(num_bytes), 0) FROM files")
        assert isinstance(used, int)
        if used + num_bytes > self._max_total_bytes:
            raise HttpError(
                413,
                f"the files here take {used} bytes and {num_bytes} more don't fit into {self._max_total_bytes} "
                "(--max-stored-bytes); delete files that nobody needs",
                code="storage_full",
            )

    def upload(self, partial: Path, *, owner: str, filename: str, lasts_s: int | None) -> FileObject:
        """Make an uploaded file out of bytes that are written and synchronized with the disk.

        Raises:
            HttpError: 413, too much is stored.
            OSError, sqlite3.OperationalError: the disk is full or broken.
        """
        self.check_room(partial.stat().st_size)
        with self._database.transaction():
            return self.insert(
                partial, owner=owner, filename=filename, purpose="batch", lasts_s=lasts_s or UPLOAD_LASTS_S
            )

    def insert(
        self, partial: Path, *, owner: str, filename: str, purpose: FilePurpose, lasts_s: int | None
    ) -> FileObject:
        """The same within a transaction of the caller's, whatever is stored already."""
        created_at = int(self._clock())
        record = FileObject(
            id=f"file-{secrets.token_hex(12)}",
            bytes=partial.stat().st_size,
            created_at=created_at,
            filename=filename,
            purpose=purpose,
            expires_at=None if lasts_s is None else created_at + lasts_s,
        )
        partial.replace(self.path(record.id))
        _sync_folder(self._database.files)
        self._database.write(
            "INSERT INTO files (id, owner, purpose, num_bytes, expires_at, record) VALUES (?, ?, ?, ?, ?, ?)",
            record.id, owner, record.purpose, record.bytes, record.expires_at, msgspec.json.encode(record),
        )  # fmt: skip
        return record

    def get(self, owner: str, file_id: str) -> FileObject:
        """A file of this owner's.

        Raises:
            HttpError: 404.
        """
        found = self._database.rows(
            "SELECT record FROM files WHERE id = ? AND owner = ? AND (expires_at IS NULL OR expires_at > ?)",
            file_id, owner, self._clock(),
        )  # fmt: skip
        if not found:
            raise HttpError(404, f"there is no file {file_id[:100]!r}", code="file_not_found")
        return _decoder.decode(found[0][0])  # type: ignore[arg-type]

    def page(
        self, owner: str, *, purpose: str | None, after: str | None, limit: int, order: Literal["asc", "desc"]
    ) -> FilePage:
        """Files of this owner's, by age.

        Raises:
            HttpError: 404, there is no file `after`.
        """
        begin = 0 if order == "asc" else 1 << 62
        if after is not None:
            self.get(owner, after)
            ((begin,),) = self._database.rows("SELECT number FROM files WHERE id = ?", after)  # type: ignore[assignment]
        side, direction = (">", "ASC") if order == "asc" else ("<", "DESC")
        found = self._database.rows(
            f"SELECT record FROM files WHERE owner = ? AND number {side} ? AND (? IS NULL OR purpose = ?) "
            f"AND (expires_at IS NULL OR expires_at > ?) ORDER BY number {direction} LIMIT ?",
            owner, begin, purpose, purpose, self._clock(), limit + 1,
        )  # fmt: skip
        return FilePage.of([_decoder.decode(record) for (record,) in found], limit)  # type: ignore[arg-type]

    def delete(self, owner: str, file_id: str) -> None:
        """Remove a file of this owner's.

        Raises:
            HttpError: 404; 409 if a batch that has not ended reads it.
        """
        self.get(owner, file_id)
        reading = self._database.rows(
            f"SELECT id FROM batches WHERE input_file_id = ? AND status IN ({_MARKS})", file_id, *LIVE
        )
        if reading:
            raise HttpError(
                409, f"batch {reading[0][0]} reads this file; cancel it, or wait until it has ended", code="file_in_use"
            )
        with self._database.transaction():
            self._database.write("DELETE FROM files WHERE id = ?", file_id)
        self.path(file_id).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """See to it that a new name in the folder survives the death of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
