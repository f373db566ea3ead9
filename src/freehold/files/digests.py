"""Content hashes of files, remembered on disk by path, size and time, since hashing gigabytes takes seconds."""

import hashlib
import json
import os
import time
from pathlib import Path

from freehold.files.atomic import write_atomically
from freehold.files.mapped import FileStamp, MappedFile

_FORMAT = 1
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
    entry = None
    if cache_dir is not None:
        key = hashlib.sha256(os.fsencode(file.path.resolve())).hexdigest()
        entry = cache_dir / f"{key}.json"
        if (known := _read_entry(entry, file.stamp)) is not None:
            return known
    digest = hashlib.sha256()
    pieces = memoryview(file.buffer)
    for start in range(0, file.size, _PIECE_BYTES):
        digest.update(pieces[start : start + _PIECE_BYTES])
    file.check_unchanged()
    found = digest.hexdigest()
    if entry is not None and time.time_ns() - file.stamp.mtime_ns > _SETTLE_NS:
        _write_entry(entry, file, found)
    return found


def _stamp_fields(stamp: FileStamp) -> dict[str, int]:
    return {"size": stamp.size, "mtime_ns": stamp.mtime_ns, "device": stamp.device, "inode": stamp.inode}


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


def _write_entry(entry: Path, file: MappedFile, digest: str) -> None:
    known = {"format": _FORMAT, **_stamp_fields(file.stamp), "sha256": digest, "path": str(file.path.resolve())}
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, json.dumps(known).encode())
    except OSError:
        return
