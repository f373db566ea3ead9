"""Writer of safetensors files: one file, or several with an index when one would be too large."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from freehold.files.safetensors import INDEX_NAME, SINGLE_NAME
from freehold.files.tensor_source import TensorSource, write_pieces
from freehold.files.tensors import DType

_WRITABLE = (DType.F32, DType.F16, DType.BF16)


def write_safetensors(
    path: Path, tensors: Sequence[TensorSource], on_bytes: Callable[[int], None] = lambda _count: None
) -> None:
    """Write one file, replacing what is there. Tensors lie in the order given.

    Arguments:
        on_bytes: called with the bytes of tensor data that were added.

    Raises:
        ValueError: a type other than F32, F16 and BF16, or a name that occurs twice.
        OSError: from the disk; what was written so far stays.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for tensor in tensors:
        if tensor.dtype not in _WRITABLE:
            raise ValueError(f"{tensor.name} is {tensor.dtype.name}; safetensors hold F32, F16 and BF16")
        if tensor.name in header:
            raise ValueError(f"{tensor.name} occurs twice")
        end = begin + tensor.num_bytes
        header[tensor.name] = {"dtype": tensor.dtype.name, "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # the data begins on a multiple of 8, as the format recommends
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for tensor in tensors:
            write_pieces(file, tensor, on_bytes)


def write_checkpoint_tensors(
    directory: Path,
    tensors: Sequence[TensorSource],
    max_file_bytes: int,
    on_bytes: Callable[[int], None] = lambda _count: None,
) -> None:
    """Write ``model.safetensors``, or ``model-00001-of-0000N.safetensors``… with an index if that would be larger than
    `max_file_bytes`. A tensor is never divided, so a file can be larger than that with one tensor in it.

    Raises:
        ValueError, OSError: as `write_safetensors`.
    """
    files: list[list[TensorSource]] = [[]]
    filled = 0
    for tensor in tensors:
        if files[-1] and filled + tensor.num_bytes > max_file_bytes:
            files.append([])
            filled = 0
        files[-1].append(tensor)
        filled += tensor.num_bytes
    if len(files) == 1:
        write_safetensors(directory / SINGLE_NAME, tensors, on_bytes)
        return
    names = [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
    for name, group in zip(names, files, strict=True):
        write_safetensors(directory / name, group, on_bytes)
    index = {
        "metadata": {"total_size": sum(tensor.num_bytes for tensor in tensors)},
        "weight_map": {tensor.name: name for name, group in zip(names, files, strict=True) for tensor in group},
    }
    (directory / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n")
