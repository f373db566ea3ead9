"""A model on disk, in whatever format: metadata, tensors, side files and a fingerprint."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self

from freehold.errors import ModelFileError, ModelNotFoundError
from freehold.files.digests import file_digest, known_digest
from freehold.files.disk import is_plain_name
from freehold.files.gguf_shards import GGUFModel, open_gguf
from freehold.files.layout import read_manifest
from freehold.files.safetensors import SafetensorsModel, has_safetensors, open_safetensors
from freehold.files.strict_json import parse_json
from freehold.files.tensor_table import TensorTable
from freehold.files.tensors import Tensor

_MAX_SIDE_BYTES = 100_000_000
_SIDE_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""Side files of a Hugging Face checkpoint that decide what the model says, so they belong to its fingerprint."""


class ModelFiles:
    """An open model. Its files stay mapped until `close`.

    Attributes:
        path: the file or directory that was asked for.
        format: ``gguf`` or ``hf``.
        metadata: GGUF keys (see `freehold.files.gguf.GGUFFile`), or the parsed ``config.json``.
        tensors: by name, lazy views of the mapped files. Asking for a tensor of a type that Freehold doesn't read
            raises UnsupportedModelError; its name is there all the same.
    """

    def __init__(
        self,
        path: Path,
        metadata: Mapping[str, Any],
        contents: GGUFModel | SafetensorsModel,
        cache_dir: Path | None,
    ) -> None:
        self.path = path
        self.format: Literal["gguf", "hf"] = "gguf" if isinstance(contents, GGUFModel) else "hf"
        self.metadata = MappingProxyType(dict(metadata))
        self.tensors: Mapping[str, Tensor] = TensorTable(contents.tensors)
        self._files = contents.files
        self._cache_dir = cache_dir
        self._digests: tuple[str, ...] | None = None

    @property
    def tokenizer_json(self) -> Path | None:
        """The checkpoint's ``tokenizer.json`` if it has one."""
        path = self.path / "tokenizer.json"
        return path if self.format == "hf" and path.is_file() else None

    def read_text(self, name: str) -> str | None:
        """Contents of a side file of a Hugging Face checkpoint; None if there is none.

        Arguments:
            name: a plain file name, such as ``chat_template.jinja``.

        Raises:
            ModelFileError: unreadable, too large, or not UTF-8.
        """
        raw = self._read_bytes(name)
        try:
            return None if raw is None else raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ModelFileError(f"{self.path / name} is not valid UTF-8") from None

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Parsed side file, such as ``tokenizer_config.json``; None if there is none.

        Raises:
            ModelFileError: unreadable, too large, or not a JSON object.
        """
        raw = self._read_bytes(name)
        return None if raw is None else parse_json(raw, str(self.path / name))

    def _read_bytes(self, name: str) -> bytes | None:
        if not is_plain_name(name):
            raise ValueError(f"{name!r} is not a plain file name")
        return _read_side_file(self.path / name) if self.format == "hf" else None

    def fingerprint(self) -> str:
        """Content hash of all that makes the model: weights, and for Hugging Face checkpoints configuration,
        tokenizer and template. Hexadecimal, 64 characters. The same model has the same one under any path.

        Asked for after loading, it also vouches that the weights did not change meanwhile.

        Raises:
            ModelFileError: a file changed since it was opened; or it lies in the store, and is not what was stored.
        """
        self.check_unchanged()
        whole = hashlib.sha256(f"freehold-model-1 {self.format}\n".encode())
        for file, digest in zip(self._files, self.weight_digests(), strict=True):
            _check_stored(file.path, digest)
            whole.update(f"weights {digest}\n".encode())
        for name in _SIDE_FILES:
            if (raw := self._read_bytes(name)) is not None:
                whole.update(f"{name} {hashlib.sha256(raw).hexdigest()}\n".encode())
        return whole.hexdigest()

    def weight_digests(self) -> tuple[str, ...]:
        """SHA-256 of each weight file, hexadecimal. Costs their hashing once, unless their hashes are remembered.

        Raises:
            ModelFileError: a file changed meanwhile.
        """
        if self._digests is None:
            self._digests = tuple(file_digest(file, self._cache_dir) for file in self._files)
        return self._digests

    def known_digests(self) -> tuple[str, ...] | None:
        """SHA-256 of each weight file if all are remembered from an earlier start."""
        known = [known_digest(file, self._cache_dir) for file in self._files]
        return tuple(digest for digest in known if digest is not None) if None not in known else None

    def check_unchanged(self) -> None:
        """Raise ModelFileError if a weight file was truncated, changed, replaced or removed since opening."""
        for file in self._files:
            file.check_unchanged()

    def release_pages(self) -> None:
        """Drop the mapped pages from resident memory, once the weights have been packed elsewhere."""
        for file in self._files:
            file.release_pages()

    def close(self) -> None:
        """Close the files. Tensors taken before stay valid, and keep their file mapped. Idempotent."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_model(path: Path, *, cache_dir: Path | None = None) -> ModelFiles:
    """Open a GGUF file (or any shard of a split one), a directory with one GGUF model, or a Hugging Face directory.

    A directory with ``config.json`` and safetensors counts as Hugging Face's, even if a GGUF file lies beside them.

    Arguments:
        cache_dir: where content hashes are remembered (`ModelFiles.fingerprint`); None: nowhere.

    Raises:
        ModelNotFoundError: no such path, or no model in that directory.
        ModelFileError: a file is truncated, malformed or hostile.
    """
    if path.is_file() and path.suffix == ".safetensors":
        raise ModelFileError(f"{path} holds tensors only; name its directory, which needs a config.json too")
    if path.is_dir() and _is_hugging_face(path):
        config = _read_side_file(path / "config.json")
        if config is None:
            raise ModelFileError(f"{path} has safetensors but no config.json; download the whole checkpoint")
        metadata = parse_json(config, str(path / "config.json"))
        return ModelFiles(path, metadata, open_safetensors(path), cache_dir)
    model = open_gguf(path)
    return ModelFiles(path, model.metadata, model, cache_dir)


def _check_stored(path: Path, digest: str) -> None:
    """Raise ModelFileError if a manifest of the store lies beside a weight file and tells another hash."""
    manifest = read_manifest(path.parent)
    if manifest is not None and manifest.files.get(path.name, digest) != digest:
        raise ModelFileError(
            f"{path} is not what was stored as {manifest.name}: its SHA-256 is {digest} instead of "
            f"{manifest.files[path.name]}; `freehold pull {manifest.name}` fetches it again; a model that you changed "
            "belongs outside of the store"
        )


def _is_hugging_face(directory: Path) -> bool:
    if has_safetensors(directory):
        return True
    if any(directory.glob("*.gguf")) or not (directory / "config.json").is_file():
        return False
    pickles = next(directory.glob("*.bin"), None)
    if pickles is not None:
        raise ModelFileError(
            f"{directory} has {pickles.name} but no safetensors; Freehold doesn't unpickle weights, "
            "convert them with `save_pretrained(..., safe_serialization=True)`"
        )
    raise ModelNotFoundError(f"{directory} has a config.json but no model.safetensors; download the weights too")


def _read_side_file(path: Path) -> bytes | None:
    try:
        if not path.is_file():
            return None
        size = path.stat().st_size
        if size > _MAX_SIDE_BYTES:
            raise ModelFileError(f"{path} has {size} bytes; {_MAX_SIDE_BYTES} are allowed")
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path} can't be read ({error.strerror}); check its permissions") from None
