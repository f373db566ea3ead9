"""Content hashes of files, remembered on disk by path, size and times, since hashing gigabytes takes seconds."""

import hashlib
import json
import os
import time
from pathlib import Path

from freehold.files.disk import write_atomically
from freehold.files.mapped import FileStamp, MappedFile

_FORMAT = 2
_SETTLE_NS = 2_000_000_000  # a file this young may change again without its time telling
_PIECE_BYTES = 8 << 20


def file_digest(file: MappedFile, cache_dir: Path | None) -> str:
    """SHA-256 of the contents, in hexadecimal.

    Arguments:
        cache_dir: where digests are remembered; made if missing. None: hash each time. A cache that can't be read or
            written is as good as none.

    Raises:
        ModelFileError: the file changed meanwhile.
    """
    if (known := known_digest(file, cache_dir)) is not None:
        return known
    digest = hashlib.sha256()
    for start in range(0, file.size, _PIECE_BYTES):
        digest.update(file.read(start, min(_PIECE_BYTES, file.size - start)).data)
    file.check_unchanged()
    found = digest.hexdigest()
    if cache_dir is not None and _is_settled(file.stamp):
        remember_digest(file, found, cache_dir)
    return found


def known_digest(file: MappedFile, cache_dir: Path | None) -> str | None:
    """SHA-256 of the contents if it is remembered in `cache_dir`."""
    return None if cache_dir is None else _read_entry(_entry(file, cache_dir), file.stamp)


def remember_digest(file: MappedFile, digest: str, cache_dir: Path) -> None:
    """Keep a SHA-256 that is known to be the file's. A cache that can't be written is left alone."""
    known = {"format": _FORMAT, **_stamp_fields(file.stamp), "sha256": digest, "path": str(file.path.resolve())}
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        write_atomically(_entry(file, cache_dir), json.dumps(known).encode())
    except OSError:
        return


def _is_settled(stamp: FileStamp) -> bool:
    return time.time_ns() - max(stamp.mtime_ns, stamp.ctime_ns) > _SETTLE_NS


def _entry(file: MappedFile, cache_dir: Path) -> Path:
    return cache_dir / f"{hashlib.sha256(os.fsencode(file.path.resolve())).hexdigest()}.json"


def _stamp_fields(stamp: FileStamp) -> dict[str, int]:
    return {
        "size": stamp.size,
        "mtime_ns": stamp.mtime_ns,
        "ctime_ns": stamp.ctime_ns,
        "device": stamp.device,
        "inode": stamp.inode,
    }


def _read_entry(entry: Path, stamp: FileStamp) -> str | None:
    try:
        known = json.loads(entry.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(known, dict):
        return None
    digest = known.pop("sha256", None)
    known.pop("path", None)
    return digest if known == {"format": _FORMAT, **_stamp_fields(stamp)} and isinstance(digest, str) else None
