"""The tensors of a model by name, including those whose type Freehold can't read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from freehold.errors import UnsupportedModelError
from freehold.files.tensors import DType, Tensor


@dataclass(frozen=True, slots=True)
class ForeignTensor:
    """A well-formed tensor of a type that Freehold doesn't read."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    path: Path


class TensorTable(Mapping[str, Tensor]):
    """Read-only mapping from name to tensor, in the order of the file.

    A tensor of a foreign type has its name in here, so that nothing goes unnoticed, but asking for it raises. So a
    checkpoint may carry, say, a boolean mask that no family uses.
    """

    def __init__(self, entries: Mapping[str, Tensor | ForeignTensor]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Tensor:
        """The tensor.

        Raises:
            KeyError: no such name.
            UnsupportedModelError: the tensor's type is not one of `DType`.
        """
        entry = self._entries[name]
        if isinstance(entry, ForeignTensor):
            known = ", ".join(dtype.name for dtype in DType)
            raise UnsupportedModelError(
                f"{entry.path}: tensor {name!r} has type {entry.type_name}, which Freehold doesn't run; "
                f"convert the model to one of {known}"
            )
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries
