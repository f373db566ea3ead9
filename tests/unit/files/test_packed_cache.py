"""Packed weights on disk: kept whole or not at all, found only if equal, and never trusted or needed."""

import errno
import fcntl
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests import processes

from freehold.files import packed_cache
from freehold.files.packed_cache import PackedCache, list_packed, remove_packed
from freehold.files.packed_file import Contents, PackedFile, PackedMatrix, open_packed

SOURCES = ("ab" * 32, "cd" * 32)
DATA = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)
CONTENTS = Contents("as ever", (PackedMatrix("q", 0, "blk.0.attn_q", "Q4_0", (64, 32), 0),), DATA.size)
CHUNK_BYTES = 1000
LIMIT = 1 << 30


def checksums(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.add.reduceat(data.astype(np.uint64), np.arange(0, data.size, CHUNK_BYTES))


class Memory:
    """What a loader fills, chunk by chunk."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.data = b""
        self._before = before

    def fill(self, descriptor: int, start: int, expected: NDArray[np.uint64]) -> str | None:
        self._before()
        self.data = os.pread(descriptor, DATA.size, start)
        if len(self.data) < DATA.size:
            return "it is truncated"
        found = checksums(np.frombuffer(self.data, np.uint8))
        return None if np.array_equal(found, expected) else "a chunk is damaged"


def a_cache(folder: Path, sources: tuple[str, ...] | None = SOURCES, limit: int = LIMIT, always: bool = True):
    return PackedCache(folder, Path("/models/m.gguf"), sources, limit, always=always)


def keep(folder: Path, data: NDArray[np.uint8] = DATA, contents: Contents = CONTENTS, **options) -> PackedCache:
    cache = a_cache(folder, **options)
    cache.offer(contents, data, checksums, 0.1)
    cache.keep(cache._sources or SOURCES)
    cache.wait()
    return cache


def loads(folder: Path, contents: Contents = CONTENTS, **options) -> bool:
    memory = Memory()
    found = a_cache(folder, **options).load(contents, memory.fill)
    assert not found or memory.data == DATA.tobytes()
    return found


def files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != ".lock"]


def test_what_one_keeps_the_next_reads(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "packed"
    assert not loads(folder)
    keep(folder)
    assert loads(folder)
    (path,) = files(folder)
    (stored,) = list_packed(folder)
    assert (stored.path, stored.model, stored.size_bytes) == (path, "/models/m.gguf", path.stat().st_size)


def test_nothing_is_looked_for_before_the_sources_are_known(tmp_path: Path) -> None:
    keep(tmp_path)
    assert not loads(tmp_path, sources=None)
    assert loads(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"sources": ("ab" * 32, "ce" * 32)},
        {"sources": SOURCES[:1]},
        {"sources": SOURCES[::-1]},
        {"packing": "otherwise"},
        {"num_bytes": DATA.size - 1},
        {"slot": "k"},
        {"layer": 1},
        {"layer": None},
        {"tensor": "blk.0.attn_k"},
        {"dtype": "Q4_1"},
        {"shape": (32, 64)},
        {"order_crc": 1},
        {"version": "0.0.0"},
    ],
    ids=str,
)
def test_what_was_made_otherwise_is_not_used(tmp_path: Path, monkeypatch, changed) -> None:
    keep(tmp_path)
    options, contents = {}, CONTENTS
    (name,) = changed
    if name == "sources":
        options = changed
    elif name == "version":
        monkeypatch.setattr(packed_cache, "__version__", changed[name])
    elif name in ("packing", "num_bytes"):
        contents = msgspec.structs.replace(CONTENTS, **changed)
    else:
        matrix = msgspec.structs.replace(CONTENTS.matrices[0], **changed)
        contents = msgspec.structs.replace(CONTENTS, matrices=(matrix,))
    assert not loads(tmp_path, contents, **options)
    assert len(files(tmp_path)) == 1


def test_a_file_under_anothers_name_is_not_used(tmp_path: Path, caplog) -> None:
    keep(tmp_path)
    (path,) = files(tmp_path)
    kept = path.read_bytes()
    path.unlink()
    keep(tmp_path, sources=("ef" * 32,))
    (other,) = files(tmp_path)
    other.write_bytes(kept)
    assert not loads(tmp_path, sources=("ef" * 32,))
    assert "other bytes" in caplog.text
    assert files(tmp_path) == []


def _places() -> dict[str, Callable[[PackedFile, int], int]]:
    """Byte positions in a file of `size` bytes."""
    return {
        "magic": lambda file, size: 0,
        "format": lambda file, size: 8,
        "size of the description": lambda file, size: 12,
        "size of the checksums": lambda file, size: 16,
        "high byte of it": lambda file, size: 23,
        "digest": lambda file, size: 24,
        "description": lambda file, size: 60,
        "checksums": lambda file, size: file.start - file.start % 8 - 8 * len(file.checksums) // 2,
        "first byte": lambda file, size: file.start,
        "middle": lambda file, size: (file.start + size) // 2,
        "last byte": lambda file, size: size - 1,
    }


def _flip(path: Path, place: str) -> None:
    file = open_packed(path)
    file.close()
    data = bytearray(path.read_bytes())
    position = _places()[place](file, len(data))
    if place == "checksums":  # they end before the padding
        position = data.index(file.checksums.astype("<u8").tobytes()) + 8 * len(file.checksums) // 2
    data[position] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("place", _places())
def test_a_changed_bit_is_noticed_and_packed_anew(tmp_path: Path, caplog, place: str) -> None:
    keep(tmp_path)
    (path,) = files(tmp_path)
    _flip(path, place)
    assert not loads(tmp_path)
    assert str(path) in caplog.text
    assert "packed anew: " in caplog.text
    assert files(tmp_path) == []
    keep(tmp_path)
    assert loads(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 55, 56, 100, 700, 4095, 4096, 50_000, -1, -4096])
def test_a_truncated_file_is_not_used(tmp_path: Path, caplog, size: int) -> None:
    keep(tmp_path)
    (path,) = files(tmp_path)
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    assert not loads(tmp_path)
    assert "packed anew" in caplog.text


def test_a_file_that_shrinks_while_it_is_read_is_not_used(tmp_path: Path, caplog) -> None:
    keep(tmp_path)
    (path,) = files(tmp_path)
    memory = Memory(before=lambda: os.truncate(path, 50_000))
    assert not a_cache(tmp_path).load(CONTENTS, memory.fill)
    assert "truncated" in caplog.text


def test_a_longer_file_is_not_used(tmp_path: Path) -> None:
    keep(tmp_path)
    (path,) = files(tmp_path)
    with path.open("ab") as file:
        file.write(b"x")
    assert not loads(tmp_path)


@pytest.mark.parametrize("what", ["folder", "pipe", "dangling link"])
def test_what_is_no_file_is_not_used(tmp_path: Path, what: str) -> None:
    keep(tmp_path)
    (path,) = files(tmp_path)
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "nothing")
    assert not loads(tmp_path)


def test_a_file_may_go_while_it_is_read(tmp_path: Path) -> None:
    keep(tmp_path)
    memory = Memory(before=lambda: remove_packed(tmp_path))
    assert a_cache(tmp_path).load(CONTENTS, memory.fill)
    assert memory.data == DATA.tobytes()
    assert files(tmp_path) == []


def test_quick_packing_is_not_kept(tmp_path: Path) -> None:
    for packing_s, kept in ((packed_cache.WORTHWHILE_S * 0.99, 0), (packed_cache.WORTHWHILE_S, 1)):
        cache = a_cache(tmp_path, always=False)
        cache.offer(CONTENTS, DATA, checksums, packing_s)
        cache.keep(SOURCES)
        cache.wait()
        assert len(list_packed(tmp_path)) == kept


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    """Three fit; the fourth takes the place of the one that nobody read for longest."""
    sources = [(digit * 64,) for digit in "1234"]
    limit = 3 * (DATA.size + 8192)
    for age, source in enumerate(sources[:3]):
        keep(tmp_path, sources=source, limit=limit)
        (newest,) = [path for path in files(tmp_path) if path.stat().st_mtime > 10]
        os.utime(newest, (age, age))
    assert loads(tmp_path, sources=sources[0])
    keep(tmp_path, sources=sources[3], limit=limit)
    assert [loads(tmp_path, sources=source) for source in sources] == [True, False, True, True]


def test_what_is_beyond_the_limit_is_not_kept_and_displaces_nothing(tmp_path: Path) -> None:
    keep(tmp_path, sources=("1" * 64,))
    keep(tmp_path, limit=DATA.size - 1)
    assert not loads(tmp_path)
    assert loads(tmp_path, sources=("1" * 64,))


def test_the_disk_keeps_as_much_free_again(tmp_path: Path, monkeypatch) -> None:
    free_bytes = 2 * DATA.size - 1
    monkeypatch.setattr(packed_cache.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free_bytes}))
    keep(tmp_path)
    assert not loads(tmp_path)
    free_bytes += 1
    keep(tmp_path)
    assert loads(tmp_path)


@pytest.mark.parametrize("function", ["posix_fallocate", "pwrite", "fdatasync", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch, caplog, function: str, number: int
) -> None:
    def fail(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("freehold.files.packed_file._SYNC_BYTES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        keep(tmp_path)
    assert "not kept" in caplog.text
    assert os.strerror(number) in caplog.text
    assert files(tmp_path) == []
    keep(tmp_path)
    assert loads(tmp_path)


def test_a_limit_on_file_sizes_is_a_full_disk(tmp_path: Path) -> None:
    """The system itself says no here."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        keep(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_made_costs_nothing(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").write_bytes(b"")
    keep(tmp_path / "file" / "packed")
    assert "not kept" in caplog.text
    assert not loads(tmp_path / "file" / "packed")


def test_closing_stops_the_writer(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("freehold.files.packed_file._PIECE_BYTES", 1000)
    writing, gone_on = threading.Event(), threading.Event()

    def pwrite(descriptor: int, data: memoryview, at: int, real=os.pwrite) -> int:
        if at > 50_000:
            writing.set()
            assert gone_on.wait(10)
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    cache = a_cache(tmp_path)
    cache.offer(CONTENTS, DATA, checksums, 0.1)
    cache.keep(SOURCES)
    assert writing.wait(10)
    threading.Timer(0.05, gone_on.set).start()
    cache.close()
    cache.close()
    assert files(tmp_path) == []


def test_one_process_writes_at_a_time(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    with (tmp_path / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keep(tmp_path)
        assert files(tmp_path) == []
    assert "another process" in caplog.text
    keep(tmp_path)
    assert loads(tmp_path)


WRITER = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
import test_packed_cache as test
for _ in range(20):
    test.keep(Path(sys.argv[1]))
    for path in test.files(Path(sys.argv[1])):
        path.unlink(missing_ok=True) if path.suffix == ".packed" else None
test.keep(Path(sys.argv[1]))
"""


def test_processes_that_write_and_delete_at_once_are_safe(tmp_path: Path) -> None:
    """Readers meanwhile see the whole file or none."""
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parent), *sys.path]
    writers = [processes.start(command) for _ in range(3)]
    while any(writer.poll() is None for writer in writers):
        loads(tmp_path)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    keep(tmp_path)
    assert loads(tmp_path)
    assert [path.suffix for path in files(tmp_path)] == [".packed"]


def test_what_a_killed_writer_left_goes_with_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".0123456789abcdef.unfinished"
    left.write_bytes(b"some")
    keep(tmp_path)
    assert not left.exists()
    left.write_bytes(b"some")
    assert remove_packed(tmp_path) > DATA.size
    assert files(tmp_path) == []


def test_a_damaged_file_is_listed_as_such(tmp_path: Path) -> None:
    keep(tmp_path)
    (path,) = files(tmp_path)
    path.write_bytes(b"x")
    (stored,) = list_packed(tmp_path)
    assert (stored.model, stored.size_bytes) == ("unusable: it is truncated", 1)
