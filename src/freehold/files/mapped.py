"""Model files mapped into memory: opened once, measured once, and watched for changes under our feet."""

import contextlib
import errno
import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from freehold.errors import ModelFileError, ModelNotFoundError

_LFS_START = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells one state of a file from another: size in bytes, times in nanoseconds, device and inode.

    The time of content can be set back by whoever writes; the time of change (ctime) can not.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    device: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStamp":
        """Stamp of a `stat` or `fstat` result."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino)


class MappedFile:
    """A regular file, mapped read-only.

    The descriptor is held from opening to `close`, so the file that was checked is the file that is read even if its
    name is given to another one. Reading mapped bytes of a file that shrank kills the process (SIGBUS), which nothing
    in Python can catch. So all that a model is loaded from comes through `read`; the mapping serves those who look at
    tensors of files that stay.

    Attributes:
        path: as given.
        size: bytes at opening.
        data: uint8 (size,), read-only.
    """

    def __init__(self, path: Path) -> None:
        """Open and map `path`.

        Raises:
            ModelNotFoundError: there is no such file.
            ModelFileError: not a regular file, empty, unreadable, or a Git LFS pointer instead of the real thing.
        """
        self.path = path
        try:
            # Without O_NONBLOCK a named pipe would block here for ever.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            raise ModelNotFoundError(f"{path} does not exist; check the path") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ModelFileError(f"{path} can't be opened ({reason}); check its permissions") from None
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError(f"{path} is not a regular file; name the model file itself")
            self.size = status.st_size
            self._stamp = FileStamp.of(status)
            if self.size == 0:
                raise ModelFileError(f"{path} is empty; download it again")
            self._map = mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(self._fd)
            raise
        self._closed = False
        self.data: NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)
        if os.pread(self._fd, len(_LFS_START), 0) == _LFS_START:
            self.close()
            raise ModelFileError(
                f"{path} is a Git LFS pointer, not the model itself; run `git lfs pull` in its directory "
                "or download the file again"
            )

    @property
    def stamp(self) -> FileStamp:
        """State of the file at opening."""
        return self._stamp

    @property
    def descriptor(self) -> int:
        """Of the open file, for readers in native code. It stays this object's."""
        return self._fd

    def check_unchanged(self) -> None:
        """Compare the open file and its name with their state at opening.

        Raises:
            ModelFileError: truncated, written to, replaced or removed since.
        """
        now = FileStamp.of(os.fstat(self._fd))
        if now.size < self.size:
            raise ModelFileError(
                f"{self.path} was truncated from {self.size} to {now.size} bytes while in use; restore it and restart"
            )
        # The name first: losing it also changes the time of change of the file that had it.
        try:
            named = os.stat(self.path)
        except OSError:
            raise ModelFileError(f"{self.path} was removed while in use; restore it and restart") from None
        if (named.st_dev, named.st_ino) != (now.device, now.inode):
            raise ModelFileError(f"{self.path} was replaced while in use; restart to load the new file")
        if now != self._stamp:
            raise ModelFileError(f"{self.path} was changed while in use; restart to load the new contents")

    def read(self, start: int, num_bytes: int) -> NDArray[np.uint8]:
        """Bytes of the file in memory of their own, uint8 (num_bytes,), without touching the mapping.

        Raises:
            ModelFileError: the file has become shorter than that, or can't be read.
        """
        data = np.empty(num_bytes, np.uint8)
        rest = data.data
        while rest:
            try:
                num_read = os.preadv(self._fd, [rest], start + num_bytes - len(rest))
            except OSError as error:
                raise self.read_error(error.errno or errno.EIO) from None
            if num_read == 0:
                raise self.read_error(0)
            rest = rest[num_read:]
        data.flags.writeable = False
        return data

    def read_error(self, error_number: int) -> ModelFileError:
        """What to raise where a read failed with that `errno`, or met the file's end (0) before all was read."""
        if error_number:
            reason = os.strerror(error_number)
            return ModelFileError(f"{self.path} can't be read ({reason}); check its disk")
        now = os.fstat(self._fd).st_size
        return ModelFileError(
            f"{self.path} was truncated from {self.size} to {now} bytes while in use; restore it and restart"
        )

    def release_pages(self) -> None:
        """Drop this mapping's pages from resident memory. They come back from the page cache or disk when read."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Give the descriptor back. The mapping goes when the last view of it goes. Idempotent."""
        if not self._closed:
            self._closed = True
            os.close(self._fd)
            self.data = np.empty(0, dtype=np.uint8)
            # While tensors look at it, it can't be closed: then it is unmapped with the last of them.
            with contextlib.suppress(BufferError):
                self._map.close()
