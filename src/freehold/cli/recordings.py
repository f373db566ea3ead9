"""Where commands look for a recording."""

from pathlib import Path

import click

from freehold import resolve
from freehold.cli.options import PATH

recording_argument = click.argument(
    "recording",
    type=PATH,
    required=False,
    help="A server's --record-dir, or one segment of it. Without it: the usual folder.",
)


def recording_path(given: Path | None) -> Path:
    """The recording that was named, or where servers record to if nothing else is said.

    Raises:
        ConfigError: an unusable value in the environment or its file.
    """
    if given is not None:
        return given
    path: Path = resolve.lookup("record_dir", {}).value
    return path
