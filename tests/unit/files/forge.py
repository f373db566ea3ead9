"""Bytes of model files, right or wrong at will: every count, length and type can be a lie."""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

U64_MAX = 2**64 - 1


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(raw: bytes | str, *, length: int | None = None) -> bytes:
    """A GGUF string, whose length may be a lie."""
    raw = raw.encode() if isinstance(raw, str) else raw
    return u64(len(raw) if length is None else length) + raw


def pair(key: bytes | str, type_number: int, value: bytes) -> bytes:
    """A metadata key with its value."""
    return text(key) + u32(type_number) + value


def array(item_type: int, count: int, items: bytes = b"") -> bytes:
    """The value of an array key."""
    return u32(item_type) + u64(count) + items


@dataclass(frozen=True, slots=True)
class Info:
    """An entry of the tensor list; dimensions innermost first, as GGUF has them."""

    name: bytes | str = "a"
    dims: Sequence[int] = (8,)
    type_number: int = 0
    offset: int = 0
    num_dims: int | None = None

    def encode(self) -> bytes:
        count = len(self.dims) if self.num_dims is None else self.num_dims
        dims = b"".join(u64(dim) for dim in self.dims)
        return text(self.name) + u32(count) + dims + u32(self.type_number) + u64(self.offset)


@dataclass(frozen=True, slots=True)
class Gguf:
    """A GGUF file. `padded` puts the tensor data on the next multiple of `alignment`."""

    pairs: Sequence[bytes] = ()
    infos: Sequence[Info | bytes] = ()
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    num_pairs: int | None = None
    num_tensors: int | None = None
    alignment: int = 32
    padded: bool = True

    def head(self) -> bytes:
        """All before the padding."""
        num_tensors = len(self.infos) if self.num_tensors is None else self.num_tensors
        num_pairs = len(self.pairs) if self.num_pairs is None else self.num_pairs
        infos = b"".join(info if isinstance(info, bytes) else info.encode() for info in self.infos)
        return self.magic + u32(self.version) + u64(num_tensors) + u64(num_pairs) + b"".join(self.pairs) + infos

    def encode(self) -> bytes:
        head = self.head()
        return head + bytes(-len(head) % self.alignment if self.padded else 0) + self.data


def good_gguf() -> Gguf:
    """A valid file with each kind of value, and three tensors."""
    return Gguf(
        pairs=(
            pair("general.architecture", 8, text("llama")),
            pair("numbers.u8", 0, b"\x07"),
            pair("numbers.f64", 12, struct.pack("<d", 1.5)),
            pair("flag", 7, b"\x01"),
            pair("ints", 9, array(5, 3, struct.pack("<3i", 1, -2, 3))),
            pair("flags", 9, array(7, 2, b"\x00\x01")),
            pair("words", 9, array(8, 2, text("ein") + text("zwei"))),
            pair("nested", 9, array(9, 2, array(0, 1, b"\x05") + array(8, 1, text("x")))),
        ),
        infos=(
            Info("norm", (8,), 0, 0),
            Info("matrix", (32, 2), 8, 32),
            Info("half", (4, 3), 1, 128),
        ),
        data=bytes(range(32)) + bytes(68) + bytes(28) + bytes(24) + bytes(8),
    )


def gguf_with(**changes: Any) -> bytes:
    """`good_gguf` with some of its parts replaced."""
    return replace(good_gguf(), **changes).encode()


def safetensors(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file; `header` is JSON, or bytes to be taken as they are."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return u64(len(raw) if length is None else length) + raw + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    """A tensor's entry in a safetensors header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}
