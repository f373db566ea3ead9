"""GGUF models that are split over several files, as `llama-gguf-split` writes them.

The keys ``split.no``, ``split.count`` and ``split.tensors.count`` decide which file is which; names only tell which
files of a directory may belong together.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freehold.errors import ModelFileError, ModelNotFoundError
from freehold.files.gguf import GGUFFile, read_gguf
from freehold.files.mapped import MappedFile
from freehold.files.tensor_table import ForeignTensor
from freehold.files.tensors import Tensor

_SHARD_NAME = re.compile(r"(?P<prefix>.+)-\d{5}-of-\d{5}\.gguf")


@dataclass(frozen=True, slots=True)
class GGUFModel:
    """A whole GGUF model.

    Attributes:
        files: the shards in order; one file if the model isn't split.
        metadata: of the first shard.
        tensors: of all shards.
    """

    files: tuple[MappedFile, ...]
    metadata: dict[str, Any]
    tensors: dict[str, Tensor | ForeignTensor]


def open_gguf(path: Path) -> GGUFModel:
    """Open the model that `path` is (a file), is a shard of, or holds (a directory with one model).

    Raises:
        ModelNotFoundError: nothing there.
        ModelFileError: a file is bad, a shard is missing or foreign, or a directory holds several models.
    """
    with ExitStack() as opened:
        model = _open_directory(path, opened) if path.is_dir() else _open_file(path, opened)
        opened.pop_all()
        return model


def shard_prefix(file_name: str) -> str | None:
    """What the names of a split model's files have in common; None for other names."""
    match = _SHARD_NAME.fullmatch(file_name)
    return match["prefix"] if match else None


def _open_file(path: Path, opened: ExitStack) -> GGUFModel:
    named = _open(path, opened)
    if _num_shards(named) <= 1:
        return GGUFModel((named.file,), named.metadata, named.tensors)
    siblings = [sibling for sibling in sorted(path.parent.glob("*.gguf")) if sibling.name != path.name]
    if (prefix := shard_prefix(path.name)) is not None:
        siblings = [sibling for sibling in siblings if shard_prefix(sibling.name) == prefix]
        return _assemble([named, *(_open(sibling, opened) for sibling in siblings)])
    others = [_open(sibling, opened) for sibling in siblings if shard_prefix(sibling.name) is None]
    return _assemble([named, *(other for other in others if _num_shards(other) > 1)])


def _open_directory(directory: Path, opened: ExitStack) -> GGUFModel:
    groups: dict[str, list[GGUFFile]] = {}
    for path in sorted(directory.glob("*.gguf")):
        file = _open(path, opened)
        if _num_shards(file) <= 1:
            groups[path.name] = [file]
        else:
            groups.setdefault(shard_prefix(path.name) or "(shards)", []).append(file)
    if not groups:
        raise ModelNotFoundError(
            f"{directory} holds no model, neither a .gguf file nor config.json with safetensors; "
            "name a model file or its directory"
        )
    if len(groups) > 1:
        names = "; ".join(", ".join(file.file.path.name for file in group) for group in groups.values())
        raise ModelFileError(f"{directory} holds {len(groups)} models ({names}); name the file of the one you want")
    (group,) = groups.values()
    if _num_shards(group[0]) <= 1:
        return GGUFModel((group[0].file,), group[0].metadata, group[0].tensors)
    return _assemble(group)


def _assemble(shards: list[GGUFFile]) -> GGUFModel:
    """Check that `shards` are one model, each once, and join them in the order of their ``split.no``."""
    count = _num_shards(shards[0])
    by_number: dict[int, GGUFFile] = {}
    for shard in shards:
        path, number = shard.file.path, _split_key(shard, "split.no")
        if _num_shards(shard) != count:
            raise ModelFileError(
                f"{path} belongs to another model than {shards[0].file.path.name}: its split.count is "
                f"{_num_shards(shard)}, not {count}; move it elsewhere"
            )
        if number >= count:
            raise ModelFileError(f"{path}: split.no is {number}, but split.count is {count}")
        if number in by_number:
            raise ModelFileError(
                f"{path} and {by_number[number].file.path.name} are both shard {number + 1} of {count}: "
                "one belongs to another model; move it elsewhere"
            )
        by_number[number] = shard
    if missing := [number for number in range(min(count, len(shards) + 1)) if number not in by_number]:
        directory, prefix = shards[0].file.path.parent, shard_prefix(shards[0].file.path.name)
        name = f"{prefix}-{missing[0] + 1:05}-of-{count:05}.gguf" if prefix else "a file with that split.no"
        raise ModelFileError(
            f"{directory}: shard {missing[0] + 1} of {count} ({name}) is missing, {len(by_number)} are there; "
            "download the missing ones into the same directory"
        )
    return _join([by_number[number] for number in range(count)])


def _join(shards: list[GGUFFile]) -> GGUFModel:
    tensors: dict[str, Tensor | ForeignTensor] = {}
    homes: dict[str, str] = {}
    for shard in shards:
        for name, tensor in shard.tensors.items():
            if name in tensors:
                raise ModelFileError(
                    f"{shard.file.path} and {homes[name]} both hold tensor {name!r}: they are shards of two models"
                )
            tensors[name] = tensor
            homes[name] = shard.file.path.name
    expected = _split_key(shards[0], "split.tensors.count")
    if len(tensors) != expected:
        counts = ", ".join(f"{shard.file.path.name}: {len(shard.tensors)}" for shard in shards)
        raise ModelFileError(
            f"{shards[0].file.path}: split.tensors.count is {expected}, but the shards hold {len(tensors)} tensors "
            f"({counts}); one of them belongs to another model"
        )
    return GGUFModel(tuple(shard.file for shard in shards), shards[0].metadata, tensors)


def _open(path: Path, opened: ExitStack) -> GGUFFile:
    file = MappedFile(path)
    opened.callback(file.close)
    return read_gguf(file)


def _num_shards(file: GGUFFile) -> int:
    return _split_key(file, "split.count") if "split.count" in file.metadata else 1


def _split_key(file: GGUFFile, key: str) -> int:
    value = file.metadata.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        found = "is missing" if value is None else f"is {str(value)[:80]!r}"
        raise ModelFileError(f"{file.file.path}: key {key!r} {found}; a count is required in a split file")
    return value
