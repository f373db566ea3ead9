"""Pages on disk."""

from pathlib import Path

from freehold.errors import ConfigError


def write_page(text: str, path: Path) -> None:
    """Write a page, or a plot.

    Raises:
        ConfigError: the file can't be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from None
