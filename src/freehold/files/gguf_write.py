"""Writer of GGUF files, version 3, little endian: header first, then tensors as their bytes come."""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from freehold.files.ggml_types import TYPE_NUMBERS
from freehold.files.gguf import DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS, MAX_TENSOR_NAME_BYTES
from freehold.files.tensor_source import TensorSource, write_pieces

_VERSION = 3
_STRING, _ARRAY = 8, 9
_SCALARS: dict[type[np.generic], int] = {
    np.uint8: 0,
    np.int8: 1,
    np.uint16: 2,
    np.int16: 3,
    np.uint32: 4,
    np.int32: 5,
    np.float32: 6,
    np.bool_: 7,
    np.uint64: 10,
    np.int64: 11,
    np.float64: 12,
}


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Sequence[TensorSource],
    on_bytes: Callable[[int], None] = lambda _count: None,
) -> None:
    """Write a GGUF file, replacing what is there.

    Arguments:
        metadata: a str, bool, int or float is stored as string, boolean, 32-bit unsigned (else 64-bit signed) integer
            or 32-bit float; a numpy scalar as its own type; a 1-D numpy array as an array of its type; a sequence
            of str, of arrays or of sequences as an array of those. ``general.alignment`` is obeyed.
        on_bytes: called with the bytes of tensor data that were added.

    Raises:
        ValueError: a value or a tensor that the format can't hold.
        OSError: from the disk; what was written so far stays.
    """
    alignment = int(metadata.get("general.alignment", DEFAULT_ALIGNMENT))
    header = [MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        type_number, encoded = _encode(key, value)
        header += [_string(key), struct.pack("<I", type_number), encoded]
    offset = 0
    for tensor in tensors:
        header.append(_tensor_info(tensor, offset))
        offset += _padded(tensor.num_bytes, alignment)
    with path.open("wb") as file:
        file.writelines(header)
        _pad(file, alignment)
        for tensor in tensors:
            write_pieces(file, tensor, on_bytes)
            _pad(file, alignment)


def _tensor_info(tensor: TensorSource, offset: int) -> bytes:
    if not 1 <= len(tensor.shape) <= MAX_DIMS or 0 in tensor.shape:
        raise ValueError(f"{tensor.name} has shape {tensor.shape}; 1 to {MAX_DIMS} dimensions above 0 are allowed")
    if tensor.shape[-1] % tensor.dtype.block_elements:
        raise ValueError(f"rows of {tensor.name}, {tensor.shape}, don't divide into {tensor.dtype.name} blocks")
    if not 1 <= len(tensor.name.encode()) <= MAX_TENSOR_NAME_BYTES:
        raise ValueError(f"{tensor.name!r} is longer than {MAX_TENSOR_NAME_BYTES} bytes, or empty")
    dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
    return _string(tensor.name) + dims + struct.pack("<IQ", TYPE_NUMBERS[tensor.dtype], offset)


def _encode(key: str, value: Any) -> tuple[int, bytes]:
    """GGUF's number for the type of `value`, and its bytes."""
    if isinstance(value, str):
        return _STRING, _string(value)
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise ValueError(f"{key} has {value.ndim} dimensions; arrays have one")
        item_type = _scalar_type(key, value.dtype.type)
        encoded = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<"))).tobytes()
        return _ARRAY, struct.pack("<IQ", item_type, len(value)) + encoded
    if isinstance(value, Sequence):
        items = [_encode(key, item) for item in value]
        kinds = {type_number for type_number, _ in items}
        if len(kinds) > 1:
            raise ValueError(f"{key} mixes types in one array")
        item_type = kinds.pop() if kinds else _STRING
        return _ARRAY, struct.pack("<IQ", item_type, len(items)) + b"".join(encoded for _, encoded in items)
    scalar = value if isinstance(value, np.generic) else _narrowest(key, value)
    return _scalar_type(key, type(scalar)), scalar.astype(scalar.dtype.newbyteorder("<")).tobytes()


def _narrowest(key: str, value: Any) -> np.generic:
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.uint32(value) if 0 <= value < 1 << 32 else np.int64(value)
    if isinstance(value, float):
        return np.float32(value)
    raise ValueError(f"{key} is a {type(value).__name__}, which GGUF can't hold")


def _scalar_type(key: str, kind: type[np.generic]) -> int:
    if kind not in _SCALARS:
        raise ValueError(f"{key} is of type {kind.__name__}, which GGUF can't hold")
    return _SCALARS[kind]


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _padded(count: int, alignment: int) -> int:
    return (count + alignment - 1) // alignment * alignment


def _pad(file: IO[bytes], alignment: int) -> None:
    position = file.tell()
    file.write(bytes(_padded(position, alignment) - position))
