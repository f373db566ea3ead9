"""Reader of one GGUF file, versions 2 and 3, little endian.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The file is hostile until proved otherwise: each
length and count is compared with the bytes left before anything of that size is made, and each byte of the tensor data
belongs to exactly one tensor or to padding.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from freehold.errors import ModelFileError, shown
from freehold.files.ggml_types import FOREIGN_TYPES, GGML_TYPES
from freehold.files.mapped import MappedFile
from freehold.files.tensor_table import ForeignTensor
from freehold.files.tensors import MappedTensor, Tensor

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
HEAD_BYTES = 8 << 20
"""Metadata and tensor list of most models fit; of others more is read."""
MAX_DIMS = 4
MAX_KEY_BYTES = 65535
MAX_TENSOR_NAME_BYTES = 64
MAX_ARRAY_DEPTH = 8

_TYPE_UINT32, _TYPE_BOOL, _TYPE_STRING, _TYPE_ARRAY = 4, 7, 8, 9
_NUMERIC_DTYPES = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
_SCALARS = {number: struct.Struct("<" + code) for number, code in zip(_NUMERIC_DTYPES, "BbHhIifQqd", strict=True)}
_ARRAY_ITEM_BYTES = 12  # an array inside an array: its type and its length
_MIN_PAIR_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_INFO_BYTES = 8 + 1 + 4 + 8 + 4 + 8
_UINT32 = struct.Struct("<I")
_UINT64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """Contents of one GGUF file.

    Attributes:
        metadata: strings are str, numbers int or float, flags bool. An array of numbers or flags is a read-only
            1-D numpy array, an array of strings a list of str, an array of arrays a list of either.
        tensors: by name, in the order of the file.
    """

    file: MappedFile
    version: int
    alignment: int
    metadata: dict[str, Any]
    tensors: dict[str, Tensor | ForeignTensor]


class _HeadTooShortError(Exception):
    """What was read of the file's beginning isn't all of metadata and tensor list."""


class _Cursor:
    """A position in the file's beginning that never passes the file's end. `where` names what is being read, for
    messages.

    Attributes:
        buffer: the first bytes of the file.
        end: of the file.
    """

    __slots__ = ("buffer", "end", "path", "pos", "where")

    def __init__(self, file: MappedFile, num_bytes: int) -> None:
        self.path = file.path
        self.buffer = file.read(0, min(num_bytes, file.size)).tobytes()
        self.end = file.size
        self.pos = 0
        self.where = "header"

    def fail(self, problem: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {self.where}: {problem}")

    def expect(self, num_bytes: int, what: str) -> None:
        """Refuse a file that has fewer bytes left."""
        if num_bytes > self.end - self.pos:
            raise self.fail(
                f"{what} takes {num_bytes} bytes, but only {self.end - self.pos} are left; "
                "the file is truncated or damaged, download it again"
            )

    def need(self, num_bytes: int, what: str) -> None:
        """Have so many bytes at hand."""
        self.expect(num_bytes, what)
        if num_bytes > len(self.buffer) - self.pos:
            raise _HeadTooShortError

    def uint32(self, what: str) -> int:
        self.need(4, what)
        (value,) = _UINT32.unpack_from(self.buffer, self.pos)
        self.pos += 4
        return int(value)

    def uint64(self, what: str) -> int:
        self.need(8, what)
        (value,) = _UINT64.unpack_from(self.buffer, self.pos)
        self.pos += 8
        return int(value)

    def string(self, what: str, *, max_bytes: int | None = None) -> str:
        length = self.uint64(f"length of {what}")
        if max_bytes is not None and not 0 < length <= max_bytes:
            raise self.fail(f"{what} has {length} bytes; 1 to {max_bytes} are allowed")
        self.need(length, what)
        raw = self.buffer[self.pos : self.pos + length]
        self.pos += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not valid UTF-8") from None


def read_gguf(file: MappedFile) -> GGUFFile:
    """Parse a mapped GGUF file. Tensors are views of the mapping; metadata is read apart from it.

    Raises:
        ModelFileError: not a GGUF file, another version or byte order, truncated, malformed or hostile. Names the
            metadata key or the tensor.
    """
    num_bytes = HEAD_BYTES
    while True:
        try:
            return _parse(file, _Cursor(file, num_bytes))
        except _HeadTooShortError:
            num_bytes *= 8


def _parse(file: MappedFile, cursor: _Cursor) -> GGUFFile:
    version = _read_version(cursor)
    num_tensors = cursor.uint64("number of tensors")
    num_pairs = cursor.uint64("number of metadata keys")
    for count, item_bytes, what in (
        (num_pairs, _MIN_PAIR_BYTES, "metadata keys"),
        (num_tensors, _MIN_TENSOR_INFO_BYTES, "tensors"),
    ):
        cursor.expect(count * item_bytes, f"a list of {count} {what}")
    metadata = _read_metadata(cursor, num_pairs)
    alignment = _read_alignment(cursor, metadata)
    tensors = _read_tensors(cursor, num_tensors, file, alignment)
    return GGUFFile(file, version, alignment, metadata, tensors)


def _read_version(cursor: _Cursor) -> int:
    cursor.need(24, "the header")
    magic = cursor.buffer[:4]
    if magic != MAGIC:
        hint = " (its bytes are swapped: a big-endian file)" if magic == MAGIC[::-1] else ""
        raise cursor.fail(f"starts with {magic!r} instead of {MAGIC!r}{hint}; this is not a GGUF file")
    cursor.pos = 4
    version = cursor.uint32("version")
    if version in (2, 3):
        return version
    if version & 0xFFFF == 0 and version != 0:
        raise cursor.fail("the file is big endian; convert the model again for little-endian machines")
    if version == 1:
        raise cursor.fail("version 1 is obsolete; convert the model again with a current llama.cpp")
    raise cursor.fail(f"version {version} is not known; 2 and 3 are")


def _read_metadata(cursor: _Cursor, num_pairs: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(num_pairs):
        cursor.where = f"metadata key number {index}"
        key = cursor.string("the key", max_bytes=MAX_KEY_BYTES)
        cursor.where = f"key {shown(key)}"
        if key in metadata:
            raise cursor.fail("occurs twice")
        type_number = cursor.uint32("type")
        if key == "general.alignment" and type_number != _TYPE_UINT32:
            raise cursor.fail(f"has value type {type_number}; a 32-bit unsigned integer (4) is required")
        metadata[key] = _read_value(cursor, type_number)
    return metadata


def _read_value(cursor: _Cursor, type_number: int) -> Any:
    if type_number == _TYPE_STRING:
        return cursor.string("the string")
    if type_number == _TYPE_ARRAY:
        return _read_array(cursor, depth=1)
    if type_number == _TYPE_BOOL:
        cursor.need(1, "the value")
        flag = cursor.buffer[cursor.pos]
        if flag > 1:
            raise cursor.fail(f"a boolean is {flag}; only 0 and 1 are allowed")
        cursor.pos += 1
        return flag == 1
    if type_number not in _SCALARS:
        raise cursor.fail(f"value type {type_number} is not known")
    scalar = _SCALARS[type_number]
    cursor.need(scalar.size, "the value")
    (value,) = scalar.unpack_from(cursor.buffer, cursor.pos)
    cursor.pos += scalar.size
    return value


def _read_array(cursor: _Cursor, depth: int) -> Any:
    if depth > MAX_ARRAY_DEPTH:
        raise cursor.fail(f"arrays are nested more than {MAX_ARRAY_DEPTH} deep")
    item_type = cursor.uint32("type of the array's items")
    count = cursor.uint64("length of the array")
    if item_type == _TYPE_STRING:
        return _read_strings(cursor, count)
    if item_type == _TYPE_ARRAY:
        cursor.expect(count * _ARRAY_ITEM_BYTES, f"an array of {count} arrays")
        return [_read_array(cursor, depth + 1) for _ in range(count)]
    if item_type != _TYPE_BOOL and item_type not in _NUMERIC_DTYPES:
        raise cursor.fail(f"array item type {item_type} is not known")
    dtype = np.dtype("u1" if item_type == _TYPE_BOOL else _NUMERIC_DTYPES[item_type])
    cursor.need(count * dtype.itemsize, f"an array of {count} numbers")
    array = np.frombuffer(cursor.buffer, dtype, count, cursor.pos) if count else np.empty(0, dtype)
    cursor.pos += count * dtype.itemsize
    if item_type == _TYPE_BOOL:
        if array.size and array.max() > 1:
            raise cursor.fail(f"a boolean is {array.max()}; only 0 and 1 are allowed")
        array = array.astype(np.bool_)
    array = array.copy()  # aligned, and independent of the mapping
    array.flags.writeable = False
    return array


def _read_strings(cursor: _Cursor, count: int) -> list[str]:
    # Vocabularies have 10^5 strings and sit on the way to the first token: a loop over locals, checks inlined.
    cursor.expect(count * 8, f"an array of {count} strings")
    buffer, pos, end = cursor.buffer, cursor.pos, len(cursor.buffer)
    unpack: Callable[..., tuple[Any, ...]] = _UINT64.unpack_from
    strings: list[str] = []
    append = strings.append
    try:
        for _ in range(count):
            start = pos + 8
            pos = start + unpack(buffer, pos)[0]
            if pos > end:
                raise _cut_short(cursor, pos, f"string {len(strings)} of {count} passes the end of the file")
            append(buffer[start:pos].decode())
    except UnicodeDecodeError:
        raise cursor.fail(f"string {len(strings)} of {count} is not valid UTF-8") from None
    except struct.error:
        raise _cut_short(cursor, pos + 8, f"the file ends in string {len(strings)} of {count}") from None
    cursor.pos = pos
    return strings


def _cut_short(cursor: _Cursor, wanted_end: int, problem: str) -> Exception:
    """More bytes are wanted than there are: at hand, or in the whole file."""
    return _HeadTooShortError() if wanted_end <= cursor.end else cursor.fail(f"{problem}; download it again")


def _read_alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    alignment = int(metadata.get("general.alignment", DEFAULT_ALIGNMENT))
    if alignment == 0 or alignment & (alignment - 1):
        cursor.where = "key 'general.alignment'"
        raise cursor.fail(f"is {alignment}; it must be a power of two")
    return alignment


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    """One entry of the tensor list. `offset` counts from the start of the tensor data."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int
    num_bytes: int


def _read_tensors(
    cursor: _Cursor, num_tensors: int, file: MappedFile, alignment: int
) -> dict[str, Tensor | ForeignTensor]:
    infos: dict[str, _TensorInfo] = {}
    for index in range(num_tensors):
        cursor.where = f"tensor number {index}"
        info = _read_tensor_info(cursor)
        if info.name in infos:
            raise cursor.fail("occurs twice")
        if info.offset % alignment:
            raise cursor.fail(f"its offset {info.offset} is not a multiple of the alignment {alignment}")
        infos[info.name] = info
    data_start = _aligned(cursor.pos, alignment)
    _check_data(cursor, infos, data_start, alignment, file)
    tensors: dict[str, Tensor | ForeignTensor] = {}
    for info in infos.values():
        if info.type_number in GGML_TYPES:
            start = data_start + info.offset
            data = file.data[start : start + info.num_bytes]
            dtype = GGML_TYPES[info.type_number]
            tensors[info.name] = MappedTensor(info.name, dtype, info.shape, data, file, start)
        else:
            type_name = FOREIGN_TYPES[info.type_number][0]
            tensors[info.name] = ForeignTensor(info.name, type_name, info.shape, file.path)
    return tensors


def _read_tensor_info(cursor: _Cursor) -> _TensorInfo:
    name = cursor.string("the name", max_bytes=MAX_TENSOR_NAME_BYTES)
    cursor.where = f"tensor {shown(name)}"
    num_dims = cursor.uint32("number of dimensions")
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.fail(f"has {num_dims} dimensions; 1 to {MAX_DIMS} are allowed")
    shape = tuple(cursor.uint64("a dimension") for _ in range(num_dims))[::-1]
    type_number = cursor.uint32("type")
    offset = cursor.uint64("offset")
    if type_number in GGML_TYPES:
        _, block_elements, block_bytes = GGML_TYPES[type_number].value
    elif type_number in FOREIGN_TYPES:
        _, block_elements, block_bytes = FOREIGN_TYPES[type_number]
    else:
        raise cursor.fail(f"type number {type_number} is not known")
    if 0 in shape:
        raise cursor.fail(f"shape {shape} has a zero")
    if shape[-1] % block_elements:
        raise cursor.fail(f"rows of {shape[-1]} elements don't divide into blocks of {block_elements}")
    return _TensorInfo(name, shape, type_number, offset, prod(shape) // block_elements * block_bytes)


def _check_data(
    cursor: _Cursor, infos: dict[str, _TensorInfo], data_start: int, alignment: int, file: MappedFile
) -> None:
    """Each tensor inside the file, none over another, no gap beyond padding, nothing after the last."""
    room = cursor.end - data_start
    previous, filled = "", 0
    for info in sorted(infos.values(), key=lambda info: (info.offset, info.num_bytes)):
        cursor.where = f"tensor {shown(info.name)}"
        if info.offset + info.num_bytes > room:
            raise cursor.fail(
                f"shape {info.shape} takes {info.num_bytes} bytes at offset {info.offset}, but the file has only "
                f"{max(room, 0)} bytes of tensor data; it is truncated or damaged, download it again"
            )
        if info.offset < filled:
            raise cursor.fail(f"overlaps tensor {shown(previous)}")
        if info.offset > _aligned(filled, alignment):
            raise cursor.fail(f"starts at offset {info.offset}, but the tensor before it ends at {filled}")
        previous, filled = info.name, info.offset + info.num_bytes
    tail = data_start + _aligned(filled, alignment)
    if cursor.end > tail:
        cursor.where = "after the last tensor"
        excess = f"{cursor.end - tail} bytes too many"
        starts = [pos for pos in (tail, data_start + filled) if pos + len(MAGIC) <= file.size]
        if any(file.read(pos, len(MAGIC)).tobytes() == MAGIC for pos in starts):
            raise cursor.fail(
                f"{excess}, and they start another GGUF file: shards that were joined with `cat`? Keep the shards as "
                "separate files and name the first one, or merge them with `llama-gguf-split --merge`"
            )
        raise cursor.fail(f"{excess}; the file is damaged, download it again")


def _aligned(pos: int, alignment: int) -> int:
    return (pos + alignment - 1) // alignment * alignment
