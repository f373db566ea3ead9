"""Files that a measurement is to write, checked before it rather than after it."""

import os
import tempfile
from pathlib import Path

from freehold.errors import ConfigError


def writable(flag: str, path: Path) -> Path:
    """The path, if a file can be written there.

    Raises:
        ConfigError: it is a folder, or its folder is missing or closed.
    """
    folder = path.parent
    if path.is_dir():
        raise ConfigError(f"{flag} can't be {path}: that is a folder")
    if not folder.is_dir():
        raise ConfigError(f"{flag} can't be {path}: there is no folder {folder}; make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"{flag} can't be {path}: that can't be written")
    return path


def folder_of_results(flag: str, path: Path) -> Path:
    """The folder, made if need be.

    Raises:
        ConfigError: it can't be made, or no file can be written there.
    """
    done = "be made"
    try:
        path.mkdir(parents=True, exist_ok=True)
        done = "be written to"
        # Permissions don't tell of folders that take no files, such as those of /proc.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ConfigError(
            f"{flag} can't be {path}: that folder can't {done} ({error.strerror}); name one that can"
        ) from None
    return path
