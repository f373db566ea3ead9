"""One file of packed weights: what they were made of, checksums, and the bytes as they lie in memory.

Layout, little endian: 8 bytes of magic, uint32 format, uint32 bytes of the description, uint64 bytes of the checksums,
SHA-256 of description and checksums; the description (JSON); the checksums, uint64 each; and from the next multiple of
4,096 on the packed bytes.
"""

import hashlib
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from freehold.errors import FreeholdError

FORMAT = 1
_MAGIC = b"FHPACKED"
_HEAD = struct.Struct("<8sIIQ32s")
_ALIGNMENT = 4096
_MAX_DESCRIPTION_BYTES = 64 << 20
_PIECE_BYTES = 8 << 20
_SYNC_BYTES = 64 << 20


class PackedMatrix(msgspec.Struct, frozen=True, array_like=True):
    """Where one packed matrix came from.

    Attributes:
        tensor: its name in the model's files.
        shape: outputs and inputs.
        order_crc: CRC-32 of the order of rows, 0 if it is the file's.
    """

    slot: str
    layer: int | None
    tensor: str
    dtype: str
    shape: tuple[int, int]
    order_crc: int


class Contents(msgspec.Struct, frozen=True):
    """What a loader is about to have in memory, whatever files it comes from.

    Attributes:
        packing: all that decides where a weight lies in packed bytes, as text.
        matrices: in their order in memory, without gaps.
        num_bytes: packed bytes of all.
    """

    packing: str
    matrices: tuple[PackedMatrix, ...]
    num_bytes: int


class Recipe(msgspec.Struct, frozen=True):
    """All that packed bytes depend on: equal recipes, equal bytes.

    Attributes:
        version: Freehold's.
        sources: SHA-256 of each weight file, hexadecimal.
        contents: see `Contents`.
    """

    version: str
    sources: tuple[str, ...]
    contents: Contents

    @property
    def key(self) -> str:
        """A short name, for files. Two recipes that share it are still told apart."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]


class Description(msgspec.Struct, frozen=True):
    """A recipe, and the model's path for people."""

    recipe: Recipe
    model: str


class PackedFileError(FreeholdError):
    """A file of packed weights that can't be used; the message is the reason. Nobody but a log sees it."""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """An open file of packed weights, its head checked, its bytes not yet.

    Attributes:
        start: of the packed bytes.
        checksums: uint64, one for each chunk.
    """

    descriptor: int
    start: int
    checksums: NDArray[np.uint64]
    description: Description

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


def open_packed(path: Path) -> PackedFile:
    """Open a file of packed weights and check its head.

    Raises:
        FileNotFoundError: there is none.
        PackedFileError: truncated, damaged, of another format, or unreadable.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PackedFileError(f"it can't be opened: {error.strerror}") from None
    try:
        return _read_head(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise PackedFileError(f"it can't be read: {error.strerror}") from None
    except BaseException:
        os.close(descriptor)
        raise


def _read_head(descriptor: int) -> PackedFile:
    head = os.pread(descriptor, _HEAD.size, 0)
    if len(head) < _HEAD.size:
        raise PackedFileError("it is truncated")
    magic, format_number, description_bytes, checksum_bytes, digest = _HEAD.unpack(head)
    if magic != _MAGIC or format_number != FORMAT:
        raise PackedFileError(f"it has another format (not {FORMAT})")
    size = os.fstat(descriptor).st_size
    rest_bytes = description_bytes + checksum_bytes
    if description_bytes > _MAX_DESCRIPTION_BYTES or rest_bytes > size or checksum_bytes % 8:
        raise PackedFileError("its head is damaged")
    rest = os.pread(descriptor, rest_bytes, _HEAD.size)
    if len(rest) < rest_bytes:
        raise PackedFileError("it is truncated")
    if hashlib.sha256(rest).digest() != digest:
        raise PackedFileError("its head is damaged")
    try:
        description = msgspec.json.decode(rest[:description_bytes], type=Description)
    except msgspec.DecodeError:
        raise PackedFileError("its head is damaged") from None
    start = _aligned(_HEAD.size + rest_bytes)
    if size != start + description.recipe.contents.num_bytes:
        raise PackedFileError(f"it has {size} bytes instead of {start + description.recipe.contents.num_bytes}")
    checksums = np.frombuffer(rest, "<u8", offset=description_bytes).astype(np.uint64)
    return PackedFile(descriptor, start, checksums, description)


def write_packed(
    descriptor: int,
    description: Description,
    checksums: NDArray[np.uint64],
    data: NDArray[np.uint8],
    goes_on: Callable[[], bool],
) -> bool:
    """Write a whole file of packed weights, and wait until it is on the disk.

    Arguments:
        descriptor: of an empty file.
        data: uint8 (num_bytes,).
        goes_on: asked every few hundred milliseconds; False stops.

    Returns: whether all was written.

    Raises:
        OSError: no room, say.
    """
    encoded, sums = msgspec.json.encode(description), checksums.astype("<u8").tobytes()
    digest = hashlib.sha256(encoded + sums).digest()
    head = _HEAD.pack(_MAGIC, FORMAT, len(encoded), len(sums), digest) + encoded + sums
    start = _aligned(len(head))
    # A full disk says so now rather than after gigabytes.
    os.posix_fallocate(descriptor, 0, start + len(data))
    _write(descriptor, memoryview(head), 0)
    unsynced = 0
    for at in range(0, len(data), _PIECE_BYTES):
        if not goes_on():
            return False
        piece = data[at : at + _PIECE_BYTES].data
        _write(descriptor, piece, start + at)
        unsynced += len(piece)
        if unsynced >= _SYNC_BYTES:
            os.fdatasync(descriptor)
            unsynced = 0
    os.fsync(descriptor)
    return True


def _write(descriptor: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT
