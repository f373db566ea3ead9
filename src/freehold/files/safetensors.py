"""Reader of safetensors files, single or sharded with an index.

Format: https://huggingface.co/docs/safetensors. The header is checked more strictly than most readers do: tensors must
fill the data without gap or overlap, each key occurs once, and a type outside the table is an error instead of a way
around the checks.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from freehold.errors import ModelFileError
from freehold.files.disk import is_plain_name
from freehold.files.mapped import MappedFile
from freehold.files.strict_json import parse_json
from freehold.files.tensor_table import ForeignTensor
from freehold.files.tensors import DType, MappedTensor, Tensor

MAX_HEADER_BYTES = 100_000_000
MAX_DIMS = 8
SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
_MAX_INDEX_BYTES = 100_000_000
_READABLE = {"F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16}
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SafetensorsModel:
    """All tensors of a checkpoint, and the files that hold them."""

    files: tuple[MappedFile, ...]
    tensors: dict[str, Tensor | ForeignTensor]


def has_safetensors(directory: Path) -> bool:
    """Does `directory` hold a checkpoint in this format?"""
    return (directory / INDEX_NAME).is_file() or (directory / SINGLE_NAME).is_file()


def open_safetensors(directory: Path) -> SafetensorsModel:
    """Open ``model.safetensors.index.json`` with the files that it names, or else ``model.safetensors``.

    The index is authoritative: a tensor is taken from the file that the index assigns it to, files and tensors that it
    doesn't name are left alone.

    Raises:
        ModelFileError: a file is missing, truncated, malformed or hostile. Names the file and the tensor.
    """
    with ExitStack() as opened:
        if (directory / INDEX_NAME).is_file():
            model = _open_indexed(directory, opened)
        else:
            file = MappedFile(directory / SINGLE_NAME)
            opened.callback(file.close)
            model = SafetensorsModel((file,), read_safetensors(file))
        opened.pop_all()
        return model


def _open_indexed(directory: Path, opened: ExitStack) -> SafetensorsModel:
    index_path = directory / INDEX_NAME
    files: dict[str, MappedFile] = {}
    contents: dict[str, dict[str, Tensor | ForeignTensor]] = {}
    tensors: dict[str, Tensor | ForeignTensor] = {}
    for name, file_name in _read_index(index_path).items():
        if file_name not in files:
            path = directory / file_name
            if not path.is_file():
                raise ModelFileError(f"{path} is missing, but {INDEX_NAME} names it; download it again")
            files[file_name] = MappedFile(path)
            opened.callback(files[file_name].close)
            contents[file_name] = read_safetensors(files[file_name])
        if name not in contents[file_name]:
            raise ModelFileError(
                f"{directory / file_name} doesn't hold tensor {name!r}, but {INDEX_NAME} says so; "
                "shards and index belong to different checkpoints, download them again"
            )
        tensors[name] = contents[file_name][name]
    return SafetensorsModel(tuple(files.values()), tensors)


def _read_index(path: Path) -> dict[str, str]:
    if path.stat().st_size > _MAX_INDEX_BYTES:
        raise ModelFileError(f"{path} has {path.stat().st_size} bytes; {_MAX_INDEX_BYTES} are allowed")
    index = parse_json(path.read_bytes(), str(path))
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{path}: 'weight_map' is missing, empty or not an object; download the index again")
    for name, file_name in weight_map.items():
        if not isinstance(file_name, str) or not is_plain_name(file_name):
            raise ModelFileError(f"{path}: 'weight_map' gives tensor {name[:100]!r} the file {str(file_name)[:100]!r}; "
                                 "it must be the name of a file in the same directory")  # fmt: skip
    return weight_map


def read_safetensors(file: MappedFile) -> dict[str, Tensor | ForeignTensor]:
    """Parse a mapped file. Tensors are views of the mapping, in the order of their data.

    Raises:
        ModelFileError: truncated, malformed or hostile. Names the tensor.
    """
    if file.size < 8:
        raise ModelFileError(f"{file.path} has {file.size} bytes, too few for a header; download it again")
    header_bytes = int.from_bytes(file.read(0, 8).tobytes(), "little")
    if header_bytes > MAX_HEADER_BYTES:
        raise ModelFileError(
            f"{file.path}: the header claims {header_bytes} bytes; {MAX_HEADER_BYTES} are allowed; "
            "perhaps this isn't a safetensors file"
        )
    if header_bytes > file.size - 8:
        raise ModelFileError(
            f"{file.path}: the header claims {header_bytes} bytes, but {file.size - 8} are left; "
            "the file is truncated, download it again"
        )
    raw = file.read(8, header_bytes).tobytes()
    if not raw.startswith(b"{"):
        raise ModelFileError(f"{file.path}: the header starts with {raw[:1]!r} instead of '{{'; not a safetensors file")
    header = parse_json(raw, f"{file.path}: header")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ModelFileError(f"{file.path}: '__metadata__' must map strings to strings")
    entries = [_check_entry(file.path, name, entry) for name, entry in header.items()]
    return _check_ranges(file, entries, 8 + header_bytes)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A header entry. `begin` and `end` count from the start of the tensor data."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _check_entry(path: Path, name: str, entry: Any) -> _Entry:
    where = f"{path}: tensor {name[:100]!r}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{where}: the entry must have exactly 'dtype', 'shape' and 'data_offsets'")
    type_name, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(type_name, str) or type_name not in _BITS:
        raise ModelFileError(f"{where}: dtype {str(type_name)[:40]!r} is not known")
    if not _is_counts(shape) or len(shape) > MAX_DIMS:
        raise ModelFileError(f"{where}: shape {str(shape)[:100]} must be a list of at most {MAX_DIMS} sizes")
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelFileError(f"{where}: data_offsets {str(offsets)[:100]} must be a begin and an end")
    bits = prod(shape) * _BITS[type_name]
    if bits != (offsets[1] - offsets[0]) * 8:
        raise ModelFileError(
            f"{where}: shape {shape} of {type_name} takes {-(-bits // 8)} bytes, "
            f"but data_offsets give it {offsets[1] - offsets[0]}"
        )
    return _Entry(name, type_name, tuple(shape), offsets[0], offsets[1])


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_ranges(file: MappedFile, entries: list[_Entry], data_start: int) -> dict[str, Tensor | ForeignTensor]:
    room = file.size - data_start
    filled = 0
    tensors: dict[str, Tensor | ForeignTensor] = {}
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        where = f"{file.path}: tensor {entry.name[:100]!r}"
        if entry.begin != filled:
            problem = "overlaps the tensor before it" if entry.begin < filled else "leaves a gap before it"
            raise ModelFileError(f"{where} {problem}: it begins at {entry.begin}, which should be {filled}")
        if entry.end > room:
            raise ModelFileError(
                f"{where} ends at byte {entry.end} of the data, but the file has only {room}; "
                "it is truncated, download it again"
            )
        filled = entry.end
        if entry.type_name in _READABLE:
            data = file.data[data_start + entry.begin : data_start + entry.end]
            dtype = _READABLE[entry.type_name]
            tensors[entry.name] = MappedTensor(entry.name, dtype, entry.shape, data, file, data_start + entry.begin)
        else:
            tensors[entry.name] = ForeignTensor(entry.name, entry.type_name, entry.shape, file.path)
    if filled != room:
        raise ModelFileError(
            f"{file.path}: {room - filled} bytes after the last tensor; the file is damaged, download it again"
        )
    return tensors
