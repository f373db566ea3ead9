"""The folder of packed weights: what one start has packed, the next one reads.

A file is found by the key of its recipe (`freehold.files.packed_file`), so one that was made from other bytes, or in
another way, is never even opened. Whatever is wrong with a file or the folder costs time and nothing else: the weights
are packed from the model's own files then. Each file may be deleted at any time.
"""

import fcntl
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from freehold import __version__
from freehold.files.packed_file import (
    Contents,
    Description,
    PackedFile,
    PackedFileError,
    Recipe,
    open_packed,
    write_packed,
)

logger = logging.getLogger(__name__)

WORTHWHILE_S = 2.0
"""Packing that takes no longer isn't worth the room: reading the packed bytes takes some time too."""

_SUFFIX = ".packed"
_UNFINISHED = ".unfinished"

Fill = Callable[[int, int, NDArray[np.uint64]], str | None]
"""Fills memory from an open file, given its descriptor, first byte and checksums. Returns what is wrong with it, if
anything."""


@dataclass(frozen=True, slots=True)
class StoredPacked:
    """A file of packed weights, for people."""

    path: Path
    model: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Offer:
    """Weights in memory that could be kept."""

    contents: Contents
    data: NDArray[np.uint8]
    checksums: Callable[[NDArray[np.uint8]], NDArray[np.uint64]]


class PackedCache:
    """The packed weights of one model that is being loaded.

    `load` before packing; if that found nothing, `offer` after it, and `keep` once the model's files are known to be
    what they were. Writing happens in a thread of its own, beside whatever the engine does.
    """

    def __init__(
        self, folder: Path, model: Path, sources: tuple[str, ...] | None, limit_bytes: int, *, always: bool = False
    ) -> None:
        """
        Arguments:
            folder: need not exist.
            model: its path, for people.
            sources: SHA-256 of each weight file; None: they aren't known yet, and nothing is looked for.
            limit_bytes: of all files in the folder; those that weren't used for longest give way.
            always: keep whatever was packed, however little time it took.
        """
        self._folder = folder
        self._model = model
        self._sources = sources
        self._limit_bytes = limit_bytes
        self._always = always
        self._offer: _Offer | None = None
        self._stopping = threading.Event()
        self._writer: threading.Thread | None = None

    def load(self, contents: Contents, fill: Fill) -> bool:
        """Fill memory from a file that was kept, if there is a sound one. Returns whether that was done."""
        if self._sources is None:
            return False
        recipe = Recipe(__version__, self._sources, contents)
        path = self._path(recipe)
        try:
            file = open_packed(path)
        except FileNotFoundError:
            return False
        except PackedFileError as error:
            _reject(path, str(error))
            return False
        try:
            wrong = _difference(file, recipe) or fill(file.descriptor, file.start, file.checksums)
        finally:
            file.close()
        if wrong is not None:
            _reject(path, wrong)
            return False
        with suppress(OSError):
            os.utime(path)  # used last, removed last
        logger.info("read %d bytes of packed weights from %s", contents.num_bytes, path)
        return True

    def offer(
        self,
        contents: Contents,
        data: NDArray[np.uint8],
        checksums: Callable[[NDArray[np.uint8]], NDArray[np.uint64]],
        packing_s: float,
    ) -> None:
        """Weights that were just packed, to be kept if that pays.

        Arguments:
            data: uint8 (contents.num_bytes,); stays as it is.
            checksums: makes those of `data`.
            packing_s: what packing took.
        """
        if self._always or packing_s >= WORTHWHILE_S:
            self._offer = _Offer(contents, data, checksums)

    def keep(self, sources: tuple[str, ...]) -> None:
        """Begin to write what was offered, if anything.

        Arguments:
            sources: SHA-256 of each weight file, of bytes that didn't change since they were packed.
        """
        offer, self._offer = self._offer, None
        if offer is None:
            return
        recipe = Recipe(__version__, sources, offer.contents)
        self._writer = threading.Thread(target=self._write, args=(recipe, offer), name="packed-cache", daemon=True)
        self._writer.start()

    def wait(self) -> None:
        """Wait until all is written that will be."""
        if self._writer is not None:
            self._writer.join()

    def close(self) -> None:
        """Stop writing. An unfinished file goes. Idempotent."""
        self._offer = None
        self._stopping.set()
        self.wait()

    def _path(self, recipe: Recipe) -> Path:
        return self._folder / f"{recipe.key}{_SUFFIX}"

    def _write(self, recipe: Recipe, offer: _Offer) -> None:
        path = self._path(recipe)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with _only_writer(self._folder) as alone:
                if alone and not path.exists() and self._has_room(len(offer.data)):
                    self._write_alone(path, recipe, offer)
        except OSError as error:
            logger.warning("packed weights are not kept in %s: %s", self._folder, error.strerror or error)

    def _write_alone(self, path: Path, recipe: Recipe, offer: _Offer) -> None:
        for left in self._folder.glob(f".*{_UNFINISHED}"):
            left.unlink(missing_ok=True)
        unfinished = self._folder / f".{secrets.token_hex(8)}{_UNFINISHED}"
        try:
            with unfinished.open("xb") as file:
                description = Description(recipe, str(self._model))
                checksums = offer.checksums(offer.data)
                whole = write_packed(
                    file.fileno(), description, checksums, offer.data, lambda: not self._stopping.is_set()
                )
            if whole:
                unfinished.replace(path)
                logger.info("keep %d bytes of packed weights in %s", len(offer.data), path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _has_room(self, num_bytes: int) -> bool:
        """Make room within the limit. The disk must have as much free again, so that this never fills it."""
        if num_bytes > self._limit_bytes:
            logger.info("packed weights of %d bytes are beyond the limit of %d", num_bytes, self._limit_bytes)
            return False
        used = [(path.stat(), path) for path in self._folder.glob(f"*{_SUFFIX}")]
        total = sum(status.st_size for status, _ in used)
        for status, path in sorted(used, key=lambda one: one[0].st_mtime_ns):
            if total + num_bytes <= self._limit_bytes:
                break
            path.unlink(missing_ok=True)
            total -= status.st_size
        free_bytes = shutil.disk_usage(self._folder).free
        if free_bytes < 2 * num_bytes:
            logger.info("packed weights of %d bytes are not kept: the disk has %d free", num_bytes, free_bytes)
            return False
        return True


def list_packed(folder: Path) -> list[StoredPacked]:
    """All files of packed weights, unsound ones too, by model."""
    found = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(FileNotFoundError):
            found.append(StoredPacked(path, _model_of(path), path.stat().st_size))
    return sorted(found, key=lambda one: (one.model, one.path.name))


def remove_packed(folder: Path) -> int:
    """Remove all files of packed weights; returns their bytes. Engines that were started from them keep working."""
    freed = 0
    for path in (*folder.glob(f"*{_SUFFIX}"), *folder.glob(f".*{_UNFINISHED}")):
        with suppress(FileNotFoundError):
            freed += path.stat().st_size
            path.unlink()
    return freed


def _model_of(path: Path) -> str:
    try:
        file = open_packed(path)
    except PackedFileError as error:
        return f"unusable: {error}"
    file.close()
    return file.description.model


def _difference(file: PackedFile, recipe: Recipe) -> str | None:
    return None if file.description.recipe == recipe else "it was made from other bytes"


def _reject(path: Path, reason: str) -> None:
    logger.warning("packed weights in %s are not used, and packed anew: %s", path, reason)
    with suppress(OSError):
        path.unlink()


@contextmanager
def _only_writer(folder: Path) -> Iterator[bool]:
    """Whether no other process writes into the folder; it stays so within."""
    with (folder / ".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another process writes packed weights into %s", folder)
            yield False
            return
        yield True
