"""Tensors to be written: their place in the file is known before their bytes exist."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import IO

import numpy as np
from numpy.typing import NDArray

from freehold.files.tensors import DType


@dataclass(frozen=True, slots=True)
class TensorSource:
    """One tensor of a file that is being written.

    Attributes:
        shape: outermost axis first.
        pieces: called once, when the tensor's turn comes; yields its bytes in order, in pieces of any size. So a
            checkpoint larger than memory can be written.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[NDArray[np.uint8]]]

    @property
    def num_bytes(self) -> int:
        """Bytes in the file, padding not counted."""
        return prod(self.shape) // self.dtype.block_elements * self.dtype.block_bytes

    @classmethod
    def of(cls, name: str, dtype: DType, shape: tuple[int, ...], data: NDArray[np.uint8]) -> "TensorSource":
        """A tensor whose bytes are in memory already."""
        return cls(name, dtype, shape, lambda: iter([data]))


def write_pieces(file: IO[bytes], source: TensorSource, on_bytes: Callable[[int], None]) -> None:
    """Write a tensor's bytes, and check that they are as many as announced.

    Arguments:
        on_bytes: called with the size of each piece.

    Raises:
        ValueError: the source yields more or fewer bytes than its shape takes.
    """
    written = 0
    for piece in source.pieces():
        file.write(np.ascontiguousarray(piece).data)
        written += piece.nbytes
        on_bytes(piece.nbytes)
    if written != source.num_bytes:
        raise ValueError(f"{source.name} yields {written} bytes instead of {source.num_bytes}")
