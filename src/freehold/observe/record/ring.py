"""The ring on disk: segments that are appended to, one at a time, and dropped from the oldest on."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from freehold.errors import RecordingError
from freehold.observe.record.format import preface
from freehold.observe.record.reader import SUFFIX

MAX_SEGMENT_BYTES = 64 << 20
NUM_SEGMENTS = 8
"""A ring has so many at least: dropping one loses no more than that share."""


@dataclass(frozen=True, slots=True)
class RingLimits:
    """When segments are dropped: once all take more bytes, or the newest record in one is older."""

    max_bytes: int
    max_age_s: float

    @property
    def segment_bytes(self) -> int:
        """A segment takes no more, unless one frame alone does."""
        return min(MAX_SEGMENT_BYTES, self.max_bytes // NUM_SEGMENTS)

    @property
    def segment_s(self) -> float:
        """So long a segment is appended to."""
        return self.max_age_s / NUM_SEGMENTS


class Ring:
    """A folder of segments that this process alone writes, one thread at a time.

    Each segment begins with a header, so that it can be read by itself. What stands in a file is never changed: a new
    process, and one whose disk was full, goes on in a new segment.

    Args:
        header: makes the frame of a header, given the run's number.
        now_s: Unix time.

    Attributes:
        run: number of the first segment that this ring writes.
    """

    def __init__(
        self, folder: Path, limits: RingLimits, header: Callable[[int], bytes], now_s: Callable[[], float] = time.time
    ) -> None:
        """
        Raises:
            RecordingError: another process records into this folder.
            OSError: it can't be made or written.
        """
        self._folder = folder
        self._limits = limits
        self._header = header
        self._now_s = now_s
        self._segment: int | None = None  # descriptor
        self._num_bytes = 0
        self._began_s = 0.0
        self._has_lost_segment = False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(self._lock, folder)
            self._number = max((_number(path) for path in self._paths()), default=0)
            self.run = self._number + 1
            self._begin_segment()
        except BaseException:
            self.close()
            raise

    @property
    def is_gone(self) -> bool:
        """Somebody has deleted the folder."""
        return os.fstat(self._lock).st_nlink == 0

    def take_loss(self) -> bool:
        """Whether somebody has deleted a segment while it was written, since this was last asked."""
        had, self._has_lost_segment = self._has_lost_segment, False
        return had

    def probe(self) -> None:
        """Find out whether there is room again, after an error.

        Raises:
            OSError: there isn't.
        """
        if self._segment is None:
            self._begin_segment()

    def append(self, frames: Sequence[bytes]) -> None:
        """Write some frames, and drop what the limits don't allow any more.

        Raises:
            OSError: the disk is full, or the folder is gone or can't be written.
        """
        if self._segment is not None and os.fstat(self._segment).st_nlink == 0:
            self._has_lost_segment = True
            self._end_segment()
        part: list[bytes] = []
        part_bytes = 0
        for frame in frames:
            if self._num_bytes + part_bytes + len(frame) > self._limits.segment_bytes:
                self._write(b"".join(part))
                self._end_segment()
                part, part_bytes = [], 0
            part.append(frame)
            part_bytes += len(frame)
        self._write(b"".join(part))
        self._trim()

    def close(self) -> None:
        """Let another process have the folder."""
        self._end_segment()
        os.close(self._lock)

    def _paths(self) -> list[Path]:
        return [path for path in self._folder.iterdir() if path.suffix == SUFFIX and path.stem.isdecimal()]

    def _trim(self) -> None:
        """Drop segments, but not the one that is being written."""
        kept_bytes = 0
        for path in sorted(self._paths(), key=_number, reverse=True):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(status.st_mode):
                continue  # nothing of ours
            kept_bytes += status.st_size
            is_open = self._segment is not None and _number(path) == self._number
            is_old = self._now_s() - status.st_mtime > self._limits.max_age_s
            if not is_open and (kept_bytes > self._limits.max_bytes or is_old):
                path.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        """Append to the segment, or to a new one if it has ended or is old."""
        if self._segment is not None and self._now_s() - self._began_s > self._limits.segment_s:
            self._end_segment()
        if data and self._segment is None:
            self._begin_segment()
        self._append(data)

    def _begin_segment(self) -> None:
        if self.is_gone:
            raise FileNotFoundError(errno.ENOENT, "the folder was deleted", str(self._folder))
        self._number += 1
        path = self._folder / f"{self._number:08d}{SUFFIX}"
        self._segment = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._num_bytes, self._began_s = 0, self._now_s()
        try:
            self._append(preface() + self._header(self.run))
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def _append(self, data: bytes) -> None:
        """Write to the segment that is open. If that fails, what was half written is cut off, and it ends."""
        rest = memoryview(data)
        try:
            while self._segment is not None and rest:
                rest = rest[os.write(self._segment, rest) :]
        except OSError:
            if self._segment is not None:
                os.ftruncate(self._segment, self._num_bytes)
            self._end_segment()
            raise
        self._num_bytes += len(data)

    def _end_segment(self) -> None:
        segment, self._segment, self._num_bytes = self._segment, None, 0
        if segment is not None:
            os.close(segment)


def _lock(folder_descriptor: int, folder: Path) -> None:
    """Lock the folder itself, so that there is no file for it that somebody could delete.

    Raises:
        RecordingError: another process has.
    """
    try:
        fcntl.flock(folder_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordingError(f"another server records into {folder} already; give each its own --record-dir") from None


def _number(path: Path) -> int:
    return int(path.stem)
