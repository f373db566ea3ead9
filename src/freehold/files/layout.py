"""The model store's directories, names and locks.

A home directory holds ``models/`` (one directory a model, with ``model.json``), ``downloads/`` (what has begun),
``hashes/`` (content hashes of files), ``packed/`` (packed weights, see `freehold.files.packed_cache`) and ``locks/``.
"""

import fcntl
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from freehold.errors import ModelNotFoundError, UserError
from freehold.files.digests import file_digest, remember_digest
from freehold.files.disk import disk_errors, is_plain_name, write_atomically
from freehold.files.mapped import MappedFile

MANIFEST_NAME = "model.json"
_FORMAT = 1
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_NAME = re.compile(rf"{_PART}|{_PART}/{_PART}(/{_PART}\.gguf)?(@{_PART}(/{_PART})*)?")
_MAX_NAME_CHARACTERS = 200


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of a model, written when its pull is complete.

    Attributes:
        source: what it was fetched from, for people: a package and version, or a repository and commit.
        entry: what to open, relative to the model's directory: a GGUF file, or ``.``.
        files: name → SHA-256, checked, of the weight files; hexadecimal.
        sizes: name → bytes of every file, filled in by `install`.
    """

    name: str
    source: str
    entry: str
    size_bytes: int
    files: dict[str, str]
    sizes: dict[str, int] = {}
    format: int = _FORMAT


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in the store. `path` is what to open."""

    name: str
    path: Path
    source: str
    size_bytes: int


def check_name(name: str) -> str:
    """Return `name` if it can be the name of a stored model.

    Raises:
        ModelNotFoundError: path tricks, control characters, or too long.
    """
    if not is_name(name):
        raise ModelNotFoundError(
            f"{name[:_MAX_NAME_CHARACTERS]!r} can't be the name of a model; names look like smollm2, "
            "org/name, org/name@revision or org/name/file.gguf"
        )
    return name


def is_name(name: str) -> bool:
    """Can `name` be the name of a stored model?"""
    # Two dashes stand for a slash in directory names; the Hugging Face hub has neither `--` nor `..` in names.
    tricks = ".." in name or "--" in name or len(name) > _MAX_NAME_CHARACTERS
    return not tricks and _NAME.fullmatch(name) is not None


def model_directory(name: str, home: Path) -> Path:
    """Where the model of that (checked) name lies or would lie."""
    return home / "models" / folder(name)


def download_directory(name: str, home: Path) -> Path:
    """Where an unfinished pull of that (checked) name keeps its bytes; made if missing."""
    return _made(home / "downloads" / folder(name))


def hashes_directory(home: Path) -> Path:
    """Where content hashes are remembered; see `freehold.files.digests`."""
    return home / "hashes"


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a model's directory; None if there is none that this version can read."""
    try:
        manifest = msgspec.json.decode((directory / MANIFEST_NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if manifest.format == _FORMAT and _is_sound(manifest) else None


def _is_sound(manifest: Manifest) -> bool:
    """Whoever wrote it, it leads nowhere else and can be shown on a terminal."""
    names = {*manifest.files, *manifest.sizes, *({manifest.entry} - {"."})}
    return (
        is_name(manifest.name)
        and manifest.source.isprintable()
        and all(is_plain_name(name) for name in names)
        and all(0 <= size < 1 << 63 for size in (manifest.size_bytes, *manifest.sizes.values()))
    )


def stored_model(directory: Path) -> StoredModel | None:
    """The model in that directory, unless it is incomplete: a file is missing or has another size than it had."""
    manifest = read_manifest(directory)
    if manifest is None or not (directory / manifest.entry).exists():
        return None
    sizes = manifest.sizes
    if not sizes and list(manifest.files) == [manifest.entry]:
        sizes = {manifest.entry: manifest.size_bytes}  # manifests had no sizes once
    if any(_size_of(directory / name) != size for name, size in sizes.items()):
        return None
    return StoredModel(manifest.name, directory / manifest.entry, manifest.source, manifest.size_bytes)


def is_intact(directory: Path, home: Path) -> bool:
    """Do the weight files of a stored model have the contents that they were stored with? Costs their hashing, unless
    their hashes are remembered."""
    manifest = read_manifest(directory)
    return manifest is not None and all(
        _digest_of(directory / name, home) == digest for name, digest in manifest.files.items()
    )


def _digest_of(path: Path, home: Path) -> str | None:
    try:
        file = MappedFile(path)
    except UserError:
        return None
    try:
        return file_digest(file, hashes_directory(home))
    finally:
        file.close()


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def install(staging: Path, manifest: Manifest, home: Path) -> Path:
    """Write the manifest into `staging` and give the whole directory its place; remember the hashes in it. Returns what
    to open.

    The caller holds the model's lock. A directory without a readable manifest in that place is replaced.
    """
    target = model_directory(manifest.name, home)
    with disk_errors(target):
        (staging / MANIFEST_NAME).unlink(missing_ok=True)  # a repository may have a file of that name
        sizes = {path.name: path.stat().st_size for path in staging.iterdir() if path.is_file()}
        manifest = msgspec.structs.replace(manifest, sizes=sizes)
        write_atomically(staging / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest)))
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            discard(target)
        staging.rename(target)
    for file_name, digest in manifest.files.items():
        file = MappedFile(target / file_name)
        remember_digest(file, digest, hashes_directory(home))
        file.close()
    return target / manifest.entry


def discard(directory: Path) -> None:
    """Remove a directory so that its name is free at once, whatever happens meanwhile. A symbolic link goes alone."""
    if directory.is_symlink():
        directory.unlink()
        return
    doomed = Path(tempfile.mkdtemp(prefix=".removed-", dir=directory.parent))
    directory.rename(doomed / directory.name)
    shutil.rmtree(doomed)


@contextmanager
def locked(name: str, home: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a (checked) name, so that one process at a time pulls or removes that model.

    Arguments:
        on_wait: called once if another process holds it.
    """
    path = _made(home / "locks") / f"{folder(name)}.lock"
    with disk_errors(path):
        file = path.open("wb")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def folder(name: str) -> str:
    """Directory name for a (checked) model name."""
    return name.replace("/", "--")


def _made(directory: Path) -> Path:
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory
