"""Writing to a disk that may be full, and files that appear whole or not at all."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from freehold.errors import ResourceError

_REMEDY = "free some space, or point FREEHOLD_HOME to a larger disk, and run the same command again"
_SPARE_BYTES = 16 << 20


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` under a temporary name in the same directory, then give it its name.

    Raises:
        OSError: no room, no permission. Nothing is left behind, and an earlier file stays as it was.
    """
    # Not `tempfile`: its files are for their owner alone, and a store may be shared.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_plain_name(name: str) -> bool:
    """Is `name` that of a file in a directory, and no way out of it?"""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def check_free_space(directory: Path, needed_bytes: int) -> None:
    """Raise ResourceError unless `needed_bytes` and a little more are free on the disk of `directory`."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes + _SPARE_BYTES:
        raise ResourceError(
            f"{directory} has {_megabytes(free_bytes)} free, but {_megabytes(needed_bytes + _SPARE_BYTES)} are needed; "
            f"{_REMEDY}"
        )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says about writing `path` into an error that a person can act on.

    Raises:
        ResourceError: full, read-only, or no permission.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceError(f"the disk is full at {path.parent}; {_REMEDY}") from None
        raise ResourceError(
            f"{path} can't be written ({error.strerror}); check its permissions, or choose another place "
            "(--home or FREEHOLD_HOME for the model store)"
        ) from None


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"
