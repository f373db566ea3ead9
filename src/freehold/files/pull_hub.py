"""Pull a model from the Hugging Face hub, or a server that speaks its protocol, through `huggingface_hub`."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freehold.errors import DownloadError, UnsupportedModelError
from freehold.files import layout
from freehold.files.digests import file_digest
from freehold.files.disk import check_free_space, disk_errors, is_plain_name
from freehold.files.gguf_shards import shard_prefix
from freehold.files.mapped import MappedFile
from freehold.files.progress import OnProgress, Progress, directory_bytes, watch_directory

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_SIDE_PATTERNS = ("*.json", "*.jinja", "*.model", "LICENSE*", "README.md")
_WEIGHT_PATTERNS = ("model.safetensors", "model-*.safetensors")
_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)


@dataclass(frozen=True, slots=True)
class HubName:
    """``org/name``, ``org/name/file.gguf``, either with ``@revision``."""

    repository: str
    file: str | None
    revision: str | None

    @classmethod
    def parse(cls, name: str) -> "HubName":
        """Take a checked name apart."""
        place, _, revision = name.partition("@")
        organisation, model, *file = place.split("/")
        return cls(f"{organisation}/{model}", file[0] if file else None, revision or None)


@dataclass(frozen=True, slots=True)
class _RemoteFile:
    """`sha256` is known for large files only."""

    name: str
    size: int
    sha256: str | None


def pull_hub(name: str, home: Path, on_progress: OnProgress, endpoint: str | None) -> Path:
    """Fetch configuration, tokenizer and weights (safetensors, else GGUF) of a repository into the store.

    The caller holds the lock of `name`. An interrupted download goes on where it stopped.

    Arguments:
        endpoint: URL of the hub; None means what `huggingface_hub` is configured to use.

    Returns:
        what to open: a directory, or a GGUF file.

    Raises:
        DownloadError: no such repository, revision or file, no permission, no network, or a file that isn't what the
            hub vouches for; then it is deleted.
        UnsupportedModelError: the repository has no weights that Freehold reads.
        ResourceError: not enough room on the disk.
    """
    from huggingface_hub import HfApi, snapshot_download  # slow to import, and needed here alone

    hub = HubName.parse(name)
    api = HfApi(endpoint=endpoint)
    on_progress(Progress("resolving"))
    commit, listing = _list_files(api, hub)
    wanted = _choose(hub, listing)
    total = sum(file.size for file in wanted)
    directory = layout.download_directory(name, home)
    staging = directory / commit
    _drop_other_commits(directory, staging)
    check_free_space(directory, max(total - directory_bytes(staging), 0))
    with watch_directory(staging, total, on_progress), disk_errors(staging), _hub_errors(hub):
        snapshot_download(
            hub.repository,
            revision=commit,
            endpoint=endpoint,
            local_dir=staging,
            allow_patterns=[file.name for file in wanted],
            tqdm_class=_silent_bar(),
        )
    hashes = _check(staging, wanted, total, on_progress)
    shutil.rmtree(staging / ".cache", ignore_errors=True)
    ggufs = sorted(file.name for file in wanted if file.name.endswith(".gguf"))
    manifest = layout.Manifest(
        name=name,
        source=f"{api.endpoint}/{hub.repository} at {commit}",
        entry=ggufs[0] if ggufs else ".",
        size_bytes=total,
        files=hashes,
    )
    installed = layout.install(staging, manifest, home)
    shutil.rmtree(directory, ignore_errors=True)
    return installed


def _list_files(api: "HfApi", hub: HubName) -> tuple[str, list[_RemoteFile]]:
    """The commit that the revision stands for, and its files."""
    with _hub_errors(hub):
        info = api.model_info(hub.repository, revision=hub.revision, files_metadata=True)
    listing = [
        _RemoteFile(sibling.rfilename, sibling.size or 0, sibling.lfs.sha256 if sibling.lfs else None)
        for sibling in info.siblings or ()
    ]
    commit = info.sha or ""
    if len(commit) != 40 or not commit.isalnum():
        raise DownloadError(
            f"the hub names the commit {commit[:60]!r} for {hub.repository}; 40 characters are expected"
        )
    return commit, listing


def _choose(hub: HubName, listing: list[_RemoteFile]) -> list[_RemoteFile]:
    """What to fetch: files of the repository's root, never below."""
    root = [file for file in listing if is_plain_name(file.name)]
    ggufs = [file for file in root if file.name.endswith(".gguf")]
    if hub.file is not None:
        shards = [file for file in ggufs if _model_of(file.name) == _model_of(hub.file)]
        if hub.file not in {file.name for file in shards}:
            raise DownloadError(f"{hub.repository} has no file {hub.file!r}; it has {_listed(ggufs)}")
        return shards
    weights = [file for file in root if any(fnmatchcase(file.name, pattern) for pattern in _WEIGHT_PATTERNS)]
    if weights:
        sides = [file for file in root if any(fnmatchcase(file.name, pattern) for pattern in _SIDE_PATTERNS)]
        return weights + sides
    if not ggufs:
        raise UnsupportedModelError(
            f"{hub.repository} has neither model.safetensors nor GGUF files; pick a repository that has"
        )
    if len({_model_of(file.name) for file in ggufs}) > 1:
        raise DownloadError(
            f"{hub.repository} holds several GGUF models ({_listed(ggufs)}); "
            f"name one, such as {hub.repository}/{ggufs[0].name}"
        )
    return ggufs


def _model_of(file_name: str) -> str:
    """The same for all shards of a split model."""
    return shard_prefix(file_name) or file_name


def _listed(files: list[_RemoteFile]) -> str:
    names = [file.name for file in files]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") if names else "no GGUF"


def _drop_other_commits(directory: Path, staging: Path) -> None:
    """Bytes of an older commit are of no use for this one."""
    with disk_errors(directory):
        for path in directory.iterdir():
            if path != staging:
                shutil.rmtree(path)


def _check(staging: Path, wanted: list[_RemoteFile], total: int, on_progress: OnProgress) -> dict[str, str]:
    """Compare sizes and, where the hub gives them, hashes. Returns the hashes of the large files."""
    hashes: dict[str, str] = {}
    done = 0
    for remote in wanted:
        on_progress(Progress("checking", done, total))
        path = staging / remote.name
        if not path.is_file() or path.stat().st_size != remote.size:
            raise DownloadError(f"{remote.name} came incomplete; run the same command again")
        if remote.sha256 is not None:
            file = MappedFile(path)
            found = file_digest(file, None)
            file.close()
            if found != remote.sha256:
                path.unlink()
                raise DownloadError(
                    f"{remote.name} has SHA-256 {found}, but the hub vouches for {remote.sha256}; it was deleted, "
                    "run the same command again"
                )
            hashes[remote.name] = found
        done += remote.size
    return hashes


def _silent_bar() -> Any:
    from huggingface_hub.utils.tqdm import tqdm

    class SilentBar(tqdm):
        """Progress is reported from the bytes on disk; the library shall draw none."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

    return SilentBar


@contextmanager
def _hub_errors(hub: HubName) -> Iterator[None]:
    """Turn the library's errors into one sentence."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise DownloadError(
            f"{hub.repository} is gated; accept its licence on the hub and log in with `hf auth login`"
        ) from None
    except errors.RevisionNotFoundError:
        raise DownloadError(f"{hub.repository} has no revision {hub.revision!r}; check its name") from None
    except errors.RepositoryNotFoundError:
        raise DownloadError(
            f"{hub.repository} isn't on the hub, or is private; check the name, or log in with `hf auth login`"
        ) from None
    except Exception as error:  # its transport, and so its exceptions, differ from version to version
        if isinstance(error, OSError) and error.errno in _DISK_ERRNOS:
            raise
        raise DownloadError(
            f"{hub.repository} can't be fetched ({type(error).__name__}: {str(error)[:300]}); check the network and "
            "run the same command again, it goes on from there"
        ) from None
