"""Tensors as they lie in model files: a type, a shape and a read-only view of mapped bytes."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from freehold.files.mapped import MappedFile


class DType(Enum):
    """Storage types. The value is (elements in a block, bytes in a block); names are ggml's."""

    F32 = ("F32", 1, 4)
    F16 = ("F16", 1, 2)
    BF16 = ("BF16", 1, 2)
    Q4_0 = ("Q4_0", 32, 18)
    Q4_1 = ("Q4_1", 32, 20)
    Q5_0 = ("Q5_0", 32, 22)
    Q5_1 = ("Q5_1", 32, 24)
    Q8_0 = ("Q8_0", 32, 34)
    Q2_K = ("Q2_K", 256, 84)
    Q3_K = ("Q3_K", 256, 110)
    Q4_K = ("Q4_K", 256, 144)
    Q5_K = ("Q5_K", 256, 176)
    Q6_K = ("Q6_K", 256, 210)
    IQ4_NL = ("IQ4_NL", 32, 18)
    IQ4_XS = ("IQ4_XS", 256, 136)

    @property
    def block_elements(self) -> int:
        """Elements that share one block, along the last axis."""
        return self.value[1]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.value[2]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a model file.

    Attributes:
        name: as in the file.
        shape: outermost axis first (as numpy and PyTorch have it, the reverse of GGUF's order). The last axis is the
            one that is stored contiguously and quantized in blocks.
        data: uint8, read-only, exactly the tensor's bytes, row-major; a view of the mapped file where possible.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, that is of the last axis."""
        return self.shape[-1] // self.dtype.block_elements * self.dtype.block_bytes

    def in_memory(self) -> "Tensor":
        """The same tensor, with bytes that no change of its file can reach."""
        return self


@dataclass(frozen=True, slots=True)
class MappedTensor(Tensor):
    """A tensor whose `data` is a view of a mapped file.

    Attributes:
        start: of its bytes in the file.
    """

    file: MappedFile
    start: int

    def in_memory(self) -> Tensor:
        """The same tensor, read once more from the file.

        Raises:
            ModelFileError: the file was truncated meanwhile. Looking at `data` would kill the process then.
        """
        return Tensor(self.name, self.dtype, self.shape, self.file.read(self.start, self.data.size))
